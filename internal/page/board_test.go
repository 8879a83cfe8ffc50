package page

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestARowTellsThatPeopleAreNotTold(t *testing.T) {
	g := NewWithT(t)
	incident := &v1alpha1.Incident{}
	incident.Status.State = v1alpha1.IncidentOpen
	g.Expect(makeRow(incident).Untold).To(BeEmpty())
	incident.Status.Forwarding = &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingPosted}
	g.Expect(makeRow(incident).Untold).To(BeEmpty())
	incident.Status.Forwarding.Reason = v1alpha1.ForwardingMuted
	g.Expect(makeRow(incident).Untold).To(Equal("Muted"))
	incident.Status.State = v1alpha1.IncidentResolved
	g.Expect(makeRow(incident).Untold).To(BeEmpty(), "they were not, when it was resolved")
}
