package config

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

func (c *cluster) checkSingleNamespace(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	container := c.deployment(t, namespace).Spec.Template.Spec.Containers[0]
	g.Expect(container.Args).To(ContainElement("--watch-namespaces=$(POD_NAMESPACE)"))
	g.Expect(container.Env).To(ContainElement(And(HaveField("Name", "POD_NAMESPACE"), HaveField("ValueFrom.FieldRef.FieldPath", "metadata.namespace"))))
	for _, name := range []string{"tocsin-manager", "tocsin-viewer", "tocsin-editor"} {
		var role rbacv1.Role
		var clusterRole rbacv1.ClusterRole
		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &role)).To(Succeed())
		g.Expect(c.Get(t.Context(), client.ObjectKey{Name: name}, &clusterRole)).To(Succeed(), "config/default was applied before")
		g.Expect(role.Rules).To(Equal(clusterRole.Rules))
		g.Expect(role.Labels).To(HaveLen(1), "nothing aggregates Roles")
	}
}

// testSingleNamespace installs Tocsin as somebody who has no right outside of one namespace, and runs the manager
// with the rights that this gives it, and with the arguments that it gets.
func (c *cluster) testSingleNamespace(t *testing.T) {
	g := NewWithT(t)
	const namespace = "one-of-many"
	c.kubectl(t, "create", "namespace", namespace)
	owner := c.namespaceOwner(t, namespace)
	output, err := owner.tryKubectl(t, "apply", "--server-side", "--validate=strict", "-k", overlay(t, namespace))
	g.Expect(err).To(HaveOccurred(), "config/default has objects of the whole cluster")
	g.Expect(output).To(ContainSubstring("cluster scope"))
	owner.apply(t, overlay(t, namespace, "single-namespace"))

	args := c.deployment(t, namespace).Spec.Template.Spec.Containers[0].Args
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(POD_NAMESPACE)", namespace)
	}
	log := filepath.Join(t.TempDir(), "log")
	manager := c.startManager(t, log, namespace, args...)
	token, strangers := c.createIntegration(t, namespace), c.createIntegration(t, "default")
	g.Eventually(post).WithArguments(t.Context(), manager.WebhookURL+token, `{"dedup_key":"a"}`).
		WithTimeout(asLongAsItTakes).Should(Equal(http.StatusAccepted))
	g.Expect(post(t.Context(), manager.WebhookURL+token, `[`)).To(Equal(http.StatusBadRequest))
	g.Expect(post(t.Context(), manager.WebhookURL+strangers, `{}`)).To(Equal(http.StatusUnauthorized))
	incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.IncidentName("test", "a")}}
	g.Eventually(func() (v1alpha1.IncidentState, error) {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(incident), incident)
		return incident.Status.State, client.IgnoreNotFound(err)
	}, asLongAsItTakes, "50ms").Should(Equal(v1alpha1.IncidentOpen))
	g.Eventually(func() (reasons []string, err error) {
		var events corev1.EventList
		err = c.List(t.Context(), &events, client.InNamespace(namespace))
		for i := range events.Items {
			reasons = append(reasons, events.Items[i].Reason)
		}
		return reasons, err
	}, asLongAsItTakes, "100ms").Should(ContainElements("Opened", "Rejected"))
	g.Expect(scrape(t.Context(), manager.MetricsURL, "")).To(ContainSubstring("\ntocsin_webhook_requests_total{"))

	g.Expect(manager.Stop()).To(Succeed())
	said, err := os.ReadFile(log)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(said)).NotTo(MatchRegexp("(?i)forbidden"))
}

// namespaceOwner is the cluster as somebody sees it who has every right in one namespace and none elsewhere.
func (c *cluster) namespaceOwner(t *testing.T, namespace string) *cluster {
	t.Helper()
	g := NewWithT(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}}
	g.Expect(c.Create(t.Context(), account)).To(Succeed())
	g.Expect(c.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "owner"}},
	})).To(Succeed())
	return &cluster{kubeconfig: c.accountKubeconfig(t, namespace, "owner")}
}

// accountKubeconfig writes a kubeconfig for a service account and returns its path.
func (c *cluster) accountKubeconfig(t *testing.T, namespace, name string) string {
	t.Helper()
	g := NewWithT(t)
	kubeconfig, err := clientcmd.LoadFromFile(c.kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	for _, user := range kubeconfig.AuthInfos {
		user.ClientCertificateData, user.ClientKeyData = nil, nil
		user.Token = c.accountToken(t, namespace, name)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(clientcmd.WriteToFile(*kubeconfig, path)).To(Succeed())
	return path
}

// createIntegration makes the integration "test" and returns its token.
func (c *cluster) createIntegration(t *testing.T, namespace string) (token string) {
	t.Helper()
	integration := &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"},
		Spec:       v1alpha1.WebhookIntegrationSpec{Tokens: testenv.Tokens(namespace, "test")},
	}
	NewWithT(t).Expect(c.Create(t.Context(), integration)).To(Succeed())
	return testenv.Token(namespace, "test")
}
