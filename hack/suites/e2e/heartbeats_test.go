//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// cronJobBlock is the CronJob in docs/heartbeats.md.
var cronJobBlock = regexp.MustCompile("(?s)```yaml\n(apiVersion: batch/v1\n.*?)```")

// testCronJob runs the CronJob of docs/heartbeats.md, first with a job that fails and then with one that does not, without
// waiting for its schedule. The shell image has wget in place of curl.
func (s *suite) testCronJob(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "heartbeats.md"))
	g.Expect(err).NotTo(HaveOccurred())
	example := cronJobBlock.FindSubmatch(page)
	g.Expect(example).NotTo(BeNil(), "docs/heartbeats.md has a CronJob")
	var job batchv1.CronJob
	g.Expect(yaml.UnmarshalStrict(example[1], &job)).To(Succeed())

	namespace := s.namespace(t, "e2e-heartbeats")
	integration := integrationOf(namespace, "jobs")
	g.Expect(s.Create(t.Context(), integration)).To(Succeed())
	g.Expect(s.Create(t.Context(), testenv.Heartbeat(namespace, "backup", "jobs", 24*time.Hour, nil))).To(Succeed())
	s.kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "webhookintegration/jobs", "--timeout=30s")
	address := "http://tocsin-webhook." + systemNamespace + ".svc:8080" + webhookPath + testenv.Token(namespace, "jobs")
	g.Expect(s.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tocsin-heartbeat"},
		StringData: map[string]string{"url": address + "/heartbeat/backup"},
	})).To(Succeed())

	job.Namespace = namespace
	spec := &job.Spec.JobTemplate.Spec.Template.Spec
	container := &spec.Containers[0]
	container.Image, container.SecurityContext = s.shellImage, restricted()
	container.Env = append(container.Env, corev1.EnvVar{Name: "CODE", Value: "3"})
	for _, change := range [][2]string{
		{"backup; code=$?;", "(exit $CODE); code=$?;"},
		{`curl -fsS -m 10 --retry 5 "$HEARTBEAT/$code"`, `until timeout 10 wget -qO- "$HEARTBEAT/$code"; do sleep 1; done`},
	} {
		g.Expect(container.Args[0]).To(ContainSubstring(change[0]))
		container.Args[0] = strings.Replace(container.Args[0], change[0], change[1], 1)
	}
	pod := &corev1.Pod{Spec: *spec}
	s.nameService(t, pod)
	*spec = pod.Spec
	g.Expect(s.Create(t.Context(), &job)).To(Succeed())

	s.kubectl(t, "-n", namespace, "create", "job", "--from=cronjob/backup", "fails")
	incident := "incident/" + v1alpha1.IncidentName("jobs", v1alpha1.HeartbeatKey("backup"))
	s.kubectl(t, "-n", namespace, "wait", "--for=create", incident, "--timeout=1m")
	s.kubectl(t, "-n", namespace, "wait", "--for=condition=Resolved=False", incident, "--timeout=30s")
	g.Expect(s.kubectl(t, "-n", namespace, "get", incident, "-o", "jsonpath={.status.alert.description}")).
		To(ContainSubstring("with the exit code 3."))
	s.kubectl(t, "-n", namespace, "wait", "--for=condition=Failed", "job/fails", "--timeout=30s")

	g.Expect(s.Get(t.Context(), client.ObjectKeyFromObject(&job), &job)).To(Succeed())
	env := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Env
	env[len(env)-1].Value = "0"
	g.Expect(s.Update(t.Context(), &job)).To(Succeed())
	s.kubectl(t, "-n", namespace, "create", "job", "--from=cronjob/backup", "succeeds")
	s.kubectl(t, "-n", namespace, "wait", "--for=condition=Resolved", incident, "--timeout=1m")
	s.kubectl(t, "-n", namespace, "wait", "--for=condition=Complete", "job/succeeds", "--timeout=30s")
}
