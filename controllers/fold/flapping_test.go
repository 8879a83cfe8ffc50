package fold

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// unsteadyBench has an Incident flap that opens more than twice in ten minutes, and keeps its ends back for so many minutes; 0: not.
func unsteadyBench(keepFor int) *foldBench {
	bench := newBench()
	bench.policy.LateFiringWindow = 0
	bench.policy.Flapping = &v1alpha1.FlappingPolicy{Openings: 2, Period: minutes(10)}
	if keepFor > 0 {
		bench.policy.Flapping.KeepFiringFor = minutes(keepFor)
	}
	return bench
}

// toggle opens and resolves the Incident in turn, at these minutes.
func (b *foldBench) toggle(at ...int) {
	for _, n := range at {
		if b.incident != nil && b.status().State == v1alpha1.IncidentOpen {
			b.at(n, eventOf(n, resolvingAlert()))
		} else {
			b.at(n, eventOf(n, firingAt("error")))
		}
	}
}

// note adds so many notes to the timeline.
func (b *foldBench) note(n, count int) {
	note := alertOf(v1alpha1.AlertNoted, v1alpha1.AlertContent{})
	note.IsReport, note.By, note.Comment = true, "maria", "still looking"
	b.at(n, eventOf(n, slices.Repeat([]v1alpha1.Alert{note}, count)...))
}

// resolvedByMaria is the resolve of a user.
func resolvedByMaria() v1alpha1.Alert {
	alert := resolvingAlert()
	alert.IsReport, alert.By = true, "maria"
	return alert
}

func (b *foldBench) flapping() *metav1.Condition {
	return meta.FindStatusCondition(b.status().Conditions, v1alpha1.ConditionFlapping)
}

func TestAnIncidentFlaps(t *testing.T) {
	const never = -1
	for sentence, test := range map[string]struct {
		happens func(b *foldBench)
		is      metav1.ConditionStatus
		since   int
	}{
		"not while it opens seldom":                    {func(b *foldBench) { b.toggle(1, 2, 3) }, "", never},
		"when it opens more often than it may":         {func(b *foldBench) { b.toggle(1, 2, 3, 4, 5) }, metav1.ConditionTrue, 5},
		"since it opened so often, however often then": {func(b *foldBench) { b.toggle(1, 2, 3, 4, 5, 6, 7, 8, 9) }, metav1.ConditionTrue, 5},
		"not if the openings are further apart":        {func(b *foldBench) { b.toggle(1, 2, 6, 7, 11) }, "", never},
		"by the default number of openings, if the integration says only the period": {func(b *foldBench) {
			b.policy.Flapping = &v1alpha1.FlappingPolicy{Period: minutes(20)}
			b.toggle(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
		}, metav1.ConditionTrue, 11},
		"if one of many is within the period": {func(b *foldBench) { b.toggle(1, 2, 6, 7, 10) }, metav1.ConditionTrue, 10},
		"no more when the openings of the period are few, while it is open": {func(b *foldBench) {
			b.toggle(1, 2, 3, 4, 5)
			b.at(11)
		}, metav1.ConditionFalse, 11},
		"no more when they are few, while it is resolved": {func(b *foldBench) {
			b.toggle(1, 2, 3, 4, 5, 6)
			b.at(15)
		}, metav1.ConditionFalse, 11},
		"not before that": {func(b *foldBench) {
			b.toggle(1, 2, 3, 4, 5, 6)
			NewWithT(t).Expect(b.at(10).IsIdle()).To(BeTrue())
		}, metav1.ConditionTrue, 5},
		"no more when an opening finds that they are few": {func(b *foldBench) { b.toggle(1, 2, 3, 4, 5, 6, 30) }, metav1.ConditionFalse, 11},
		"again, if nobody has folded it in between": {func(b *foldBench) {
			b.toggle(1, 2, 3, 4, 5, 6, 9, 10)
			b.toggle(16, 17, 18)
		}, metav1.ConditionTrue, 18},
		"also if a person reopens it": {func(b *foldBench) {
			b.toggle(1, 2, 3, 4)
			reopen := firingAlert()
			reopen.IsReport, reopen.By = true, "maria"
			b.at(5, eventOf(5, reopen))
		}, metav1.ConditionTrue, 5},
		"by the default, without a word of the integration": {func(b *foldBench) {
			b.policy.Flapping = nil
			b.toggle(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 59)
		}, metav1.ConditionTrue, 59},
		"and not by fewer openings than the default": {func(b *foldBench) {
			b.policy.Flapping = nil
			b.toggle(1, 2, 3, 4, 5, 6, 7, 8, 9)
		}, "", never},
		"no longer than it did when its integration goes": {func(b *foldBench) {
			b.toggle(1, 2, 3, 4, 5)
			b.policy = PolicyOf(nil, nil)
			b.at(7)
			NewWithT(t).Expect(b.flapping().Status).To(Equal(metav1.ConditionTrue))
			b.at(11)
		}, metav1.ConditionFalse, 11},
		"not by openings of the future, after the clock was set back": {func(b *foldBench) {
			b.toggle(61, 62, 63, 64)
			b.at(5, setBack(5, firingAt("error")))
		}, "", never},
		"no more after the clock was set back": {func(b *foldBench) {
			b.toggle(61, 62, 63, 64, 65)
			b.at(5)
		}, metav1.ConditionFalse, 5},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, bench := NewWithT(t), unsteadyBench(0)
			test.happens(bench)
			condition := bench.flapping()
			if test.since == never {
				g.Expect(condition).To(BeNil())
				return
			}
			g.Expect(condition).NotTo(BeNil())
			g.Expect(condition.Status).To(Equal(test.is))
			g.Expect(condition.LastTransitionTime.Time).To(BeTemporally("==", minute(test.since)))
			g.Expect(keptFiring(bench.status())).To(BeNil(), "nothing is kept back unless the integration says so")
		})
	}
}

// setBack is an event of the n-th minute that is committed after others.
func setBack(n int, alert v1alpha1.Alert) *v1alpha1.AlertEvent {
	event := eventOf(1000+n, alert)
	event.CreationTimestamp, event.Spec.ReceivedTime = metav1.NewTime(minute(n)), *minuteStamp(n)
	return event
}

func TestTheStatusOfAnIncidentThatFlaps(t *testing.T) {
	g, bench := NewWithT(t), unsteadyBench(0)
	bench.policy.Flapping = &v1alpha1.FlappingPolicy{Openings: 3}
	bench.toggle(1)
	g.Expect(bench.status().Flapping).To(BeNil(), "most Incidents open once")
	bench.toggle(2)
	bench.at(3, receivedAt(eventOf(3, firingAt("error")), minute(3).Add(123*time.Millisecond)))
	bench.toggle(4, 5, 6, 7, 8, 9)
	g.Expect(bench.status().Flapping).To(Equal(&v1alpha1.Flapping{
		OpenedTimes: []v1alpha1.Timestamp{*minuteStamp(3), *minuteStamp(5), *minuteStamp(7)}, EndTime: minuteStamp(63),
	}), "as many as are needed, in whole seconds")
	g.Expect(bench.flapping()).To(HaveValue(And(
		HaveField("Reason", v1alpha1.ReasonOpenedOften), HaveField("Message", "The incident has opened more than 3 times in 1h."))))
	g.Expect(Due(bench.incident, &bench.policy)).To(Equal(minute(63)))
	bench.toggle(10)
	g.Expect(Due(bench.incident, &bench.policy)).To(Equal(minute(63)), "one that is Resolved is folded again, too")
	g.Expect(bench.at(62).IsIdle()).To(BeTrue())
	g.Expect(bench.at(63).Write).To(BeTrue())
	g.Expect(Due(bench.incident, &bench.policy)).To(BeZero(), "once")
	g.Expect(bench.at(64).IsIdle()).To(BeTrue())
	bench.policy.Flapping.Openings = 1
	bench.toggle(100, 101, 102)
	g.Expect(bench.flapping().Message).To(Equal("The incident has opened more than once in 1h."))
}

func TestOnlySoManyOpeningsAreKept(t *testing.T) {
	g, bench := NewWithT(t), unsteadyBench(0)
	bench.policy.Flapping.Openings, bench.policy.Flapping.Period = 1<<40, nil
	for n := range 101 {
		bench.toggle(n + 1)
	}
	g.Expect(bench.status().Flapping.OpenedTimes).To(HaveLen(v1alpha1.MaxOpenedTimes))
	g.Expect(bench.flapping().Status).To(Equal(metav1.ConditionTrue), "by the most openings that may be asked for")
	bench.policy.Flapping.Openings = -5
	bench.toggle(102, 103)
	g.Expect(bench.status().Flapping.OpenedTimes).To(HaveLen(defaultFlappingOpenings))
}

// isForwarded reports whether an Incident is forwarded as one that fires.
func (b *foldBench) isForwarded() bool {
	return b.status().State == v1alpha1.IncidentOpen && !IsHeld(b.status(), b.now) || EndIsKeptBack(b.status(), b.now)
}

func TestAnEndIsKeptBack(t *testing.T) {
	flaps := func(b *foldBench) { b.toggle(1, 2, 3, 4, 5, 6) } // resolved in minute 6
	for sentence, test := range map[string]struct {
		happens func(b *foldBench)
		until   int // it is forwarded as one that fires
	}{
		"until the Incident was Resolved for a while": {flaps, 11},
		"not before it flaps":                         {func(b *foldBench) { b.toggle(1, 2, 3, 4) }, 4},
		"anew, if it opens again before": {func(b *foldBench) {
			flaps(b)
			b.toggle(9, 10)
		}, 15},
		"also if its openings are few when it ends, since it flaps until then": {func(b *foldBench) {
			flaps(b)
			b.at(10)
			b.at(14)
		}, 11},
		"not if a person resolves it": {func(b *foldBench) {
			b.toggle(1, 2, 3, 4, 5)
			b.at(6, eventOf(6, resolvedByMaria()))
		}, 6},
		"until a person says that it is over": {func(b *foldBench) {
			flaps(b)
			NewWithT(t).Expect(b.at(8, eventOf(8, resolvedByMaria())).Urgent).To(BeTrue())
		}, 8},
		"until then, if a person says so later": {func(b *foldBench) {
			flaps(b)
			b.at(12, eventOf(12, resolvedByMaria()))
		}, 11},
		"not if it did not flap, whatever a person says": {func(b *foldBench) {
			b.toggle(1, 2, 3, 4)
			b.at(5, eventOf(5, resolvedByMaria()))
		}, 4},
		"whatever a person notes": {func(b *foldBench) {
			flaps(b)
			b.note(8, 1)
		}, 11},
		"whatever a person said before it ended, which a cache shows late": {func(b *foldBench) {
			flaps(b)
			overtaken := eventOf(5, resolvedByMaria())
			overtaken.UID = "another"
			b.at(8, overtaken)
		}, 11},
		"whatever the sender repeats": {func(b *foldBench) {
			flaps(b)
			b.at(8, eventOf(8, resolvingAlert()))
		}, 11},
		"as long as the integration said, which is changed then": {func(b *foldBench) {
			flaps(b)
			b.policy.Flapping = nil
			b.at(7)
		}, 11},
		"as long as the integration said, which is deleted then": {func(b *foldBench) {
			flaps(b)
			b.policy = PolicyOf(nil, nil)
			b.at(7)
		}, 11},
		"not if it flaps no longer when it ends": {func(b *foldBench) {
			b.toggle(1, 2, 3, 4, 5)
			b.at(11)
			b.toggle(12)
		}, 12},
		"nor if nobody has folded that it flaps no longer": {func(b *foldBench) { b.toggle(1, 2, 3, 4, 5, 12) }, 12},
		"no longer, if it flaps for longer": {func(b *foldBench) {
			b.policy.Flapping.KeepFiringFor = minutes(2)
			flaps(b)
			b.at(11)
		}, 8},
		"not if nothing is forwarded": {func(b *foldBench) {
			b.toggle(1, 2, 3, 4, 5)
			in := b.input(eventOf(6, resolvingAlert()))
			in.Forwarding.Disabled, in.Now = true, minute(6)
			b.incident.Status = Decide(in).Status
		}, 6},
		"also if it ends because it is quiet": {func(b *foldBench) {
			b.toggle(1, 2, 3, 4, 5)
			b.policy.AutoResolveAfter = time.Minute
			b.at(6)
		}, 11},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, bench := NewWithT(t), unsteadyBench(5)
			test.happens(bench)
			g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentResolved))
			end := minute(test.until)
			g.Expect(ForwardedEnd(bench.status())).To(Equal(end))
			g.Expect(EndIsKeptBack(bench.status(), end.Add(-time.Second))).To(Equal(end.After(bench.status().ResolvedTime.Time)))
			g.Expect(EndIsKeptBack(bench.status(), end)).To(BeFalse())
			g.Expect(EndIsKeptBack(bench.status(), minute(0))).To(BeFalse(), "if the clock is set back")
		})
	}
}

// An episode that was held back and never forwarded counts, and its end is not forwarded.
func TestFlappingOfWhatIsHeldBack(t *testing.T) {
	g, bench := NewWithT(t), unsteadyBench(0)
	bench.policy.ForwardAfter = &v1alpha1.ForwardAfter{Default: minutes(2)}
	bench.toggle(1, 2, 3, 4, 5)
	g.Expect(bench.flapping().Status).To(Equal(metav1.ConditionTrue))
	g.Expect(bench.isForwarded()).To(BeFalse(), "or there would be a page and an all-clear each time")
	bench.toggle(6)
	g.Expect(WasHeld(bench.status(), minute(6))).To(BeTrue())
}

// With keepFiringFor, what flaps is said once, and not held back: it may never be open for as long as forwardAfter says.
func TestWhatFlapsIsForwardedThoughItHealsWithinTheHold(t *testing.T) {
	g, bench := NewWithT(t), unsteadyBench(5)
	bench.policy.ForwardAfter = &v1alpha1.ForwardAfter{Default: minutes(2)}
	bench.toggle(1, 2, 3)
	g.Expect(bench.isForwarded()).To(BeFalse())
	bench.toggle(4)
	g.Expect(keptFiring(bench.status())).To(BeNil(), "its end is not forwarded either")
	bench.toggle(5)
	g.Expect(bench.flapping().Status).To(Equal(metav1.ConditionTrue))
	g.Expect(bench.isForwarded()).To(BeTrue())
	bench.at(6, eventOf(6, firingAt("info")))
	g.Expect(bench.isForwarded()).To(BeTrue(), "whatever its severity becomes")
	bench.toggle(7)
	g.Expect(bench.isForwarded()).To(BeTrue())
	bench.policy.Flapping.KeepFiringFor = nil // which concerns what comes later
	bench.toggle(9)
	g.Expect(bench.isForwarded()).To(BeTrue(), "nothing is held back that fires in Alertmanager")
	bench.toggle(10)
	bench.at(19)
	g.Expect(bench.isForwarded()).To(BeFalse())
	bench.toggle(20)
	g.Expect(bench.isForwarded()).To(BeFalse(), "but what begins anew")
}

// A rise of the severity in a window is hidden, and not forwarded later, when it is no more.
func TestWhatAWindowHidesIsNotKeptFiring(t *testing.T) {
	g, bench := NewWithT(t), unsteadyBench(5)
	bench.toggle(1, 2, 3, 4, 5, 6)
	bench.maintain(windowOf("db", 7, 10))
	bench.at(8, eventOf(8, firingAt("critical")))
	g.Expect(bench.status().Mute.ForwardedSeverity).To(Equal(v1alpha1.SeverityError))
	bench.toggle(9)
	bench.at(10)
	g.Expect(EndIsKeptBack(bench.status(), minute(10))).To(BeTrue())
	bench.toggle(11)
	g.Expect(ForwardedSeverity(bench.status())).To(Equal(v1alpha1.SeverityError))
	g.Expect(ForwardedPeriods(bench.status())).To(ContainElement(SeverityPeriod{Severity: "error", From: minute(6)}))
}

// TestAClockThatWasSetBackKeepsNothingFiring has a resolve that was noted by a clock that was an hour ahead.
func TestAClockThatWasSetBackKeepsNothingFiring(t *testing.T) {
	g, bench := NewWithT(t), unsteadyBench(5)
	bench.toggle(51, 52, 53, 54, 55, 60)
	g.Expect(ForwardedEnd(bench.status())).To(Equal(minute(65)))
	bench.at(1)
	g.Expect(bench.flapping().Status).To(Equal(metav1.ConditionFalse))
	g.Expect(EndIsKeptBack(bench.status(), minute(1))).To(BeFalse())
	g.Expect(EndIsKeptBack(bench.status(), minute(64))).To(BeFalse(), "nor when that time comes")
}

// TestAnEndThatWasToldStaysSo has the clock set back by an hour after the end that was kept back has been forwarded.
func TestAnEndThatWasToldStaysSo(t *testing.T) {
	for sentence, event := range map[string]*v1alpha1.AlertEvent{
		"if no alert comes":             nil,
		"if the Incident opens again":   setBack(7, firingAt("error")),
		"if another resolve comes late": setBack(7, resolvingAlert()),
	} {
		t.Run(sentence, func(t *testing.T) {
			g, bench := NewWithT(t), unsteadyBench(5)
			bench.toggle(51, 52, 53, 54, 55, 60)
			bench.at(70)
			g.Expect(bench.flapping().Status).To(Equal(metav1.ConditionFalse))
			g.Expect(keptFiring(bench.status())).NotTo(BeNil())
			if bench.now = minute(7); event == nil {
				bench.fold()
			} else {
				bench.fold(event)
			}
			g.Expect(keptFiring(bench.status())).To(BeNil())
			for _, n := range []int{7, 8, 64} {
				g.Expect(EndIsKeptBack(bench.status(), minute(n))).To(BeFalse())
			}
			g.Expect(bench.at(8).IsIdle()).To(BeTrue())
		})
	}
}

func TestTheSeverityDoesNotFallWhileAnIncidentFlaps(t *testing.T) {
	g, bench := NewWithT(t), unsteadyBench(5)
	fires := func(n int, severity v1alpha1.Severity) { bench.at(n, eventOf(n, firingAt(severity))) }
	bench.toggle(1, 2, 3, 4, 5, 6)
	fires(7, "warning")
	g.Expect(ForwardedSeverity(bench.status())).To(Equal(v1alpha1.SeverityError))
	g.Expect(ForwardedEnd(bench.status())).To(BeZero(), "it is open")
	fires(8, "critical")
	g.Expect(ForwardedSeverity(bench.status())).To(Equal(v1alpha1.SeverityCritical), "a rise counts at once")
	fires(9, "info")
	g.Expect(ForwardedSeverity(bench.status())).To(Equal(v1alpha1.SeverityCritical))
	g.Expect(ForwardedPeriods(bench.status())[2:]).To(Equal([]SeverityPeriod{
		{Severity: "error", From: minute(5), To: minute(8)}, {Severity: "critical", From: minute(8)},
	}), "Alertmanager was told of no other")
	bench.toggle(10)
	g.Expect(ForwardedPeriods(bench.status())[2:]).To(Equal([]SeverityPeriod{
		{Severity: "error", From: minute(5), To: minute(8)}, {Severity: "critical", From: minute(8), To: minute(15)},
	}))
	fires(14, "warning")
	g.Expect(ForwardedSeverity(bench.status())).To(Equal(v1alpha1.SeverityCritical))
	bench.at(17)
	g.Expect(bench.flapping().Status).To(Equal(metav1.ConditionFalse))
	g.Expect(ForwardedSeverity(bench.status())).To(Equal(v1alpha1.SeverityWarning), "no longer than it flaps")
	g.Expect(ForwardedPeriods(bench.status())[3:]).To(Equal([]SeverityPeriod{
		{Severity: "critical", From: minute(8), To: minute(15)}, {Severity: "warning", From: minute(14)},
	}))
	bench.at(18, eventOf(18, resolvedByMaria()))
	g.Expect(ForwardedPeriods(bench.status())).To(ContainElement(SeverityPeriod{Severity: "warning", From: minute(14), To: minute(18)}))
}

func TestTheSeverityFallsWhenAnIncidentFlapsNoMore(t *testing.T) {
	g, bench := NewWithT(t), unsteadyBench(5)
	bench.toggle(1, 2, 3, 4, 5, 6, 7) // its end was kept back until minute 11, and it flaps until minute 13
	bench.at(8, eventOf(8, firingAt("info")))
	bench.at(13)
	g.Expect(ForwardedPeriods(bench.status())[2:]).To(Equal([]SeverityPeriod{
		{Severity: "error", From: minute(5), To: minute(13)}, {Severity: "info", From: minute(8)},
	}))
}

// The timeline is short, and people may fill it.
func TestWhatWasForwardedBeforeTheTimelineBegins(t *testing.T) {
	for sentence, c := range map[string]struct {
		happens func(b *foldBench)
		want    []SeverityPeriod
	}{
		"a timeline of the last episode": {func(b *foldBench) { b.note(7, 17) },
			[]SeverityPeriod{{Severity: "error", From: minute(5), To: minute(11)}}},
		"a timeline of the last two, and the severity has risen": {func(b *foldBench) {
			b.toggle(7)
			b.at(8, eventOf(8, firingAt("critical")))
			b.note(9, 16)
		}, []SeverityPeriod{{Severity: "error", From: minute(5), To: minute(8)}, {Severity: "critical", From: minute(8)}}},
		"a timeline of notes": {func(b *foldBench) { b.note(7, 20) },
			[]SeverityPeriod{{Severity: "error", From: minute(6), To: minute(11)}}},
		"a timeline that begins after the end was kept back": {func(b *foldBench) {
			b.toggle(7)
			b.note(8, 19)
			b.at(9, eventOf(9, firingAt("info")))
		}, []SeverityPeriod{{Severity: "error", From: minute(6)}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			bench := unsteadyBench(5)
			bench.toggle(1, 2, 3, 4, 5, 6)
			c.happens(bench)
			NewWithT(t).Expect(ForwardedPeriods(bench.status())).To(Equal(c.want))
		})
	}
}

// A person ends what fires on with a severity that the episode never had.
func TestAPersonEndsTheHighestSeverity(t *testing.T) {
	g, bench := NewWithT(t), unsteadyBench(5)
	bench.toggle(1, 2, 3, 4, 5, 6)
	bench.at(7, eventOf(7, firingAt("info")))
	bench.at(8, eventOf(8, resolvedByMaria()))
	g.Expect(EndIsKeptBack(bench.status(), minute(8))).To(BeFalse())
	periods := ForwardedPeriods(bench.status())
	g.Expect(periods[len(periods)-1]).To(Equal(SeverityPeriod{Severity: "error", From: minute(5), To: minute(8)}))
}

func TestFlappingInAMaintenanceWindow(t *testing.T) {
	g, bench := NewWithT(t), unsteadyBench(5)
	bench.toggle(1, 2, 3, 4, 5, 6)
	bench.maintain(windowOf("db", 7, 9))
	bench.toggle(8)
	g.Expect(bench.status().Mute).To(HaveValue(HaveField("ForwardedSeverity", v1alpha1.SeverityError)), "it fires in Alertmanager")
	bench.toggle(9)
	g.Expect(EndIsKeptBack(bench.status(), minute(13))).To(BeTrue())

	bench.at(20)
	bench.maintain(windowOf("db", 20, 30))
	bench.toggle(21, 22, 23, 24, 25, 26)
	g.Expect(bench.flapping().Status).To(Equal(metav1.ConditionTrue))
	g.Expect(keptFiring(bench.status())).To(BeNil(), "what the window has kept from Alertmanager has no end to keep back")
	bench.maintain()
	bench.toggle(27)
	g.Expect(bench.status().Mute).To(BeNil())
}

func TestWhatFiresOnStaysPosted(t *testing.T) {
	g, bench := NewWithT(t), unsteadyBench(5)
	bench.toggle(1, 2, 3, 4, 5)
	told := &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingPosted, Severity: "error", Alertmanagers: 2, Time: *minuteStamp(5)}
	bench.status().Forwarding = told
	bench.toggle(6, 7)
	g.Expect(bench.status().Forwarding).To(Equal(told), "nobody is told anew")
	bench.toggle(8)
	bench.at(13)
	bench.toggle(14)
	g.Expect(bench.status().Forwarding).To(BeNil())
}

func TestAnIncidentIsKeptUntilItsEndIsForwarded(t *testing.T) {
	g, bench := NewWithT(t), unsteadyBench(5)
	bench.policy.Retention = 0
	bench.toggle(1, 2, 3, 4, 5, 6)
	at, ok := Deadline(bench.incident, bench.policy)
	g.Expect(ok).To(BeTrue())
	g.Expect(at).To(Equal(minute(11).Add(forwardedEndRetention)))
}

// TestFlappingDoesNotDependOnBatching folds the same alerts, as many at once as comes, and compares what is known of the flapping.
func TestFlappingDoesNotDependOnBatching(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alert := rapid.Custom(func(t *rapid.T) v1alpha1.Alert {
			return alertOf(rapid.SampledFrom([]v1alpha1.AlertStatus{"firing", "resolved"}).Draw(t, "status"),
				v1alpha1.AlertContent{Severity: rapid.SampledFrom(v1alpha1.Severities()).Draw(t, "severity")})
		})
		alerts := rapid.SliceOfN(alert, 1, 30).Draw(t, "alerts")
		keep := rapid.IntRange(0, 6).Draw(t, "keep")
		benches := [2]*foldBench{unsteadyBench(keep), unsteadyBench(keep)}
		foldInBatches(t, benches, alerts)
		if g := NewWithT(t); benches[0].incident != nil {
			g.Expect(benches[1].status().Flapping).To(Equal(benches[0].status().Flapping))
			g.Expect(benches[1].flapping()).To(Equal(benches[0].flapping()))
			g.Expect(benches[1].status().Timeline).To(Equal(benches[0].status().Timeline))
		}
	})
}

// TestFlappingFollowsTheOpenings folds alerts at any times, and compares the condition with the openings of the last ten minutes.
// While the Incident flaps, it is forwarded until it has been Resolved for the keepFiringFor, and then no longer.
func TestFlappingFollowsTheOpenings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.SampledFrom([]int{0, 1, 4, 15}).Draw(t, "keep")
		g, bench := NewWithT(t), unsteadyBench(keep)
		var openings []int
		kept, resolved := false, 0 // the end is kept back; when it was
		highest := v1alpha1.Severity("")
		for n := range 60 {
			var events []*v1alpha1.AlertEvent
			if rapid.IntRange(0, 2).Draw(t, "quiet") == 0 || n == 0 {
				status := rapid.SampledFrom([]v1alpha1.AlertStatus{"firing", "resolved"}).Draw(t, "status")
				severity := rapid.SampledFrom(v1alpha1.Severities()).Draw(t, "severity")
				events = append(events, eventOf(n, alertOf(status, v1alpha1.AlertContent{Severity: severity})))
			}
			plan := bench.at(n, events...)
			if bench.incident == nil {
				continue
			}
			results, isOpen := resultsOf(*plan), bench.status().State == v1alpha1.IncidentOpen
			if slices.Contains(results, ResultOpened) || slices.Contains(results, ResultReopened) {
				openings = append(openings, n)
			}
			recent := slices.DeleteFunc(slices.Clone(openings), func(at int) bool { return n-at >= 10 })
			flaps := meta.IsStatusConditionTrue(bench.status().Conditions, v1alpha1.ConditionFlapping)
			if slices.Contains(results, ResultResolved) {
				kept, resolved = flaps && keep > 0, n
			}
			if isReopened := slices.Contains(results, ResultReopened); (!isOpen || isReopened) && n-resolved >= keep {
				kept = false
			}
			if keep == 0 {
				g.Expect(flaps).To(Equal(len(recent) > 2), "openings in minutes %v", openings)
			} else if len(recent) > 2 {
				g.Expect(flaps).To(BeTrue())
			}
			g.Expect(bench.isForwarded()).To(Equal(isOpen || kept), "in minute %d", n)
			forwarded := ForwardedSeverity(bench.status())
			if flaps && kept {
				g.Expect(highest == "" || !IsMoreSevere(highest, forwarded)).To(BeTrue(), "%s after %s", forwarded, highest)
				highest = forwarded
			} else {
				highest = ""
			}
		}
	})
}
