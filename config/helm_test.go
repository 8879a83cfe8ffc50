package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// helm runs Helm on the cluster and returns what it prints.
func (c *cluster) helm(t *testing.T, args ...string) string {
	t.Helper()
	output, err := tryHelm(t, append(args, "--kubeconfig", c.kubeconfig)...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), output)
	return output
}

// testHelm goes through the life of a release, on a cluster to which kubectl applied config/default: adopting it, following
// the notes, upgrading the CustomResourceDefinitions, uninstalling, and installing again.
func (c *cluster) testHelm(t *testing.T) {
	g := NewWithT(t)
	release := []string{"tocsin", chart(), "--namespace", systemNamespace}
	output, err := tryHelm(t, append([]string{"install", "--kubeconfig", c.kubeconfig}, release...)...)
	g.Expect(err).To(HaveOccurred(), "kubectl installed these objects")
	g.Expect(output).To(ContainSubstring("invalid ownership metadata"))
	g.Expect(c.Create(t.Context(), &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: v1alpha1.IncidentName("test", "kept")},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "test", DedupKey: "kept"},
	})).To(Succeed())

	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "helm.md"))
	g.Expect(err).NotTo(HaveOccurred())
	adopt := regexp.MustCompile(`(?m)^helm (install .*--take-ownership.*)$`).FindStringSubmatch(string(page))
	g.Expect(adopt).NotTo(BeNil())
	notes := c.helm(t, strings.Fields(strings.Replace(adopt[1], "dist/chart", chart(), 1))...)
	c.followNotes(t, notes)
	c.testUpgradeOfDefinitions(t)

	c.helm(t, "uninstall", "tocsin", "--namespace", systemNamespace)
	var account corev1.ServiceAccount
	err = c.Get(t.Context(), client.ObjectKey{Namespace: systemNamespace, Name: "tocsin"}, &account)
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	g.Expect(c.Get(t.Context(), client.ObjectKey{Name: "tocsin-manager"}, &rbacv1.ClusterRole{})).NotTo(Succeed())
	var incident v1alpha1.Incident
	kept := client.ObjectKey{Namespace: "default", Name: v1alpha1.IncidentName("test", "kept")}
	g.Expect(c.Get(t.Context(), kept, &incident)).To(Succeed(), "the Incidents are kept")

	// The definitions are still the release's.
	c.helm(t, append([]string{"install", "--force-conflicts"}, release...)...)
	g.Expect(c.Get(t.Context(), kept, &incident)).To(Succeed())
	c.helm(t, "uninstall", "tocsin", "--namespace", systemNamespace)
}

// followNotes runs the commands that Helm prints, but for those that need nodes and a manager.
func (c *cluster) followNotes(t *testing.T, notes string) {
	t.Helper()
	g := NewWithT(t)
	script := "set -euo pipefail\n"
	for _, line := range regexp.MustCompile(`(?m)^ {5}( *\S.*)$`).FindAllStringSubmatch(notes, -1) {
		if !strings.Contains(line[1], " wait ") && !strings.HasPrefix(line[1], "helm test ") {
			script += line[1] + "\n"
		}
	}
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "PATH="+testenv.Assets()+string(os.PathListSeparator)+os.Getenv("PATH"))
	said, err := command.CombinedOutput()
	output := string(said)
	g.Expect(err).NotTo(HaveOccurred(), output)
	url := regexp.MustCompile(`http://tocsin-webhook\.tocsin-system\.svc:8080/api/v1/events/webhook/(tocsin_\w+)\n`).FindStringSubmatch(output)
	g.Expect(url).NotTo(BeNil(), output)
	var integration v1alpha1.WebhookIntegration
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "monitoring"}, &integration)).To(Succeed())
	g.Expect(integration.Spec.Tokens[0].SHA256).To(Equal(tokens.Hash(url[1])))
	g.Expect(c.Delete(t.Context(), &integration)).To(Succeed())
}

// testUpgradeOfDefinitions upgrades the release to a chart whose CustomResourceDefinition has another field.
func (c *cluster) testUpgradeOfDefinitions(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	folder := filepath.Join(t.TempDir(), "chart")
	g.Expect(os.CopyFS(folder, os.DirFS(chart()))).To(Succeed())
	path := filepath.Join(folder, "templates", "crds", "incidents.tocsin.dev.yaml")
	text, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	const before = "              dedupKey:\n"
	g.Expect(strings.Count(string(text), before)).To(Equal(1))
	changed := strings.Replace(string(text), before, "              newField:\n                type: string\n"+before, 1)
	g.Expect(os.WriteFile(path, []byte(changed), 0o600)).To(Succeed())
	g.Expect(c.kubectl(t, "get", "crd", "incidents.tocsin.dev", "-o", "yaml")).NotTo(ContainSubstring("newField:"))
	c.helm(t, "upgrade", "tocsin", folder, "--namespace", systemNamespace, "--force-conflicts") // with kubectl, see docs/helm.md
	g.Expect(c.kubectl(t, "get", "crd", "incidents.tocsin.dev", "-o", "yaml")).To(ContainSubstring("newField:"))
	c.helm(t, "upgrade", "tocsin", folder, "--namespace", systemNamespace, "--set", "crds.enabled=false")
	g.Expect(c.kubectl(t, "get", "crd", "incidents.tocsin.dev", "-o", "yaml")).To(ContainSubstring("newField:"), "it is kept")
}

// testHelmInNamespace installs the chart as somebody who has no right outside of one namespace.
func (c *cluster) testHelmInNamespace(t *testing.T) {
	g := NewWithT(t)
	const namespace = "helm-of-one"
	c.kubectl(t, "create", "namespace", namespace)
	owner := c.namespaceOwner(t, namespace)
	args := []string{"install", "tocsin", chart(), "--namespace", namespace, "--set", "watchNamespaces={" + namespace + "},crds.enabled=false"}
	output, err := tryHelm(t, append(args, "--kubeconfig", owner.kubeconfig)...)
	g.Expect(err).To(HaveOccurred(), "authorizing readers of the metrics is a right of the whole cluster")
	g.Expect(output).To(ContainSubstring("cluster scope"))
	owner.helm(t, append(args[:len(args)-1:len(args)-1], args[len(args)-1]+",metrics.secure=false", "--replace")...)
	g.Expect(c.deployment(t, namespace).Spec.Template.Spec.Containers[0].Args).To(ContainElement("--watch-namespaces=" + namespace))
	owner.helm(t, "uninstall", "tocsin", "--namespace", namespace)
}
