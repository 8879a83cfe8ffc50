package fold

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// expiringAlert is a firing alert as Prometheus sends it: it began at a time and is valid until another, by the sender's clock.
func expiringAlert(starts, until time.Time) v1alpha1.Alert {
	alert := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{StartTime: timestamp(starts)})
	alert.ExpiryTime = timestamp(until)
	return alert
}

func TestExpiryOf(t *testing.T) {
	const expiry, ahead = 4 * time.Minute, time.Hour
	for sentence, c := range map[string]struct {
		starts, until time.Time // by the sender's clock
		want          time.Duration
	}{
		"a new alert: from startTime to the end":       {minute(10), minute(14), expiry},
		"an old alert: from the receipt, and a minute": {minute(-600), minute(14), expiry + time.Minute},
		"without startTime: from the receipt, and a minute": {
			time.Time{}, minute(14), expiry + time.Minute},
		"the sender's clock an hour ahead, a new alert: not an hour longer": {
			minute(10).Add(ahead), minute(14).Add(ahead), expiry},
		"the sender's clock an hour ahead, an old alert: at most an hour longer": {
			minute(-600).Add(ahead), minute(14).Add(ahead), expiry + time.Minute + ahead},
		"the sender's clock three minutes behind, a new alert: not less than a minute": {
			minute(7), minute(11), 2 * time.Minute},
		"a tiny expiry: a minute":                {minute(10), minute(10).Add(time.Second), time.Minute},
		"an end that has passed: a minute":       {minute(0), minute(5), time.Minute},
		"an end before the start: as without it": {minute(20), minute(14), expiry + time.Minute},
		"a huge expiry: a day":                   {minute(10), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 24 * time.Hour},
	} {
		t.Run(sentence, func(t *testing.T) {
			alert := expiringAlert(c.starts, c.until)
			if c.starts.IsZero() {
				alert.StartTime = nil
			}
			got := expiryOf(receivedAlert{Alert: &alert, received: minute(10), quietSince: minute(10)})
			NewWithT(t).Expect(got.Duration).To(Equal(c.want))
		})
	}
}

// The replica that received the alert has a wrong clock: what counts is when the API server stored the alert.
func TestALeaseDoesNotDependOnTheReplicasClock(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		g := NewWithT(t)
		bench := newBench()
		event := eventOf(10, expiringAlert(minute(-600), minute(14)))
		event.Spec.ReceivedTime = *timestamp(minute(10).Add(skew))
		bench.fold(event)
		g.Expect(bench.status().Expiry.Duration).To(BeNumerically("~", 5*time.Minute, time.Minute), "%s", skew)
	}
}

func TestExpiry(t *testing.T) {
	open := func() *foldBench {
		bench := newBench()
		bench.now = minute(1)
		bench.fold(eventOf(1, expiringAlert(minute(1), minute(5))))
		return bench
	}
	reason := func(b *foldBench) string {
		return meta.FindStatusCondition(b.status().Conditions, v1alpha1.ConditionResolved).Reason
	}
	t.Run("not before the end of the expiry", func(t *testing.T) {
		bench := open()
		bench.now = minute(5).Add(-time.Microsecond)
		NewWithT(t).Expect(bench.fold().Write).To(BeFalse())
	})
	t.Run("at the end of the expiry, without counting an alert", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.now = minute(5)
		p := bench.fold()
		g.Expect([]bool{p.Write, p.Urgent, p.ByTime}).To(Equal([]bool{true, true, true}))
		g.Expect(p.Transitions).To(Equal([]v1alpha1.Transition{{
			Type: v1alpha1.TransitionResolved, Time: *minuteStamp(5),
			Message: "Expired: the sender did not repeat the alert for 4m0s",
		}}))
		g.Expect(reason(bench)).To(Equal(v1alpha1.ReasonExpired))
		g.Expect(bench.status().AlertCount).To(BeEquivalentTo(1))
		g.Expect(bench.status().Expiry).To(BeNil())
		g.Expect(bench.fold().Write).To(BeFalse(), "once")
	})
	t.Run("a repetition renews it, however late it is folded", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.now = minute(60)
		bench.fold(eventOf(4, expiringAlert(minute(1), minute(8))), eventOf(59, expiringAlert(minute(1), minute(63))))
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
		g.Expect(bench.fold().ByTime).To(BeTrue())
	})
	t.Run("not while the integration accepted no alerts", func(t *testing.T) {
		bench := open()
		bench.now, bench.policy.AcceptingFrom = minute(60), minute(57)
		NewWithT(t).Expect(bench.fold().Write).To(BeFalse())
	})
	t.Run("not without the integration: its sender cannot renew the expiry", func(t *testing.T) {
		bench := open()
		bench.now, bench.policy.Absent = minute(60), true
		NewWithT(t).Expect(bench.fold().ByTime).To(BeFalse())
	})
	t.Run("autoResolveAfter ends it earlier", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.now, bench.policy.AutoResolveAfter = minute(3), 2*time.Minute
		bench.fold()
		g.Expect(reason(bench)).To(Equal(v1alpha1.ReasonAutoResolved))
	})
	t.Run("an alert without an end of validity has no expiry", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.fold(eventOf(2, firingAlert()))
		bench.now = minute(6000)
		g.Expect(bench.fold().Write).To(BeFalse())
	})
	t.Run("a resolve ends the expiry, and a late expiry of a resolve counts for nothing", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		resolve := expiringAlert(minute(1), minute(900))
		resolve.Status, resolve.EndTime = v1alpha1.AlertResolved, minuteStamp(2)
		bench.fold(eventOf(2, resolve))
		g.Expect(reason(bench)).To(Equal(v1alpha1.ReasonResolvedByAlert))
		g.Expect(bench.status().Expiry).To(BeNil())
	})
	t.Run("what fires after it reopens, even with the startTime of before", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.now = minute(5)
		bench.fold()
		p := bench.fold(eventOf(6, expiringAlert(minute(1), minute(10))))
		g.Expect(resultsOf(p)).To(Equal([]string{ResultReopened}))
		g.Expect(bench.status().Expiry).NotTo(BeNil())
	})
	t.Run("an expiry from another hand is bounded too", func(t *testing.T) {
		g := NewWithT(t)
		bench := open()
		bench.incident.Status.Expiry = &metav1.Duration{Duration: time.Nanosecond}
		bench.now = minute(1).Add(59 * time.Second)
		g.Expect(bench.fold().Write).To(BeFalse())
	})
}

func TestALeaseDoesNotRunWhileTheIntegrationAcceptsNoAlerts(t *testing.T) {
	const expiry = 4 * time.Minute
	now := minute(100)
	isReady := func(status metav1.ConditionStatus, reason string, since time.Time) func(*v1alpha1.WebhookIntegration) {
		return func(w *v1alpha1.WebhookIntegration) {
			meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionReady, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(since),
			})
		}
	}
	accepts := isReady(metav1.ConditionTrue, v1alpha1.ReasonAccepting, minute(0))
	full := func(w *v1alpha1.WebhookIntegration) {
		meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionAlertsFolded, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonIncidentsFull,
		})
	}
	suspended := isReady(metav1.ConditionFalse, v1alpha1.ReasonSuspended, minute(40))
	again := func(since time.Time) func(*v1alpha1.WebhookIntegration) {
		return isReady(metav1.ConditionTrue, v1alpha1.ReasonAccepting, since)
	}
	for sentence, test := range map[string]struct {
		history []func(w *v1alpha1.WebhookIntegration)
		from    time.Time // when the expiry begins to run at the earliest
	}{
		"it accepts alerts":                                    {from: minute(0), history: apply(accepts)},
		"it accepts alerts, and its namespace is full":         {from: minute(0), history: apply(accepts, full)},
		"it is new or restored, and nobody has checked it yet": {from: now},
		"it is suspended, as the condition tells":              {from: now, history: apply(accepts, suspended)},
		"it was suspended until now, and its namespace is full": {
			from: now, history: apply(accepts, suspended, again(now), full)},
		"it was suspended until ten seconds ago, and its namespace is full": {
			from: now.Add(-10 * time.Second), history: apply(accepts, suspended, full, again(now.Add(-10*time.Second)))},
		"it is suspended, and the condition does not tell it yet": {
			from: now, history: apply(accepts, func(w *v1alpha1.WebhookIntegration) { w.Spec.Suspend = true })},
		"no token is valid": {
			from: now, history: apply(accepts, isReady(metav1.ConditionFalse, v1alpha1.ReasonNoValidToken, minute(40)))},
		"no token is listed": {from: now, history: apply(accepts,
			isReady(metav1.ConditionFalse, v1alpha1.ReasonNoValidToken, minute(40)),
			func(w *v1alpha1.WebhookIntegration) { w.Spec.Tokens = nil })},
		"it is new, and no token is listed": {
			from: now, history: apply(func(w *v1alpha1.WebhookIntegration) { w.Spec.Tokens = nil })},
		"a key cannot be used": {
			from: now, history: apply(accepts, isReady(metav1.ConditionFalse, v1alpha1.ReasonInvalidPublicKey, minute(40)))},
		"it is being deleted, and a finalizer keeps it": {from: now, history: apply(accepts,
			func(w *v1alpha1.WebhookIntegration) { w.DeletionTimestamp = new(metav1.NewTime(minute(90))) })},
	} {
		t.Run(sentence, func(t *testing.T) {
			integration := &v1alpha1.WebhookIntegration{}
			integration.Spec.Tokens = []v1alpha1.Token{{}}
			for _, change := range test.history {
				change(integration)
			}
			policy := PolicyOf(integration, nil)
			policy.AcceptingFrom = policy.ReadySince
			if policy.NotAccepting {
				policy.AcceptingFrom = now
			}
			incident := &v1alpha1.Incident{Status: v1alpha1.IncidentStatus{
				State: v1alpha1.IncidentOpen, Expiry: &metav1.Duration{Duration: expiry}, LastAlertTime: timestamp(minute(0)),
			}}
			at, ok := Deadline(incident, policy)
			g := NewWithT(t)
			g.Expect(ok).To(BeTrue())
			g.Expect(at).To(Equal(test.from.Add(expiry)))
		})
	}
}

// apply is the history of an integration: what changed it, in order.
func apply(changes ...func(*v1alpha1.WebhookIntegration)) []func(*v1alpha1.WebhookIntegration) {
	return changes
}
