package app

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// TestNoAlertIsAcceptedUnderOlderDefinitions starts a manager in a cluster with the CustomResourceDefinitions of a version
// before, which did not know summaries. Nor does it lead: what is stored is folded once they are new enough.
func TestNoAlertIsAcceptedUnderOlderDefinitions(t *testing.T) {
	g := NewWithT(t)
	scheme := testenv.Scheme()
	g.Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	c, err := client.New(config, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "alertevents.tocsin.dev"}}
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(definition), definition)).To(Succeed())
	current := definition.DeepCopy()
	apply := func(spec apiextensionsv1.CustomResourceDefinitionSpec) {
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(definition), definition)).To(Succeed())
		definition.Spec = spec
		g.Expect(c.Update(t.Context(), definition)).To(Succeed())
	}
	older := definition.DeepCopy().Spec
	delete(older.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties, "summary")
	apply(older)

	p := startProcess(t, config.Host)
	g.Eventually(func() string { _, text := p.ready(); return text }, "20s", "50ms").Should(ContainSubstring(
		"the CustomResourceDefinition alertevents.tocsin.dev is older than this manager and lacks spec.summary: apply config/crd"))
	code, problem := p.post("one")
	g.Expect(code).To(Equal(http.StatusServiceUnavailable))
	g.Expect(problem).To(Equal("tag:tocsin.dev,2026:not-ready"))
	g.Expect(c.Create(t.Context(), alertEvent(p.namespace, "by-hand", "stored", v1alpha1.AlertFiring, 0))).To(Succeed())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: leaseName}}
	g.Consistently(func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
	}, "3s", "100ms").Should(BeTrue(), "it takes no lease")
	g.Expect(p.state(t.Context(), "stored")).To(BeEmpty())

	apply(current.Spec)
	g.Eventually(func() int { code, _ := p.post("one"); return code }, "20s", "50ms").Should(Equal(http.StatusAccepted))
	g.Eventually(func() int { code, _ := p.ready(); return code }, "5s", "50ms").Should(Equal(http.StatusOK))
	g.Eventually(func() v1alpha1.IncidentState { return p.state(t.Context(), "stored") }, "20s", "50ms").Should(Equal(v1alpha1.IncidentOpen))
	p.expectEnd(g)
}
