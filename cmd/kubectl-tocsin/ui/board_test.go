package ui

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestARowTellsThatAnIncidentIsMuted(t *testing.T) {
	g := NewWithT(t)
	incident := &v1alpha1.Incident{}
	incident.Status.State = v1alpha1.IncidentOpen
	g.Expect(makeRow(incident).Muted).To(BeFalse())
	incident.Status.Mute = &v1alpha1.Mute{Window: "db"}
	g.Expect(makeRow(incident).Muted).To(BeTrue())
	incident.Status.State = v1alpha1.IncidentResolved
	g.Expect(makeRow(incident).Muted).To(BeFalse(), "it was, when it was resolved")
}
