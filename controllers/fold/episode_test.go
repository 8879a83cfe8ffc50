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
		life := folding{in: Input{Incident: &v1alpha1.Incident{}}}
		life.status = &life.plan.Status
		status := life.status
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
			life.apply(receivedAlert{Alert: alert, received: now, quietSince: now, integration: "mon"})
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
		{Type: v1alpha1.TransitionSeverityChanged, Time: at, Message: "worse", Severity: v1alpha1.SeverityCritical},
	})).To(Equal([]SeverityPeriod{{Severity: v1alpha1.SeverityCritical, From: at.Time}}))
	g.Expect(SeverityPeriods([]v1alpha1.Transition{
		{Type: v1alpha1.TransitionOpened, Time: at, Message: "Opened with severity warning: x"}, // by an earlier version
	})).To(BeEmpty())
	g.Expect(SeverityPeriods([]v1alpha1.Transition{{Type: v1alpha1.TransitionResolved, Time: at}})).To(BeEmpty())
}

func TestAcknowledgedBy(t *testing.T) {
	for by, want := range map[string]string{"maria": "maria", "": "an alert"} {
		g := NewWithT(t)
		life := folding{in: Input{Incident: &v1alpha1.Incident{}}}
		life.status = &life.plan.Status
		status := life.status
		now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
		life.apply(receivedAlert{Alert: &v1alpha1.Alert{Status: v1alpha1.AlertFiring}, received: now, quietSince: now})
		g.Expect(AcknowledgedBy(status)).To(BeEmpty())
		life.apply(receivedAlert{Alert: &v1alpha1.Alert{Status: v1alpha1.AlertAcknowledged, By: by}, received: now, quietSince: now})
		g.Expect(AcknowledgedBy(status)).To(Equal(want))
	}
}

func TestAnAcknowledgementCoversNoHigherSeverity(t *testing.T) {
	ack := acknowledgingAlert()
	note := alertOf(v1alpha1.AlertNoted, v1alpha1.AlertContent{})
	note.Comment = "still looking"
	severe := func(severity v1alpha1.Severity) v1alpha1.Alert {
		return alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Severity: severity})
	}
	repeat := func(alerts ...v1alpha1.Alert) (all []v1alpha1.Alert) {
		for range v1alpha1.MaxTimeline {
			all = append(all, alerts...)
		}
		return all
	}
	for sentence, c := range map[string]struct {
		then []v1alpha1.Alert
		want bool
	}{
		"as it was":             {nil, true},
		"less severe":           {[]v1alpha1.Alert{severe("info")}, true},
		"more severe":           {[]v1alpha1.Alert{severe("critical")}, false},
		"less severe again":     {[]v1alpha1.Alert{severe("critical"), severe("warning")}, true},
		"as it was, resolved":   {[]v1alpha1.Alert{resolvingAlert()}, false},
		"more severe, resolved": {[]v1alpha1.Alert{severe("critical"), resolvingAlert()}, false},
		"critical, after so many notes that the timeline has nothing else": {append(repeat(note), severe("critical")), false},
		"critical, before so many notes":                                   {append([]v1alpha1.Alert{severe("critical")}, repeat(note)...), false},
		"critical, after flapping":                                         {append(repeat(severe("info"), severe("warning")), severe("critical")), false},
		"acknowledged once more at critical":                               {[]v1alpha1.Alert{severe("critical"), ack}, true},
		"acknowledged once more at info, then worse again":                 {[]v1alpha1.Alert{severe("info"), ack, severe("warning")}, true},
		"the acknowledgement was withdrawn":                                {[]v1alpha1.Alert{alertOf(v1alpha1.AlertUnacknowledged, v1alpha1.AlertContent{})}, false},
		"the next episode":                                                 {[]v1alpha1.Alert{resolvingAlert(), severe("warning")}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := newBench()
			b.fold(eventOf(1, append([]v1alpha1.Alert{severe("warning"), ack}, c.then...)...))
			NewWithT(t).Expect(StaysAcknowledged(b.status())).To(Equal(c.want))
		})
	}
	unknown := &v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, Acknowledgement: &v1alpha1.Acknowledgement{}}
	NewWithT(t).Expect(StaysAcknowledged(unknown)).To(BeFalse(), "at a severity that is not known")
}
