package fold

import (
	"math"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestDeadline(t *testing.T) {
	hour := Policy{AutoResolveAfter: time.Hour, Retention: 2 * time.Hour}
	for sentence, c := range map[string]struct {
		status v1alpha1.IncidentStatus
		policy Policy
		want   time.Time // zero: never
	}{
		"Open: autoResolveAfter from the newest alert": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, OpenedTime: minuteStamp(0), LastAlertTime: minuteStamp(5)},
			policy: hour, want: minute(65),
		},
		"Open without lastAlertTime: from the opening": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, OpenedTime: minuteStamp(1)}, policy: hour, want: minute(61),
		},
		"Open without any time: from the creation": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen}, policy: hour, want: minute(59),
		},
		"Open without autoResolveAfter: never": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, LastAlertTime: minuteStamp(5)},
			policy: Policy{Retention: time.Hour},
		},
		"Resolved: retention from the resolve, whatever came later": {
			status: v1alpha1.IncidentStatus{
				State: v1alpha1.IncidentResolved, ResolvedTime: minuteStamp(5), LastAlertTime: minuteStamp(50),
			},
			policy: hour, want: minute(125),
		},
		"Resolved without resolvedTime: from the newest alert": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentResolved, LastAlertTime: minuteStamp(50)},
			policy: hour, want: minute(170),
		},
		"Resolved with retention 0: at once": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentResolved, ResolvedTime: minuteStamp(5)}, want: minute(5),
		},
		"Resolved with a retention below the window for late firings: at its end": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentResolved, ResolvedTime: minuteStamp(5)},
			policy: Policy{Retention: time.Minute, LateFiringWindow: 2 * time.Minute}, want: minute(7),
		},
		"created and not yet written: ten minutes from the creation": {policy: hour, want: minute(9)},
		"Open, and listening since after the newest alert: autoResolveAfter from then": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, LastAlertTime: minuteStamp(5)},
			policy: Policy{AutoResolveAfter: time.Hour, QuietFrom: minute(30)}, want: minute(90),
		},
		"Open, and listening since before the newest alert: autoResolveAfter from the alert": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, LastAlertTime: minuteStamp(5)},
			policy: Policy{AutoResolveAfter: time.Hour, QuietFrom: minute(4)}, want: minute(65),
		},
		"Open, and a heartbeat of the sender is missed: never": {
			status: v1alpha1.IncidentStatus{
				State: v1alpha1.IncidentOpen, LastAlertTime: minuteStamp(5), Expiry: &metav1.Duration{Duration: time.Hour},
			},
			policy: Policy{AutoResolveAfter: time.Hour, Sender: Sender{Missing: true}},
		},
		"Open, of a heartbeat: when it is heard": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, LastAlertTime: minuteStamp(5)},
			policy: Policy{AutoResolveAfter: time.Hour, Sender: Sender{Keys: []string{"key"}}},
		},
		"Open, and a heartbeat was missed: autoResolveAfter from when it was heard again": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, LastAlertTime: minuteStamp(5)},
			policy: Policy{AutoResolveAfter: time.Hour, Sender: Sender{PresentFrom: minute(30)}}, want: minute(90),
		},
		"Open with an expiry, and a heartbeat was missed: the expiry from when it was heard again": {
			status: v1alpha1.IncidentStatus{
				State: v1alpha1.IncidentOpen, LastAlertTime: minuteStamp(5), Expiry: &metav1.Duration{Duration: time.Hour},
			},
			policy: Policy{Sender: Sender{PresentFrom: minute(30)}}, want: minute(90),
		},
		"Resolved, the integration gone: the retention that it had": {
			status: v1alpha1.IncidentStatus{
				State: v1alpha1.IncidentResolved, ResolvedTime: minuteStamp(5), Retention: &metav1.Duration{Duration: time.Hour},
			},
			policy: Policy{Absent: true, Retention: time.Minute}, want: minute(65),
		},
		"Resolved, the integration gone, no retention noted: the default": {
			status: v1alpha1.IncidentStatus{State: v1alpha1.IncidentResolved, ResolvedTime: minuteStamp(5)},
			policy: Policy{Absent: true}, want: minute(5).Add(DefaultRetention),
		},
		"Resolved, the integration gone when the time was up: the default from then": {
			status: v1alpha1.IncidentStatus{
				State: v1alpha1.IncidentResolved, ResolvedTime: minuteStamp(5), Retention: &metav1.Duration{Duration: time.Hour},
				OrphanedTime: minuteStamp(70),
			},
			policy: Policy{Absent: true}, want: minute(70).Add(DefaultRetention),
		},
		"Resolved, the integration back: its retention, whatever was noted": {
			status: v1alpha1.IncidentStatus{
				State: v1alpha1.IncidentResolved, ResolvedTime: minuteStamp(5), Retention: &metav1.Duration{Duration: time.Hour},
				OrphanedTime: minuteStamp(70),
			},
			policy: hour, want: minute(125),
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			incident := &v1alpha1.Incident{Spec: v1alpha1.IncidentSpec{DedupKey: "key"}, Status: c.status}
			incident.CreationTimestamp = metav1.NewTime(minute(-1))
			when, ok := Deadline(incident, c.policy)
			g.Expect(ok).To(Equal(!c.want.IsZero()))
			if ok {
				g.Expect(when).To(BeTemporally("==", c.want))
			}
		})
	}
	t.Run("the longest durations do not wrap around", func(t *testing.T) {
		forever := Policy{AutoResolveAfter: math.MaxInt64, Retention: math.MaxInt64}
		for _, state := range []v1alpha1.IncidentState{v1alpha1.IncidentOpen, v1alpha1.IncidentResolved} {
			incident := &v1alpha1.Incident{Status: v1alpha1.IncidentStatus{
				State: state, LastAlertTime: minuteStamp(0), ResolvedTime: minuteStamp(0),
			}}
			when, ok := Deadline(incident, forever)
			NewWithT(t).Expect(ok && when.After(minute(0))).To(BeTrue())
		}
	})
}

func TestAutoResolve(t *testing.T) {
	open := func(after time.Duration) *foldBench {
		bench := newBench()
		bench.policy.AutoResolveAfter = after
		bench.now = minute(1)
		bench.fold(eventOf(1, firingAlert()))
		return bench
	}
	t.Run("not before the deadline", func(t *testing.T) {
		bench := open(time.Hour)
		bench.now = minute(61).Add(-time.Microsecond)
		NewWithT(t).Expect(bench.fold().Write).To(BeFalse())
	})
	t.Run("not when the integration asks for none", func(t *testing.T) {
		bench := open(0)
		bench.now = minute(1e6)
		NewWithT(t).Expect(bench.fold().Write).To(BeFalse())
	})
	t.Run("at the deadline, without counting an alert", func(t *testing.T) {
		g := NewWithT(t)
		bench := open(time.Hour)
		bench.now = minute(61)
		p := bench.fold()
		s := bench.status()
		g.Expect([]bool{p.Write, p.Urgent}).To(Equal([]bool{true, true}))
		g.Expect(p.Transitions).To(Equal([]v1alpha1.Transition{
			{Type: v1alpha1.TransitionResolved, Time: *minuteStamp(61), Message: "Resolved after 1h0m0s without an alert"},
		}))
		g.Expect(s.State).To(Equal(v1alpha1.IncidentResolved))
		g.Expect(s.ResolvedTime.Time).To(Equal(minute(61)))
		g.Expect(s.AlertCount).To(BeEquivalentTo(1))
		g.Expect(s.LastAlertTime.Time).To(Equal(minute(1)))
		resolved := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionResolved)
		g.Expect(resolved.Reason).To(Equal(v1alpha1.ReasonAutoResolved))
		g.Expect(bench.fold().Write).To(BeFalse(), "once")
	})
	t.Run("an alert of the same fold puts it off", func(t *testing.T) {
		g := NewWithT(t)
		bench := open(time.Hour)
		bench.now = minute(61)
		p := bench.fold(eventOf(60, firingAlert()))
		g.Expect(p.Status.State).To(Equal(v1alpha1.IncidentOpen))
	})
	t.Run("a leader that is not certain of the time waits", func(t *testing.T) {
		bench := open(time.Hour)
		bench.now, bench.policy.QuietFrom, bench.policy.Uncertain = minute(-600), minute(-600), true
		NewWithT(t).Expect(bench.fold().Write).To(BeFalse())
	})
	t.Run("what fires after it reopens, even with the startTime of before", func(t *testing.T) {
		g := NewWithT(t)
		bench := open(time.Hour)
		still := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: minuteStamp(0)})
		bench.fold(eventOf(2, still))
		bench.now = minute(62)
		bench.fold()
		g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentResolved))
		p := bench.fold(eventOf(63, still))
		g.Expect(resultsOf(p)).To(Equal([]string{ResultReopened}))
	})
}

// A job that has failed is not well again because autoResolveAfter has passed: its Incident ends when the heartbeat is heard.
func TestTheIncidentOfAHeartbeatDoesNotEndForItsAge(t *testing.T) {
	for key, want := range map[string]v1alpha1.IncidentState{
		testKey: v1alpha1.IncidentOpen, "another": v1alpha1.IncidentResolved,
	} {
		t.Run("with the heartbeat "+key, func(t *testing.T) {
			bench := newBench()
			bench.policy.AutoResolveAfter, bench.policy.Sender.Keys = time.Minute, []string{key}
			bench.fold(eventOf(0, firingAlert()))
			bench.now = minute(60)
			bench.fold()
			NewWithT(t).Expect(bench.status().State).To(Equal(want))
		})
	}
}
