package fold

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func minutes(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Minute}
}

// holdingBench holds Incidents back for ten minutes, for five at severity error, and at severity critical not at all.
func holdingBench() *foldBench {
	bench := newBench()
	bench.policy.LateFiringWindow = 0
	bench.policy.ForwardAfter = &v1alpha1.ForwardAfter{Default: minutes(10), Error: minutes(5), Critical: minutes(0)}
	return bench
}

func firingAt(severity v1alpha1.Severity) v1alpha1.Alert {
	return alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Severity: severity})
}

func (b *foldBench) forwardTime() *v1alpha1.Timestamp { return b.status().Episode.ForwardTime }

func TestAnIncidentIsHeldBack(t *testing.T) {
	post := func(b *foldBench) { // as the forwarding does
		b.status().Forwarding = &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingPosted, Severity: b.status().Alert.Severity}
	}
	for sentence, test := range map[string]struct {
		happens func(b *foldBench)
		until   *v1alpha1.Timestamp // nil: it is not held back
	}{
		"for the default time":         {func(b *foldBench) { b.at(1, eventOf(1, firingAt("info"))) }, minuteStamp(11)},
		"for the time of its severity": {func(b *foldBench) { b.at(1, eventOf(1, firingAt("error"))) }, minuteStamp(6)},
		"for the time of a warning": {func(b *foldBench) {
			b.policy.ForwardAfter.Warning = minutes(3)
			b.at(1, eventOf(1, firingAt("warning")))
		}, minuteStamp(4)},
		"unless its severity has no time": {func(b *foldBench) { b.at(1, eventOf(1, firingAt("critical"))) }, nil},
		"unless nothing of the integration is": {func(b *foldBench) {
			b.policy.ForwardAfter = nil
			b.at(1, eventOf(1, firingAt("info")))
		}, nil},
		"until it becomes so severe that it is not": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			b.at(3, eventOf(3, firingAt("critical")))
		}, minuteStamp(3)},
		"for the time of a higher severity, counted from its opening": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			b.at(3, eventOf(3, firingAt("error")))
		}, minuteStamp(6)},
		"no more, if a replica whose clock is behind received that it is so severe": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			behind := eventOf(2, firingAt("critical"))
			behind.Spec.ReceivedTime = v1alpha1.NewTimestamp(minute(1).Add(-10 * time.Second))
			b.at(2, behind)
		}, minuteStamp(1)},
		"and no more, if a replica whose clock is behind received that it is less severe again": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			b.at(3, eventOf(3, firingAt("critical")))
			behind := eventOf(4, firingAt("info"))
			behind.Spec.ReceivedTime = v1alpha1.NewTimestamp(minute(3).Add(-5 * time.Second))
			b.at(4, behind)
		}, minuteStamp(3)},
		"until its severity rises, if the time of the new one has passed": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			b.at(8, eventOf(8, firingAt("error")))
		}, minuteStamp(8)},
		"and no more once it was not": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("critical")))
			b.at(2, eventOf(2, firingAt("info")))
		}, nil},
		"and no more after its time": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("error")))
			b.at(7, eventOf(7, firingAt("info")))
		}, minuteStamp(6)},
		"as the integration now says, while it is": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			b.policy.ForwardAfter = &v1alpha1.ForwardAfter{Default: minutes(20)}
			NewWithT(t).Expect(b.at(2).Write).To(BeTrue())
			NewWithT(t).Expect(b.at(3).IsIdle()).To(BeTrue())
		}, minuteStamp(21)},
		"as the integration now says, also in a window": {func(b *foldBench) {
			b.maintain(windowOf("db", 0, 50))
			b.at(1, eventOf(1, firingAt("info")))
			b.policy.ForwardAfter = &v1alpha1.ForwardAfter{Default: minutes(20)}
			NewWithT(t).Expect(b.at(2).Write).To(BeTrue())
			NewWithT(t).Expect(b.at(3).IsIdle()).To(BeTrue())
		}, minuteStamp(21)},
		"no longer, for what comes after its end": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("error")))
			b.at(8, eventOf(8, resolvingAlert()))
			b.at(9, eventOf(9, resolvingAlert()))
		}, minuteStamp(6)},
		"until the integration no longer says so": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			b.policy.ForwardAfter = nil
			b.at(4)
		}, minuteStamp(4)},
		"also while the integration is deleted": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			b.policy = PolicyOf(nil, nil)
			b.at(4)
		}, minuteStamp(11)},
		"also while its windows are unknown": {func(b *foldBench) {
			b.policy.Stub = true
			b.at(1, eventOf(1, firingAt("info")))
			b.at(4)
		}, minuteStamp(11)},
		"as somebody has written, who has not written when it opened": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			b.status().OpenedTime = nil
			b.at(2, eventOf(2, firingAt("critical")))
		}, minuteStamp(11)},
		"also if the integration asks for less after its time": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("error")))
			b.policy.ForwardAfter = &v1alpha1.ForwardAfter{Default: minutes(20)}
			b.at(7)
		}, minuteStamp(6)},
		"never, if it is resolved before": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			b.at(4, eventOf(4, resolvingAlert()))
		}, minuteStamp(11)},
		"until its end, if an Alertmanager has it already": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			b.at(12)
			post(b)
			b.at(13, receivedAt(eventOf(13, resolvingAlert()), minute(10)))
		}, nil},
		"no longer, if an Alertmanager has it already, for an alert that was received before": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("error")))
			b.at(7)
			post(b)
			b.at(8, receivedAt(eventOf(8, firingAt("info")), minute(5)))
		}, minuteStamp(6)},
		"nor if so far only the leader knows that one has it": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("error")))
			b.told = postedAs(v1alpha1.SeverityError, 1)
			b.at(8, receivedAt(eventOf(8, firingAt("info")), minute(5)))
		}, minuteStamp(6)},
		"anew, though an Alertmanager had the last episode": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("critical")))
			b.told = postedAs(v1alpha1.SeverityCritical, 1)
			b.at(2)
			b.at(3, eventOf(3, resolvingAlert()))
			b.at(4, eventOf(4, firingAt("info")), eventOf(5, firingAt("error")))
		}, minuteStamp(9)},
		"by its own severity, while an Alertmanager that does not answer still has the last episode": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("error")))
			b.told = postedAs(v1alpha1.SeverityError, 1)
			b.at(7)
			b.at(8, eventOf(8, resolvingAlert()))
			b.at(10, eventOf(10, firingAt("info")))
			b.at(11, eventOf(11, firingAt("critical")))
		}, minuteStamp(11)},
		"anew in each episode": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			b.at(20, eventOf(20, resolvingAlert()))
			b.at(30, eventOf(30, firingAt("info")))
		}, minuteStamp(40)},
		"in an episode that a person begins": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			b.at(20, eventOf(20, resolvingAlert()))
			reopen := firingAlert()
			reopen.IsReport, reopen.By = true, "maria"
			b.at(30, eventOf(30, reopen))
		}, minuteStamp(40)},
		"no longer than a day": {func(b *foldBench) {
			b.policy.ForwardAfter.Default = minutes(99999)
			b.at(1, eventOf(1, firingAt("info")))
		}, minuteStamp(1 + 24*60)},
		"not for a time that is negative": {func(b *foldBench) {
			b.policy.ForwardAfter.Default = minutes(-5)
			b.at(1, eventOf(1, firingAt("info")))
		}, nil},
		"not for longer because the clock of a replica is ahead": {func(b *foldBench) {
			b.at(1, eventOf(1, firingAt("info")))
			ahead := eventOf(3, firingAt("critical"))
			ahead.Spec.ReceivedTime = v1alpha1.NewTimestamp(minute(3).Add(50 * time.Second))
			b.at(3, ahead)
		}, minuteStamp(3)},
	} {
		t.Run(sentence, func(t *testing.T) {
			bench := holdingBench()
			test.happens(bench)
			if test.until == nil {
				NewWithT(t).Expect(bench.forwardTime()).To(BeNil())
			} else {
				NewWithT(t).Expect(bench.forwardTime()).To(HaveValue(HaveField("Time", BeTemporally("==", test.until.Time))))
			}
		})
	}
}

func TestTheStatusTellsOfAnIncidentThatIsHeldBack(t *testing.T) {
	g, bench := NewWithT(t), holdingBench()
	p := bench.at(1, eventOf(1, firingAt("info")))
	want := &v1alpha1.Forwarding{
		Reason: v1alpha1.ForwardingHeld, Time: *minuteStamp(1),
		Message: "Held back by the integration's forwardAfter until 2026-03-01T12:11:00Z.",
	}
	g.Expect(bench.status().Forwarding).To(Equal(want), "from its first write on")
	g.Expect(p.Transitions[1].Message).To(HavePrefix("Not posted to Alertmanager yet. Held back"))
	g.Expect(Due(bench.incident, &bench.policy)).To(Equal(minute(11)), "then it is folded again")
	g.Expect(bench.at(10).IsIdle()).To(BeTrue(), "and not before")
	ended := bench.incident.DeepCopy()
	ended.Status.State = v1alpha1.IncidentResolved
	g.Expect(Due(ended, &bench.policy)).To(BeZero(), "one that is resolved stays as it is")
	bench.policy = PolicyOf(nil, nil)
	g.Expect(bench.at(11).Write).To(BeTrue(), "the forwarding learns of it by this write, also without the integration")
	g.Expect(bench.status().Forwarding).To(BeNil(), "what comes of it is not known yet")
	g.Expect(Due(bench.incident, &bench.policy)).To(BeZero())
	g.Expect(bench.at(12).IsIdle()).To(BeTrue())
}

func TestAnIncidentThatIsNeverForwardedIsNotHeldBack(t *testing.T) {
	spec := v1alpha1.WebhookIntegrationSpec{ForwardAfter: &v1alpha1.ForwardAfter{Default: minutes(10)}}
	g := NewWithT(t)
	g.Expect(PolicyOf(&v1alpha1.WebhookIntegration{Spec: spec}, nil).ForwardAfter).To(Equal(spec.ForwardAfter))
	spec.Forward = v1alpha1.ForwardNever
	g.Expect(PolicyOf(&v1alpha1.WebhookIntegration{Spec: spec}, nil).ForwardAfter).To(BeNil())
}

func TestTheTimelineTellsWhetherAnIncidentIsPosted(t *testing.T) {
	g, bench := NewWithT(t), openIncident()
	said := func(n int) []v1alpha1.Transition { return bench.at(n).Transitions }
	bench.told = postedAs(v1alpha1.SeverityWarning, 1)
	g.Expect(said(2)).To(HaveExactElements(HaveField("Message", "Posted to Alertmanager")))
	bench.told.Severity = v1alpha1.SeverityError
	g.Expect(said(3)).To(BeEmpty(), "with another severity is as before")
	g.Expect(bench.status().Forwarding.Severity).To(Equal(v1alpha1.SeverityError))
	bench.told = KnownForwarding{Reason: v1alpha1.ForwardingFiltered, Message: "Its labels do not match."}
	g.Expect(said(4)).To(HaveExactElements(HaveField("Message", "Not posted to Alertmanager. Its labels do not match.")))
	bench.told = KnownForwarding{Disabled: true}
	g.Expect(bench.at(5).IsIdle()).To(BeTrue(), "turning the forwarding off costs no writes")
}

// An Incident may end within a second of its post, in the fold that is to tell of it.
func TestAnIncidentThatIsResolvedTellsThatItWasPosted(t *testing.T) {
	g, bench := NewWithT(t), openIncident()
	bench.told = postedAs(v1alpha1.SeverityWarning, 1)
	transitions := bench.at(2, eventOf(2, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{}))).Transitions
	g.Expect(transitions).To(HaveExactElements(
		HaveField("Message", "Posted to Alertmanager"), HaveField("Type", v1alpha1.TransitionResolved)))
	g.Expect(bench.status().Forwarding.Severity).To(Equal(v1alpha1.SeverityWarning))

	bench = openIncident()
	bench.told = postedAs(v1alpha1.SeverityWarning, 0)
	bench.at(2, eventOf(2, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{})))
	g.Expect(bench.status().Forwarding).To(BeNil(), "an earlier episode was posted")
}

func TestWhatIsForwardedWhileItIsHeldBack(t *testing.T) {
	status := &v1alpha1.IncidentStatus{
		State: v1alpha1.IncidentOpen, OpenedTime: minuteStamp(10), Episode: &v1alpha1.Episode{ForwardTime: minuteStamp(20)},
	}
	g := NewWithT(t)
	for sentence, test := range map[string]struct {
		at         int
		held, ends bool
	}{
		"an earlier episode had its own time": {at: 9, held: true},
		"at the opening":                      {at: 10, held: true, ends: true},
		"before the forwardTime":              {at: 19, held: true, ends: true},
		"at the forwardTime":                  {at: 20, ends: true},
		"after it":                            {at: 21},
	} {
		g.Expect(IsHeld(status, minute(test.at))).To(Equal(test.held), sentence)
		g.Expect(WasHeld(status, minute(test.at))).To(Equal(test.ends), sentence)
	}
	status.State = v1alpha1.IncidentResolved
	g.Expect(IsHeld(status, minute(11))).To(BeFalse(), "nothing fires that could be held back")
}

// TestAClockThatWasSetBackHoldsNothing has an episode that was noted by a clock that was an hour ahead.
func TestAClockThatWasSetBackHoldsNothing(t *testing.T) {
	g, bench := NewWithT(t), holdingBench()
	bench.at(61, eventOf(61, firingAt("info")))
	g.Expect(IsHeld(bench.status(), minute(62))).To(BeTrue())
	g.Expect(IsHeld(bench.status(), minute(5))).To(BeFalse(), "it would be hidden for an hour and more")

	bench.told = postedAs(v1alpha1.SeverityInfo, 61)
	bench.at(72)
	g.Expect(bench.status().Forwarding.Reason).To(Equal(v1alpha1.ForwardingPosted))
	g.Expect(IsHeld(bench.status(), minute(70))).To(BeFalse(), "what fires in Alertmanager stays so")
	bench.at(70, eventOf(70, firingAt("critical")))
	g.Expect(IsHeld(bench.status(), minute(70))).To(BeFalse())
}

// An Alertmanager has accepted the episode at its forwardTime, and its status does not tell so yet.
func TestTheEndOfWhatThisLeaderHasPostedIsForwardedToo(t *testing.T) {
	for sentence, test := range map[string]struct {
		told    KnownForwarding
		wasHeld bool
	}{
		"it was posted":                 {told: postedAs(v1alpha1.SeverityInfo, 1)},
		"an earlier episode was posted": {told: postedAs(v1alpha1.SeverityInfo, 0), wasHeld: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			bench := holdingBench()
			bench.at(1, eventOf(1, firingAt("info")))
			bench.told = test.told
			bench.at(11, eventOf(9, alertOf(v1alpha1.AlertResolved, v1alpha1.AlertContent{}))) // it was stored late
			NewWithT(t).Expect(WasHeld(bench.status(), minute(9))).To(Equal(test.wasHeld))
		})
	}
}

// postedAs is what a leader knows of an Incident whose episode opened at a minute.
func postedAs(severity v1alpha1.Severity, opened int) KnownForwarding {
	return KnownForwarding{Reason: v1alpha1.ForwardingPosted, Severity: severity, Alertmanagers: 1, Opened: minute(opened)}
}

// A fold may be late, and a window may open between the forwardTime and the fold.
func TestAWindowLeavesWhatWasPostedBeforeIt(t *testing.T) {
	for sentence, test := range map[string]struct {
		told     KnownForwarding
		severity v1alpha1.Severity
	}{
		"if it was posted, it was forwarded":  {postedAs(v1alpha1.SeverityInfo, 1), v1alpha1.SeverityInfo},
		"if it was not posted, nothing stays": {},
	} {
		g, bench := NewWithT(t), holdingBench()
		bench.at(1, eventOf(1, firingAt("info")))
		g.Expect(bench.status().Forwarding.Reason).To(Equal(v1alpha1.ForwardingHeld))
		bench.told = test.told
		bench.maintain(windowOf("db", 12, 50))
		bench.at(13)
		g.Expect(bench.status().Mute.ForwardedSeverity).To(Equal(test.severity), sentence)
	}
}

// A window that opens while an Incident is held back, and ends, changes nothing.
func TestWhatIsHeldBackWasNotForwardedBeforeAWindow(t *testing.T) {
	g, bench := NewWithT(t), holdingBench()
	bench.at(1, eventOf(1, firingAt("info")))
	bench.maintain(windowOf("db", 2, 5))
	bench.at(3)
	g.Expect(bench.status().Mute.ForwardedSeverity).To(BeEmpty())
	g.Expect(bench.status().Forwarding.Reason).To(Equal(v1alpha1.ForwardingMuted))
	bench.at(6)
	g.Expect(bench.status().Mute).To(BeNil())
	g.Expect(bench.status().Forwarding.Reason).To(Equal(v1alpha1.ForwardingHeld))
	g.Expect(bench.forwardTime()).To(Equal(minuteStamp(11)))

	bench.at(7, eventOf(7, firingAt("error")))
	bench.maintain(windowOf("db", 8, 50))
	bench.at(9, eventOf(9, firingAt("critical")))
	g.Expect(bench.status().Mute.ForwardedSeverity).To(Equal(v1alpha1.SeverityError), "at its time, it was free")
}

// What the first alert of a fold opens is held back for the second one, too.
func TestAnIncidentThatOpensInTheFoldThatMutesItWasNotForwarded(t *testing.T) {
	g, bench := NewWithT(t), holdingBench()
	bench.maintain(windowOf("db", 0, 50, v1alpha1.SeverityError))
	bench.at(2, eventOf(1, firingAt("info")), eventOf(2, firingAt("error")))
	g.Expect(bench.status().Mute).To(HaveValue(HaveField("ForwardedSeverity", BeEmpty())))
}

// foldInBatches has the first bench fold alerts one by one, and the second one as many at once as comes.
func foldInBatches(t *rapid.T, benches [2]*foldBench, alerts []v1alpha1.Alert) {
	for b, bench := range benches {
		var waiting []*v1alpha1.AlertEvent
		for n := range alerts {
			event := eventOf(n, alerts[n])
			event.Alerts[0].ID = fmt.Sprintf("alert-%d", n)
			waiting = append(waiting, event)
			if b == 0 || n == len(alerts)-1 || rapid.Bool().Draw(t, "folded now") {
				bench.at(n, waiting...)
				waiting = nil
			}
		}
	}
}

// TestAHoldDoesNotDependOnBatching folds the same alerts, as many at once as comes, and compares from when on they are forwarded.
func TestAHoldDoesNotDependOnBatching(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alert := rapid.Custom(func(t *rapid.T) v1alpha1.Alert {
			return alertOf(rapid.SampledFrom([]v1alpha1.AlertStatus{"firing", "firing", "resolved", "acknowledged"}).Draw(t, "status"),
				v1alpha1.AlertContent{Severity: rapid.SampledFrom(v1alpha1.Severities()).Draw(t, "severity")})
		})
		alerts := rapid.SliceOfN(alert, 1, 20).Draw(t, "alerts")
		benches := [2]*foldBench{holdingBench(), holdingBench()}
		foldInBatches(t, benches, alerts)
		if benches[0].incident != nil {
			NewWithT(t).Expect(benches[1].forwardTime()).To(Equal(benches[0].forwardTime()))
		}
	})
}
