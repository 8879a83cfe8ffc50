package action

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// The Incident is as it was, but begins now: a firing that began in the episode that has ended counts as a late one.
func TestReopenTakesTheContentAndNotTheTimes(t *testing.T) {
	g := NewWithT(t)
	incident := &v1alpha1.Incident{Spec: v1alpha1.IncidentSpec{IntegrationName: "mon", DedupKey: "disk"}}
	incident.Namespace, incident.Name = "shop", v1alpha1.IncidentName("mon", "disk")
	incident.Status.State = v1alpha1.IncidentOpen
	reopen := Action{Status: v1alpha1.AlertFiring, Message: "wrong one"}
	g.Expect(reopen.Unneeded(incident)).To(Equal("already open"))
	incident.Status.State = v1alpha1.IncidentResolved
	g.Expect(reopen.Unneeded(incident)).To(BeEmpty())
	spec := reopen.Event(incident, "maria").Spec
	g.Expect(spec).To(Equal(v1alpha1.AlertEventSpec{IntegrationName: "mon", Report: &v1alpha1.Report{
		Status: v1alpha1.AlertFiring, IncidentName: incident.Name, DedupKey: "disk", By: "maria", Comment: "wrong one",
	}}))
}
