package action

import (
	"testing"
	"time"

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

// What is resolved need not be resolved again, unless Alertmanager does not know of it yet.
func TestAPersonEndsWhatIsKeptFiring(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	incident := &v1alpha1.Incident{Status: v1alpha1.IncidentStatus{
		State: v1alpha1.IncidentResolved, ResolvedTime: new(v1alpha1.NewTimestamp(now)),
	}}
	resolve := Action{Status: v1alpha1.AlertResolved}
	g.Expect(resolve.Unneeded(incident)).To(Equal("already resolved"))
	kept := &v1alpha1.KeptFiring{Severity: v1alpha1.SeverityError, EndTime: v1alpha1.NewTimestamp(now.Add(time.Hour))}
	incident.Status.Flapping = &v1alpha1.Flapping{KeptFiring: kept}
	g.Expect(resolve.Unneeded(incident)).To(BeEmpty())
	g.Expect(Action{Status: v1alpha1.AlertAcknowledged}.Unneeded(incident)).To(Equal("already resolved"))
	kept.EndTime = v1alpha1.NewTimestamp(now.Add(-time.Second))
	g.Expect(resolve.Unneeded(incident)).To(Equal("already resolved"))
}
