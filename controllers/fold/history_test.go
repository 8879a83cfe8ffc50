package fold

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Property: the timeline of any sequence of alerts tells the severities that the Incident had, and when.
func TestSeverityPeriodsAreThoseOfTheFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		status := v1alpha1.IncidentStatus{}
		life := lifecycle{status: &status, generation: 1}
		var want []SeverityPeriod
		now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
		for range rapid.IntRange(1, 15).Draw(t, "alerts") {
			now = now.Add(time.Minute)
			before, was := status.State, status.Alert.Severity
			alert := &v1alpha1.Alert{DedupKey: "k", Status: rapid.SampledFrom([]v1alpha1.AlertStatus{
				v1alpha1.AlertFiring, v1alpha1.AlertResolved, v1alpha1.AlertAcknowledged,
			}).Draw(t, "status")}
			alert.Severity = rapid.SampledFrom([]v1alpha1.Severity{"", "info", "warning", "critical"}).Draw(t, "severity")
			alert.Title = rapid.SampledFrom([]string{"", "disk", "from a to b: with severity info: "}).Draw(t, "title")
			life.apply(receivedAlert{Alert: alert, received: now, heard: now, integration: "mon"})
			ended := before == v1alpha1.IncidentOpen &&
				(status.State != v1alpha1.IncidentOpen || status.Alert.Severity != was)
			if ended {
				want[len(want)-1].To = now
			}
			if status.State == v1alpha1.IncidentOpen && (before != v1alpha1.IncidentOpen || status.Alert.Severity != was) {
				want = append(want, SeverityPeriod{Severity: status.Alert.Severity, From: now})
			}
		}
		g.Expect(SeverityPeriods(status.Timeline)).To(Equal(want))
	})
}

func TestSeverityPeriodsOfACutTimeline(t *testing.T) {
	g := NewWithT(t)
	at := v1alpha1.NewTimestamp(time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC))
	g.Expect(SeverityPeriods([]v1alpha1.Transition{
		{Type: v1alpha1.TransitionSeverityChanged, Time: at, Message: "Severity changed from warning to critical"},
	})).To(Equal([]SeverityPeriod{
		{Severity: v1alpha1.SeverityWarning, To: at.Time},
		{Severity: v1alpha1.SeverityCritical, From: at.Time},
	}))
	g.Expect(SeverityPeriods([]v1alpha1.Transition{{Type: v1alpha1.TransitionResolved, Time: at}})).To(BeEmpty())
}

func TestAcknowledgedBy(t *testing.T) {
	for by, want := range map[string]string{"maria": "maria", "": "an alert"} {
		g := NewWithT(t)
		status := v1alpha1.IncidentStatus{}
		life := lifecycle{status: &status, generation: 1}
		now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
		life.apply(receivedAlert{Alert: &v1alpha1.Alert{Status: v1alpha1.AlertFiring}, received: now, heard: now})
		g.Expect(AcknowledgedBy(&status)).To(BeEmpty())
		life.apply(receivedAlert{Alert: &v1alpha1.Alert{Status: v1alpha1.AlertAcknowledged, By: by}, received: now, heard: now})
		g.Expect(AcknowledgedBy(&status)).To(Equal(want))
	}
}
