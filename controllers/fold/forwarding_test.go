package fold_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

func TestForwardingOf(t *testing.T) {
	now := time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
	earlier := v1alpha1.NewTimestamp(now.Add(-time.Hour))
	before := func(reason v1alpha1.ForwardingReason, severity v1alpha1.Severity) *v1alpha1.Forwarding {
		return &v1alpha1.Forwarding{Reason: reason, Severity: severity, Time: earlier}
	}
	held := v1alpha1.IncidentStatus{
		OpenedTime: &earlier, Episode: &v1alpha1.Episode{ForwardTime: new(v1alpha1.NewTimestamp(now.Add(time.Minute)))},
	}
	posted := fold.KnownForwarding{Reason: v1alpha1.ForwardingPosted, Severity: "error", Alertmanagers: 2}
	for sentence, test := range map[string]struct {
		status   v1alpha1.IncidentStatus
		silenced bool
		known    fold.KnownForwarding
		reason   v1alpha1.ForwardingReason // empty: none
		severity v1alpha1.Severity
		isNew    bool // the reason is
	}{
		"posted for the first time": {known: posted, reason: "Posted", severity: "error", isNew: true},
		"posted again":              {status: v1alpha1.IncidentStatus{Forwarding: before("Posted", "error")}, known: posted, reason: "Posted", severity: "error"},
		"posted with another severity": {
			status: v1alpha1.IncidentStatus{Forwarding: before("Posted", "info")}, known: posted, reason: "Posted", severity: "error",
		},
		"a silence covers it": {silenced: true, known: posted, reason: "Silenced", severity: "error", isNew: true},
		"a silence that covers it, and a new leader": {
			status: v1alpha1.IncidentStatus{Forwarding: before("Silenced", "info")}, silenced: true, reason: "Silenced", severity: "info",
		},
		"a silence that has ended, and a new leader": {
			status: v1alpha1.IncidentStatus{Forwarding: before("Silenced", "info")}, reason: "Posted", severity: "info", isNew: true,
		},
		"it is held back":                          {status: held, known: posted, reason: "Held", isNew: true},
		"what is filtered is not held back":        {status: held, known: fold.KnownForwarding{Reason: "Filtered"}, reason: "Filtered", isNew: true},
		"what is never forwarded is not held back": {status: held, known: fold.KnownForwarding{Reason: "Off"}, reason: "Off", isNew: true},
		"what an Alertmanager has sent is not held back": {
			status: held, known: fold.KnownForwarding{Reason: "FromAlertmanager"}, reason: "FromAlertmanager", isNew: true,
		},
		"what is not posted is not silenced": {silenced: true, known: fold.KnownForwarding{Reason: "Filtered"}, reason: "Filtered", isNew: true},
		"a window":                           {status: v1alpha1.IncidentStatus{Mute: &v1alpha1.Mute{}}, known: posted, reason: "Muted", isNew: true},
		"a window, and nothing is forwarded at all": {
			status: v1alpha1.IncidentStatus{Mute: &v1alpha1.Mute{}}, known: fold.KnownForwarding{Disabled: true}, reason: "Muted", isNew: true,
		},
		"a window of one that people were told of": {
			status: v1alpha1.IncidentStatus{Mute: &v1alpha1.Mute{ForwardedSeverity: "error"}}, known: posted,
			reason: "Posted", severity: "error", isNew: true,
		},
		"a window that is over, and nothing is known yet": {status: v1alpha1.IncidentStatus{Forwarding: before("Muted", "")}},
		"nothing is forwarded any more": {
			status: v1alpha1.IncidentStatus{Forwarding: before("Posted", "info")}, known: fold.KnownForwarding{Disabled: true},
		},
		"nothing is known": {},
		"resolved": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentResolved, Forwarding: before("Failing", "")}, known: posted,
			reason: "Failing",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			if test.status.State == "" {
				test.status.State = v1alpha1.IncidentOpen
			}
			if test.silenced {
				test.status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSilenced, Status: metav1.ConditionTrue}}
			}
			next := fold.ForwardingOf(&test.status, test.known, now)
			if test.reason == "" {
				g.Expect(next).To(BeNil())
				return
			}
			g.Expect(next).NotTo(BeNil())
			g.Expect(next.Reason).To(Equal(test.reason))
			g.Expect(next.Severity).To(Equal(test.severity))
			g.Expect(next.Time.Equal(now)).To(Equal(test.isNew), "since %s", next.Time)
		})
	}
}
