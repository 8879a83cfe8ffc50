package config

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// checkAdmissionPolicy writes AlertEvents as somebody with every right in the namespace, and as the manager.
func (c *cluster) checkAdmissionPolicy(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	const alice = "alice@example.com"
	g.Expect(c.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "alice"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: alice}},
	})).To(Succeed())
	c.checkOwnName(t, namespace, alice)
	for sentence, test := range map[string]struct {
		change func(*v1alpha1.AlertEvent)
		denied string // empty: allowed
	}{
		"one's own name": {func(e *v1alpha1.AlertEvent) { e.Spec.Report.By = alice }, ""},
		"no name":        {func(*v1alpha1.AlertEvent) {}, ""},
		"another's name": {func(e *v1alpha1.AlertEvent) { e.Spec.Report.By = "bob" }, "by must be your own user name"},
		"alerts":         {func(e *v1alpha1.AlertEvent) { e.Spec.Report, e.Spec.Alerts = nil, `[{"by":"bob"}]` }, ""},
		"a finalizer":    {func(e *v1alpha1.AlertEvent) { e.Finalizers = []string{"example.com/stay"} }, "no finalizers"},
		"an owner":       {func(e *v1alpha1.AlertEvent) { e.OwnerReferences = owner() }, "no owners"},
		"a label":        {func(e *v1alpha1.AlertEvent) { e.Labels = map[string]string{"a": "b"} }, ""},
		"many bytes":     {func(e *v1alpha1.AlertEvent) { e.Annotations = note(64<<10 - 1) }, ""},
		"too many bytes": {func(e *v1alpha1.AlertEvent) { e.Annotations = note(64 << 10) }, "at most 64 KiB"},
		"a mark":         {func(e *v1alpha1.AlertEvent) { e.Annotations = settled() }, "only Tocsin may set the annotation"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			event := resolving(namespace)
			test.change(event)
			output, err := c.createAs(t, alice, event)
			if test.denied == "" {
				g.Expect(err).NotTo(HaveOccurred(), output)
			} else {
				g.Expect(err).To(HaveOccurred())
				g.Expect(output).To(ContainSubstring(test.denied))
			}
			output, err = c.createAs(t, "system:serviceaccount:"+namespace+":tocsin", event)
			g.Expect(err).NotTo(HaveOccurred(), "the manager may: "+output)
			output, err = c.createAs(t, "system:serviceaccount:"+namespace+":tocsin2", event)
			g.Expect(err).To(HaveOccurred(), output)
		})
	}
	t.Run("changes", func(t *testing.T) { c.checkPolicyOnUpdates(t, namespace, alice) })
	if namespace == systemNamespace {
		t.Run("the manager works on", func(t *testing.T) { c.checkManagerUnderPolicy(t) })
	}
}

// checkOwnName waits until the API server has heard of the policy.
func (c *cluster) checkOwnName(t *testing.T, namespace, user string) {
	t.Helper()
	event := resolving(namespace)
	event.Spec.Report.By = "bob"
	NewWithT(t).Eventually(func() string {
		output, _ := c.createAs(t, user, event)
		return output
	}, asLongAsItTakes, "200ms").Should(ContainSubstring("by must be your own user name"))
	NewWithT(t).Eventually(func() error { // and of this namespace's service account
		_, err := c.createAs(t, "system:serviceaccount:"+namespace+":tocsin", event)
		return err
	}, asLongAsItTakes, "200ms").Should(Succeed())
}

// checkPolicyOnUpdates changes what is there already, as its owner and as the garbage collector do.
func (c *cluster) checkPolicyOnUpdates(t *testing.T, namespace, user string) {
	t.Helper()
	g := NewWithT(t)
	event := resolving(namespace)
	event.Spec.Report.By, event.Finalizers, event.Annotations = "bob", []string{"example.com/a", "example.com/b"}, settled()
	maps.Copy(event.Annotations, note(100<<10))
	output, err := c.createAs(t, "system:serviceaccount:"+namespace+":tocsin", event, "--dry-run=none", "-o", "name")
	g.Expect(err).NotTo(HaveOccurred(), output)
	patch := func(text string) (string, error) {
		return c.tryKubectl(t, "-n", namespace, "patch", "alertevent", "policy", "--as="+user, "--type=merge", "-p", text)
	}
	for _, denied := range []string{
		`{"metadata":{"finalizers":["example.com/a","example.com/b","example.com/c"]}}`,
		`{"metadata":{"annotations":{"tocsin.dev/settled":null}}}`,
		`{"metadata":{"annotations":{"more":"than before"}}}`,
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"1"}]}}`,
	} {
		output, err := patch(denied)
		g.Expect(err).To(HaveOccurred(), denied)
		g.Expect(output).To(ContainSubstring("tocsin-alertevents"))
	}
	for _, allowed := range []string{
		`{"metadata":{"annotations":{"n":"less than before"}}}`,
		`{"metadata":{"annotations":{"example.com/note":"x"}}}`, `{"metadata":{"finalizers":["example.com/a"]}}`,
	} {
		output, err := patch(allowed)
		g.Expect(err).NotTo(HaveOccurred(), output)
	}
	output, err = c.tryKubectl(t, "-n", namespace, "delete", "alertevent", "policy", "--as="+user, "--cascade=foreground", "--wait=false")
	g.Expect(err).NotTo(HaveOccurred(), output)
	output, err = patch(`{"metadata":{"finalizers":[]}}`)
	g.Expect(err).NotTo(HaveOccurred(), output)
}

// checkManagerUnderPolicy runs the manager, which stores, packs, folds and releases.
func (c *cluster) checkManagerUnderPolicy(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	const namespace = "under-policy"
	c.kubectl(t, "create", "namespace", namespace)
	manager := c.startManager(t, filepath.Join(t.TempDir(), "log"), systemNamespace, "--metrics-secure", "--leader-elect")
	token := c.createIntegration(t, namespace)
	g.Eventually(post).WithArguments(t.Context(), manager.WebhookURL+token, `[{"dedup_key":"a"},{"dedup_key":"b"}]`).
		WithTimeout(asLongAsItTakes).Should(Equal(http.StatusAccepted))
	g.Eventually(func() (int, error) {
		var incidents v1alpha1.IncidentList
		err := c.List(t.Context(), &incidents, client.InNamespace(namespace))
		return len(incidents.Items), err
	}, asLongAsItTakes, "50ms").Should(Equal(2))
	g.Expect(manager.Stop()).To(Succeed())
}

// createAs has a user create an object, by default without storing it.
func (c *cluster) createAs(t *testing.T, user string, object client.Object, args ...string) (string, error) {
	t.Helper()
	g := NewWithT(t)
	encoded, err := yaml.Marshal(object)
	g.Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(filepath.Dir(c.kubeconfig), "object.yaml") // a comma in the name would be two files to kubectl
	g.Expect(os.WriteFile(file, encoded, 0o600)).To(Succeed())
	return c.tryKubectl(t, append([]string{"create", "--dry-run=server", "-f", file, "--as=" + user}, args...)...)
}

// resolving is an AlertEvent as somebody makes one by hand.
func resolving(namespace string) *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "AlertEvent"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "policy"},
		Spec:       v1alpha1.AlertEventSpec{IntegrationName: "test", Report: &v1alpha1.Report{Status: v1alpha1.AlertResolved, DedupKey: "a"}},
	}
}

func owner() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "1"}}
}

// note is an annotation with so many bytes and one more, its name.
func note(bytes int) map[string]string { return map[string]string{"n": strings.Repeat("x", bytes)} }

func settled() map[string]string { return map[string]string{v1alpha1.SettledAnnotation: "1/*"} }
