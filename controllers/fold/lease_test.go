package fold

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// leasedAlert is a firing alert as Prometheus sends it: it began at a time and is valid until another, by the sender's clock.
func leasedAlert(starts, until time.Time) v1alpha1.Alert {
	alert := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: timestamp(starts)})
	alert.LeaseEndTime = timestamp(until)
	return alert
}

func TestLeaseOf(t *testing.T) {
	const lease, ahead = 4 * time.Minute, time.Hour
	for sentence, c := range map[string]struct {
		starts, until time.Time // by the sender's clock
		want          time.Duration
	}{
		"a new alert: from startTime to the end":       {minute(10), minute(14), lease},
		"an old alert: from the receipt, and a minute": {minute(-600), minute(14), lease + time.Minute},
		"without startTime: from the receipt, and a minute": {
			time.Time{}, minute(14), lease + time.Minute},
		"the sender's clock an hour ahead, a new alert: not an hour longer": {
			minute(10).Add(ahead), minute(14).Add(ahead), lease},
		"the sender's clock an hour ahead, an old alert: at most an hour longer": {
			minute(-600).Add(ahead), minute(14).Add(ahead), lease + time.Minute + ahead},
		"the sender's clock three minutes behind, a new alert: not less than a minute": {
			minute(7), minute(11), 2 * time.Minute},
		"a tiny lease: a minute":                 {minute(10), minute(10).Add(time.Second), time.Minute},
		"an end that has passed: a minute":       {minute(0), minute(5), time.Minute},
		"an end before the start: as without it": {minute(20), minute(14), lease + time.Minute},
		"a huge lease: a day":                    {minute(10), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 24 * time.Hour},
	} {
		t.Run(sentence, func(t *testing.T) {
			alert := leasedAlert(c.starts, c.until)
			if c.starts.IsZero() {
				alert.StartTime = nil
			}
			got := leaseOf(receivedAlert{Alert: &alert, received: minute(10), heard: minute(10)})
			NewWithT(t).Expect(got.Duration).To(Equal(c.want))
		})
	}
}

// The replica that received the alert has a wrong clock: what counts is when the API server stored the alert.
func TestALeaseDoesNotDependOnTheReplicasClock(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		g := NewWithT(t)
		bench := newBench()
		event := eventOf(10, leasedAlert(minute(-600), minute(14)))
		event.Spec.ReceivedTime = *timestamp(minute(10).Add(skew))
		bench.fold(event)
		g.Expect(bench.status().Lease.Duration).To(BeNumerically("~", 5*time.Minute, time.Minute), "%s", skew)
	}
}

func TestExpiry(t *testing.T) {
	open := func() *foldBench {
		bench := newBench()
		bench.now = minute(1)
		bench.fold(eventOf(1, leasedAlert(minute(1), minute(5))))
		return bench
	}
	reason := func(b *foldBench) string {
		return meta.FindStatusCondition(b.status().Conditions, v1alpha1.ConditionResolved).Reason
	}
	t.Run("not before the end of the lease", func(t *testing.T) {
		bench := open()
		bench.now = minute(5).Add(-time.Microsecond)
		NewWithT(t).Expect(bench.fold().Write).To(BeFalse())
	})
	t.Run("at the end of the lease, without counting an alert", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.now = minute(5)
		p := bench.fold()
		g.Expect([]bool{p.Write, p.Urgent, p.AutoResolved}).To(Equal([]bool{true, true, true}))
		g.Expect(p.Transitions).To(Equal([]v1alpha1.Transition{{
			Type: v1alpha1.TransitionResolved, Time: *minuteStamp(5),
			Message: "Expired: the sender did not repeat the alert for 4m0s",
		}}))
		g.Expect(reason(bench)).To(Equal(v1alpha1.ReasonExpired))
		g.Expect(bench.status().AlertCount).To(BeEquivalentTo(1))
		g.Expect(bench.status().Lease).To(BeNil())
		g.Expect(bench.fold().Write).To(BeFalse(), "once")
	})
	t.Run("a repetition renews it, however late it is folded", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.now = minute(60)
		bench.fold(eventOf(4, leasedAlert(minute(1), minute(8))), eventOf(59, leasedAlert(minute(1), minute(63))))
		g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentOpen))
		bench.now = minute(63)
		g.Expect(bench.fold().Write).To(BeFalse())
		bench.now = minute(64)
		bench.fold()
		g.Expect(reason(bench)).To(Equal(v1alpha1.ReasonExpired))
	})
	t.Run("not while nobody listened", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.now, bench.policy.QuietFrom = minute(60), minute(57)
		g.Expect(bench.fold().Write).To(BeFalse())
		bench.now = minute(61)
		g.Expect(bench.fold().AutoResolved).To(BeTrue())
	})
	t.Run("not while the integration accepted no alerts", func(t *testing.T) {
		bench := open()
		bench.now, bench.policy.AcceptingFrom = minute(60), minute(57)
		NewWithT(t).Expect(bench.fold().Write).To(BeFalse())
	})
	t.Run("not without the integration: its sender cannot renew the lease", func(t *testing.T) {
		bench := open()
		bench.now, bench.policy.Absent = minute(60), true
		NewWithT(t).Expect(bench.fold().AutoResolved).To(BeFalse())
	})
	t.Run("autoResolveAfter ends it earlier", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.now, bench.policy.AutoResolveAfter = minute(3), 2*time.Minute
		bench.fold()
		g.Expect(reason(bench)).To(Equal(v1alpha1.ReasonAutoResolved))
	})
	t.Run("an alert without an end of validity has no lease", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.fold(eventOf(2, firingAlert()))
		bench.now = minute(6000)
		g.Expect(bench.fold().Write).To(BeFalse())
	})
	t.Run("a resolve ends the lease, and a late lease of a resolve counts for nothing", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		resolve := leasedAlert(minute(1), minute(900))
		resolve.Status, resolve.EndTime = v1alpha1.AlertResolved, minuteStamp(2)
		bench.fold(eventOf(2, resolve))
		g.Expect(reason(bench)).To(Equal(v1alpha1.ReasonResolvedByAlert))
		g.Expect(bench.status().Lease).To(BeNil())
	})
	t.Run("what fires after it reopens, even with the startTime of before", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.now = minute(5)
		bench.fold()
		p := bench.fold(eventOf(6, leasedAlert(minute(1), minute(10))))
		g.Expect(resultsOf(p)).To(Equal([]string{ResultReopened}))
		g.Expect(bench.status().Lease).NotTo(BeNil())
	})
	t.Run("a lease from another hand is bounded too", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.incident.Status.Lease = &metav1.Duration{Duration: time.Nanosecond}
		bench.now = minute(1).Add(59 * time.Second)
		g.Expect(bench.fold().Write).To(BeFalse())
	})
}

func TestPolicyOfAnIntegrationThatAcceptsNoAlerts(t *testing.T) {
	g := NewWithT(t)
	none := func(string) (time.Duration, bool) { return 0, false }
	integration := &v1alpha1.WebhookIntegration{}
	g.Expect(PolicyOf(integration, none).Refusing).To(BeFalse(), "without tokens, alerts come by other ways")
	integration.Spec.Tokens = []v1alpha1.Token{{}}
	g.Expect(PolicyOf(integration, none).Refusing).To(BeTrue(), "it was restored, and its tokens are not checked yet")
	integration.Spec.Tokens = nil
	meta.SetStatusCondition(&integration.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoValidToken,
	})
	g.Expect(PolicyOf(integration, none).Refusing).To(BeFalse())
	integration.Spec.Tokens = []v1alpha1.Token{{}}
	g.Expect(PolicyOf(integration, none).Refusing).To(BeTrue())
	meta.SetStatusCondition(&integration.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonIncidentLimit,
	})
	g.Expect(PolicyOf(integration, none).Refusing).To(BeFalse(), "alerts of the Incidents that exist are accepted")
	meta.SetStatusCondition(&integration.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(minute(3)),
	})
	g.Expect(PolicyOf(integration, none).Refusing).To(BeFalse())
	g.Expect(PolicyOf(integration, none).ReadySince).To(Equal(minute(3)))
	integration.Spec.Suspend = true
	g.Expect(PolicyOf(integration, none).Refusing).To(BeTrue())
}
