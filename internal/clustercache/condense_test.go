package clustercache

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// TestMetadataOfIntegrationsTakesLittleMemory has what a tenant can put into the metadata of an integration.
func TestMetadataOfIntegrationsTakesLittleMemory(t *testing.T) {
	g := NewWithT(t)
	w := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "prometheus", UID: "u", Generation: 3, ResourceVersion: "7",
		Annotations:   map[string]string{"large": strings.Repeat("x", 256<<10)},
		Labels:        map[string]string{},
		Finalizers:    []string{"example.com/" + strings.Repeat("x", 60)},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}, Spec: v1alpha1.WebhookIntegrationSpec{Preset: "auto"}}
	for i := range 3000 {
		w.Labels[fmt.Sprintf("example.com/%04d", i)] = strings.Repeat("x", 63)
	}
	condensed := NewIntegrations(1)
	_, _ = condensed.Condense(w)
	g.Expect(w.Labels).To(HaveLen(64))
	g.Expect(w.Labels).To(HaveKey("example.com/0063"))
	before := w.DeepCopy()
	_, _ = condensed.Condense(w)
	g.Expect(w).To(Equal(before), "again")
	w.Labels = nil
	g.Expect(w).To(Equal(&v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "prometheus", UID: "u", Generation: 3, ResourceVersion: "7"},
		Spec:       v1alpha1.WebhookIntegrationSpec{Preset: "auto"},
	}))
}
