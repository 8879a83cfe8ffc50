package fold

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// Its settings are small, so all of them count for the Incidents of an integration that is too large for the memory.
func TestThePolicyOfAStubIsThatOfTheWholeIntegration(t *testing.T) {
	g := NewWithT(t)
	w := &v1alpha1.WebhookIntegration{Spec: v1alpha1.WebhookIntegrationSpec{
		AutoResolveAfter: minutes(1), Retention: minutes(2), LateFiringWindow: minutes(3), AcknowledgementExpiresAfter: minutes(4),
		ForwardAfter: &v1alpha1.ForwardAfter{Default: minutes(5)}, Flapping: &v1alpha1.FlappingPolicy{KeepFiringFor: minutes(6)},
		ObjectLabels: []string{"team"},
	}}
	whole := PolicyOf(w, nil)
	integrations.MakeStub(w, false)
	stub := PolicyOf(w, nil)
	g.Expect(stub.Stub).To(BeTrue())
	stub.Stub = whole.Stub
	g.Expect(stub).To(Equal(whole))
}
