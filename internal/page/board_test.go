package page

import (
	"fmt"
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

// A search would find an incident, or not, by chance otherwise.
func TestTheSameLabelsCanBeSearchedEachTime(t *testing.T) {
	g := NewWithT(t)
	incident := &v1alpha1.Incident{}
	incident.Status.Alert.Labels = v1alpha1.Texts{}
	for i := range 3 * maxRowLabels {
		incident.Status.Alert.Labels[fmt.Sprintf("label-%03d", i)] = "x"
	}
	labels := makeRow(incident).Labels
	g.Expect(labels).To(HaveLen(maxRowLabels))
	for i := range maxRowLabels {
		g.Expect(labels).To(HaveKey(fmt.Sprintf("label-%03d", i)))
	}
}
