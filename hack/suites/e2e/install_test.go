//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/suites/readme"
)

const (
	webhookPath = "/api/v1/events/webhook/"
	outsideName = "tocsin-outside" // the Service that the suite reaches the pods by
)

// overlay writes the overlay that docs/install.md tells users to write and returns its folder. Components are
// folders of config/components.
func (s *suite) overlay(t *testing.T, image string, components ...string) string {
	t.Helper()
	folder := t.TempDir()
	root := relativeRoot(t, folder)
	lines := []string{
		"apiVersion: kustomize.config.k8s.io/v1beta1", "kind: Kustomization",
		"resources:", "  - " + root + "/config/default",
		"images:", "  - name: tocsin",
	}
	name, tag, digest := splitImage(image)
	lines = append(lines, "    newName: "+name)
	if tag != "" {
		lines = append(lines, "    newTag: "+tag)
	}
	if digest != "" {
		lines = append(lines, "    digest: "+digest)
	}
	if len(components) > 0 {
		lines = append(lines, "components:")
	}
	for _, component := range components {
		lines = append(lines, "  - "+root+"/config/components/"+component)
	}
	content := []byte(strings.Join(lines, "\n") + "\n")
	NewWithT(t).Expect(os.WriteFile(filepath.Join(folder, "kustomization.yaml"), content, 0o600)).To(Succeed())
	return folder
}

// splitImage returns the parts of an image's name; the tag is empty if there is a digest.
func splitImage(image string) (name, tag, digest string) {
	name, digest, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		name, tag = name[:colon], name[colon+1:]
	}
	if digest != "" {
		tag = ""
	}
	return name, tag, digest
}

// installChart installs the Helm chart, waits until Tocsin runs, and runs the chart's test. It takes over the
// CustomResourceDefinitions that kubectl left behind.
func (s *suite) installChart(t *testing.T) {
	t.Helper()
	name, tag, digest := splitImage(s.image)
	s.helm(t, "install", "tocsin", "dist/chart", "--namespace", systemNamespace, "--create-namespace", "--take-ownership", "--force-conflicts",
		"--set", "image.repository="+name+",image.tag="+tag+",image.digest="+digest+",test.image="+s.shellImage)
	s.kubectl(t, "label", "namespace", systemNamespace, "pod-security.kubernetes.io/enforce=restricted")
	NewWithT(t).Expect(s.settled(t.Context(), 2)).To(Succeed())
	s.helm(t, "test", "tocsin", "--namespace", systemNamespace, "--timeout", "1m")
}

// helm runs Helm in the project's folder.
func (s *suite) helm(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kubectlTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(testenv.Root(), "bin", "tools", "helm"), args...)
	command.Dir = testenv.Root()
	output, err := command.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(output))
}

// install applies the overlay of the image and waits until Tocsin runs.
func (s *suite) install(t *testing.T) {
	t.Helper()
	s.kubectl(t, "apply", "--server-side", "-k", s.overlay(t, s.image))
	s.kubectl(t, "-n", systemNamespace, "wait", "--for=condition=Available", "deployment/tocsin", "--timeout=3m")
	NewWithT(t).Expect(s.settled(t.Context(), 2)).To(Succeed())
}

// testWalkthrough runs the commands of docs/getting-started.md, on a cluster without Tocsin. Besides the image and the local port
// nothing is changed.
func (s *suite) testWalkthrough(t *testing.T) {
	g := NewWithT(t)
	script, err := readme.Walkthrough()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { s.remove(t, "namespace", "shop") })
	port := freePort(t)
	for _, change := range [][2]string{
		{"-k config/default", "-k " + s.overlay(t, s.image)},
		{"service/tocsin-webhook 8080 >/dev/null &\n", "service/tocsin-webhook " + port + ":8080 >/dev/null &\n" +
			"forward=$!\ntrap 'kill $forward' EXIT\n"},
		{"http://127.0.0.1:8080/", "http://127.0.0.1:" + port + "/"},
	} {
		g.Expect(script).To(ContainSubstring(change[0]))
		script = strings.ReplaceAll(script, change[0], change[1])
	}
	ctx, cancel := context.WithTimeout(t.Context(), kubectlTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.Dir = testenv.Root()
	output, err := command.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(output))
	g.Expect(string(output)).To(MatchRegexp(`"status":"accepted","event":"[-0-9a-f]{36}"`))
	g.Expect(string(output)).To(MatchRegexp(`monitoring-\w{26} +Open +critical +False +1 .* Disk 97 % full`))
	g.Expect(string(output)).To(MatchRegexp(`incident.tocsin.dev/monitoring-\w{26} condition met`))
	g.Expect(s.settled(t.Context(), 2)).To(Succeed())
}

// testInside posts from a pod, at the address that docs/install.md gives.
func (s *suite) testInside(t *testing.T) {
	g := NewWithT(t)
	namespace := s.namespace(t, "e2e-inside")
	s.integration(t, namespace, "inside")
	address := "http://tocsin-webhook." + systemNamespace + ".svc:8080" + webhookPath + testenv.Token(namespace, "inside")
	pod := s.shell(namespace, "sender",
		fmt.Sprintf(`until wget -qO- --post-data='{"title":"From a pod","dedup_key":"inside"}' '%s'; do sleep 1; done`, address))
	s.nameService(t, pod)
	g.Expect(s.Create(t.Context(), pod)).To(Succeed())
	s.kubectl(t, "-n", namespace, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/sender", "--timeout=2m")
	g.Expect(s.kubectl(t, "-n", namespace, "logs", "sender")).To(ContainSubstring(`{"status":"accepted"`))
	s.kubectl(t, "-n", namespace, "wait", "--for=create", "incident/"+v1alpha1.IncidentName("inside", "inside"), "--timeout=30s")
}

// nameService gives the pod the Service's name where the cluster has no DNS to do so.
func (s *suite) nameService(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	g := NewWithT(t)
	var dns corev1.Service
	err := s.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-dns"}, &dns)
	g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err == nil {
		return
	}
	t.Log("the cluster has no DNS; the pod gets the Service's name as a host alias")
	var service corev1.Service
	g.Expect(s.Get(t.Context(), client.ObjectKey{Namespace: systemNamespace, Name: "tocsin-webhook"}, &service)).To(Succeed())
	pod.Spec.HostAliases = []corev1.HostAlias{{
		IP: service.Spec.ClusterIP, Hostnames: []string{"tocsin-webhook." + systemNamespace + ".svc"},
	}}
}

// testOutside posts from here, through a Service that is reached from outside.
func (s *suite) testOutside(t *testing.T) {
	g := NewWithT(t)
	s.expose(t)
	namespace := s.namespace(t, "e2e-outside")
	s.integration(t, namespace, "outside")
	token := testenv.Token(namespace, "outside")
	g.Expect(post(t, http.DefaultClient, s.url, token, `{"title":"From outside","dedup_key":"outside"}`)).To(Equal(http.StatusAccepted))
	g.Expect(post(t, http.DefaultClient, s.url, "another token", `{}`)).To(Equal(http.StatusUnauthorized))
	g.Expect(post(t, http.DefaultClient, s.url, token, `{"title":`)).To(Equal(http.StatusBadRequest))
	incident := "incident/" + v1alpha1.IncidentName("outside", "outside")
	s.kubectl(t, "-n", namespace, "wait", "--for=create", incident, "--timeout=30s")

	// People acknowledge and resolve with kubectl, from the cluster's side.
	for _, status := range []string{"acknowledged", "resolved"} {
		event := &v1alpha1.AlertEvent{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "by-hand-"},
			Spec:       v1alpha1.AlertEventSpec{IntegrationName: "outside", Alerts: testenv.Text(v1alpha1.Alert{DedupKey: "outside", Status: v1alpha1.AlertStatus(status)})},
		}
		g.Expect(s.Create(t.Context(), event)).To(Succeed())
	}
	s.kubectl(t, "-n", namespace, "wait", "--for=condition=Acknowledged", incident, "--timeout=30s")
	s.kubectl(t, "-n", namespace, "wait", "--for=condition=Resolved", incident, "--timeout=30s")
}

// expose makes a node port for the webhook and waits until it answers, unless E2E_URL says where to post.
func (s *suite) expose(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	if os.Getenv("E2E_URL") == "" {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: outsideName},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, Selector: podsSelector, Ports: []corev1.ServicePort{{Port: 8080}},
			},
		}
		g.Expect(s.Create(t.Context(), service)).To(Succeed())
		var nodes corev1.NodeList
		g.Expect(s.List(t.Context(), &nodes)).To(Succeed())
		for _, address := range nodes.Items[0].Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				s.url = fmt.Sprintf("http://%s:%d", address.Address, service.Spec.Ports[0].NodePort)
			}
		}
	}
	g.Eventually(func() error {
		response, err := (&http.Client{Timeout: 2 * time.Second}).Get(s.url + webhookPath)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}, "30s", "200ms").Should(Succeed(), "E2E_URL is where the webhook Service is reached from here")
}

// post posts from outside and returns the status code.
func post(t *testing.T, sender *http.Client, url, token, body string) int {
	t.Helper()
	g := NewWithT(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+webhookPath, strings.NewReader(body))
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := sender.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
	return response.StatusCode
}

// integration makes a WebhookIntegration and waits until it is served.
func (s *suite) integration(t *testing.T, namespace, name string) {
	t.Helper()
	NewWithT(t).Expect(s.Create(t.Context(), integrationOf(namespace, name))).To(Succeed())
	s.kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "webhookintegration/"+name, "--timeout=30s")
}

func integrationOf(namespace, name string) *v1alpha1.WebhookIntegration {
	return &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.WebhookIntegrationSpec{
			Tokens: testenv.Tokens(namespace, name),
		},
	}
}

// shell is a pod that runs a script in the shell image, under the restricted profile.
func (s *suite) shell(namespace, name, script string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:   corev1.RestartPolicyNever,
			SecurityContext: &corev1.PodSecurityContext{},
			Containers: []corev1.Container{{
				Name: "shell", Image: s.shellImage, Command: []string{"/bin/sh", "-c", script}, SecurityContext: restricted(),
			}},
		},
	}
}

// restricted is what the restricted pod security standard wants of a container.
func restricted() *corev1.SecurityContext {
	user, yes, no := int64(65532), true, false
	return &corev1.SecurityContext{
		RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: &yes, AllowPrivilegeEscalation: &no,
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}
