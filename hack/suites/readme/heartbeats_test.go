package readme

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// heartbeatsPage has the examples of jobs that tell how they have ended.
const heartbeatsPage = "docs/heartbeats.md"

// The examples in heartbeatsPage.
var (
	heartbeatExample = regexp.MustCompile("(?s)```yaml\n(apiVersion: tocsin.dev/v1alpha1\n.*?)```")
	crontabExample   = regexp.MustCompile(`(?m)^17 2 \* \* \* (/usr/local/bin/backup; .*)$`)
	cronJobExample   = regexp.MustCompile("(?s)```yaml\n(apiVersion: batch/v1\n.*?)```")
	unitExample      = regexp.MustCompile("(?s)```ini\n\\[Service\\]\nExecStopPost=(.*?)```")
)

// runJobs has jobs end as the page's examples for cron, CronJob and systemd expect it, with an exit code and without: each opens
// the Incident of the heartbeat and resolves it.
func runJobs(t *testing.T, kubeconfig, folder, url string) {
	t.Helper()
	g := NewWithT(t)
	// AlertEvents of heartbeats are kept for ten minutes, and docs/uninstall.md waits until there are none.
	defer runIn(t, kubeconfig, folder, "kubectl -n shop delete alertevents --all")
	content, err := os.ReadFile(filepath.Join(testenv.Root(), heartbeatsPage))
	g.Expect(err).NotTo(HaveOccurred())
	example := func(pattern *regexp.Regexp) string {
		found := pattern.FindStringSubmatch(string(content))
		g.Expect(found).NotTo(BeNil(), pattern.String())
		return strings.ReplaceAll(found[1], "https://tocsin.example.com/api/v1/events/webhook/TOKEN", url+testenv.Token("shop", "jobs"))
	}
	var beat v1alpha1.Heartbeat
	g.Expect(yaml.UnmarshalStrict([]byte(example(heartbeatExample)), &beat)).To(Succeed())
	beat.Namespace = "shop"
	integration := v1alpha1.WebhookIntegration{Spec: v1alpha1.WebhookIntegrationSpec{Tokens: testenv.Tokens("shop", "jobs")}}
	integration.Namespace, integration.Name = "shop", beat.Spec.IntegrationName
	var manifests []byte
	for kind, object := range map[string]any{"Heartbeat": &beat, "WebhookIntegration": &integration} {
		manifest, err := yaml.Marshal(object)
		g.Expect(err).NotTo(HaveOccurred())
		if kind == "WebhookIntegration" {
			manifest = append([]byte("apiVersion: tocsin.dev/v1alpha1\nkind: WebhookIntegration\n"), manifest...)
		}
		manifests = append(append(manifests, "---\n"...), manifest...)
	}
	g.Expect(os.WriteFile(filepath.Join(folder, "jobs.yaml"), manifests, 0o600)).To(Succeed())
	runIn(t, kubeconfig, folder, "kubectl create -f jobs.yaml && kubectl -n shop wait --for=condition=Ready webhookintegration/jobs && "+
		"kubectl -n shop wait --for=jsonpath='{.status.observedTime}' heartbeat/backup")
	var cronJob batchv1.CronJob
	g.Expect(yaml.UnmarshalStrict([]byte(example(cronJobExample)), &cronJob)).To(Succeed())
	container := cronJob.Spec.JobTemplate.Spec.Template.Spec.Containers[0]
	g.Expect(container.Command).To(Equal([]string{"sh", "-c"}))
	heartbeat := url + testenv.Token("shop", "jobs") + "/heartbeat/backup"

	incident := v1alpha1.IncidentName("jobs", v1alpha1.HeartbeatKey("backup"))
	state := func() string {
		return runIn(t, kubeconfig, folder, "kubectl -n shop get incident "+incident+" --ignore-not-found -o jsonpath='{.status.state} {.status.alert.description}'")
	}
	for name, script := range map[string]string{ // with the exit code of the job as $1
		"cron":    strings.Replace(example(crontabExample), "/usr/local/bin/backup;", `(exit $1);`, 1),
		"CronJob": fmt.Sprintf("HEARTBEAT='%s'; backup() { return $1; }; ", heartbeat) + strings.Replace(container.Args[0], "backup;", "backup $1;", 1),
		"systemd": "EXIT_STATUS=$1; " + strings.ReplaceAll(example(unitExample), "\\\n", " "),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			job := func(exit string) string {
				return runIn(t, kubeconfig, folder, "set -- "+exit+"\n(\n"+script+"\n) || echo \"ended with $?\"")
			}
			ended := job("3")
			if name == "CronJob" {
				g.Expect(ended).To(ContainSubstring("ended with 3"), "the job itself fails as well")
			}
			g.Eventually(state, "20s", "100ms").Should(Equal("Open The sender reported a failure, with the exit code 3."))
			g.Expect(job("0")).NotTo(ContainSubstring("ended"))
			g.Eventually(state, "20s", "100ms").Should(HavePrefix("Resolved "))
			if name == "systemd" {
				g.Expect(job("TERM")).To(ContainSubstring("ended with 22"), "no exit code")
			}
		})
	}
}
