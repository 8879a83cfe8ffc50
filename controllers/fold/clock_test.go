package fold

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const day = 24 * 60 // minutes

// tomorrow folds an alert that is received and stored in the n-th minute, by a clock that is a day ahead.
func (b *foldBench) tomorrow(n int, alert v1alpha1.Alert) {
	b.at(day+n, receivedAt(eventOf(n, alert), minute(day+n)))
}

// aheadBench has an Incident that opened while the clock was a day ahead.
func aheadBench() *foldBench {
	bench := newBench()
	bench.policy.AutoResolveAfter, bench.policy.Retention = time.Hour, 2*time.Hour
	bench.tomorrow(1, firingAlert())
	return bench
}

func TestNoTimeOfTheFutureCountsAfterTheClockWasSetBack(t *testing.T) {
	resolved := func(b *foldBench) bool { return b.status().State == v1alpha1.IncidentResolved }
	reason := func(b *foldBench) string {
		return meta.FindStatusCondition(b.status().Conditions, v1alpha1.ConditionResolved).Reason
	}
	expiring := firingAlert()
	expiring.ExpiryTime = minuteStamp(day + 11)
	for sentence, c := range map[string]struct {
		happens func(b *foldBench) // while the clock is a day ahead
		after   int                // minutes from the fold after it was set back, in the third minute
		becomes func(b *foldBench) bool
	}{
		"an Incident resolves by itself": {
			after: 60, becomes: func(b *foldBench) bool { return resolved(b) && reason(b) == v1alpha1.ReasonAutoResolved },
		},
		"an Incident expires": {
			happens: func(b *foldBench) { b.tomorrow(2, expiring) },
			after:   10, becomes: func(b *foldBench) bool { return resolved(b) && reason(b) == v1alpha1.ReasonExpired },
		},
		"an acknowledgement expires": {
			happens: func(b *foldBench) { b.tomorrow(2, acknowledgedFor(30)) },
			after:   31, becomes: func(b *foldBench) bool { return b.status().Acknowledgement == nil },
		},
		"a Resolved Incident is deleted": {
			happens: func(b *foldBench) { b.tomorrow(2, resolvingAlert()) },
			after:   120, becomes: func(b *foldBench) bool {
				at, ok := Deadline(b.incident, b.policy)
				return ok && !b.now.Before(at)
			},
		},
		"a Resolved Incident without an integration is deleted": {
			happens: func(b *foldBench) {
				b.at(2, eventOf(2, resolvingAlert()))
				b.policy = PolicyOf(nil, nil)
				b.status().OrphanedTime = minuteStamp(day + 2)
			},
			after: 7 * day, becomes: func(b *foldBench) bool {
				at, ok := Deadline(b.incident, b.policy)
				return ok && !b.now.Before(at)
			},
		},
	} {
		for how, isBare := range map[string]bool{"": false, ", its content rejected": true} {
			t.Run(sentence+how, func(t *testing.T) {
				g, bench := NewWithT(t), aheadBench()
				if c.happens != nil {
					c.happens(bench)
				}
				stored := bench.status().DeepCopy()
				p := bench.at(3)
				if isBare {
					bench.incident.Status = p.WithoutContent(stored, &bench.policy, "rejected", bench.now).Status
				}
				g.Expect([]bool{p.Write, p.Urgent, p.ByTime}).To(Equal([]bool{true, false, false}))
				g.Expect(bench.at(3).IsIdle()).To(BeTrue(), "it is written once")
				g.Expect(bench.at(4).IsIdle()).To(BeTrue())
				g.Expect(c.becomes(bench)).To(BeFalse())
				if due := Due(bench.incident, &bench.policy); !due.IsZero() {
					g.Expect(due).To(BeTemporally("<=", minute(3+c.after)))
				}
				bench.at(3 + c.after - 1)
				g.Expect(c.becomes(bench)).To(BeFalse())
				bench.at(3 + c.after)
				g.Expect(c.becomes(bench)).To(BeTrue())
			})
		}
	}
}

func TestATimeStaysAsItWasNoted(t *testing.T) {
	for sentence, now := range map[string]func(b *foldBench) time.Time{
		"if it is ahead by as much as clocks differ": func(*foldBench) time.Time { return minute(day) },
		"while the time is not certain": func(b *foldBench) time.Time {
			b.policy.QuietFrom, b.policy.Uncertain = minute(3), true
			return minute(3)
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			bench := aheadBench()
			bench.now = now(bench)
			NewWithT(t).Expect(bench.fold().Write).To(BeFalse())
		})
	}
}

func TestAStubOfAnIntegrationHasTimesCorrected(t *testing.T) {
	g, bench := NewWithT(t), aheadBench()
	bench.policy.Stub, bench.policy.QuietFrom = true, minute(3)
	g.Expect(bench.at(3).Write).To(BeTrue())
	g.Expect(bench.status().LastAlertTime).To(Equal(minuteStamp(3)))
}

// acknowledgedBy is another user's report that acknowledges the Incident for some minutes.
func acknowledgedBy(user string, n int) v1alpha1.Alert {
	alert := acknowledgedFor(n)
	alert.By = user
	return alert
}

func TestTheEndOfAFurtherAcknowledgement(t *testing.T) {
	right := func(b *foldBench) { b.at(4, setBack(4, acknowledgedBy("ivan", 480))) }
	for sentence, c := range map[string]struct {
		happens func(b *foldBench)
		until   *v1alpha1.Timestamp
	}{
		"stays if it is by the right clock": {until: minuteStamp(484), happens: func(b *foldBench) {
			b.tomorrow(2, acknowledgedFor(30))
			right(b)
		}},
		"stays if it is by the right clock, and both are folded at once": {until: minuteStamp(484), happens: func(b *foldBench) {
			first := receivedAt(eventOf(2, acknowledgedFor(30)), minute(day+2))
			in := b.input(first, setBack(4, acknowledgedBy("ivan", 480)))
			in.Now = minute(4)
			b.incident.Status = Decide(in).Status
		}},
		"stays if it is by the right clock, and the first one has no end": {until: minuteStamp(484), happens: func(b *foldBench) {
			b.tomorrow(2, acknowledgedFor(0))
			right(b)
		}},
		"is bounded if only the further one was of the future": {until: minuteStamp(5 + 30*day), happens: func(b *foldBench) {
			b.at(1, setBack(1, acknowledgedFor(30)))
			b.at(100*day, receivedAt(eventOf(2000, acknowledgedBy("ivan", 480)), minute(100*day)))
			b.at(5)
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, bench := NewWithT(t), aheadBench()
			c.happens(bench)
			g.Expect(bench.status().Acknowledgement.By).To(Equal("maria"))
			g.Expect(bench.status().Acknowledgement.ExpirationTime).To(Equal(c.until))
			g.Expect(bench.at(6).IsIdle()).To(BeTrue(), "it is written once")
		})
	}
}

func TestADescriptionOfAnEpisodeHasNoEndInTheFuture(t *testing.T) {
	g, bench := NewWithT(t), aheadBench()
	bench.archiveRequired = true
	bench.tomorrow(2, acknowledgedFor(30))
	bench.tomorrow(3, resolvingAlert())
	digest := bench.digest()
	bench.at(4)
	episode, ok := DescribeEpisode(bench.status())
	g.Expect(ok).To(BeTrue())
	g.Expect([]v1alpha1.Timestamp{episode.ResolvedTime, episode.LastAlertTime, episode.AcknowledgedTime}).To(
		HaveEach(*minuteStamp(4)))
	g.Expect(bench.digest()).To(Equal(digest), "the alerts are the same")
}

// TestWhateverAWrongClockHasNotedEndsInTime folds alerts while the clock is ahead, sets it back, and folds others.
func TestWhateverAWrongClockHasNotedEndsInTime(t *testing.T) {
	const length, folds = 30 * time.Minute, 6
	alerts := map[string]v1alpha1.Alert{
		"firing": firingAlert(), "resolved": resolvingAlert(), "acknowledged": acknowledgedFor(30),
		"unacknowledged": alertOf(v1alpha1.AlertUnacknowledged, v1alpha1.AlertContent{}), "nothing": {},
	}
	kinds := []string{"firing", "firing", "resolved", "acknowledged", "unacknowledged", "nothing"}
	rapid.Check(t, func(t *rapid.T) {
		g, bench := NewWithT(t), newBench()
		bench.policy = Policy{AutoResolveAfter: length, Retention: length, AcknowledgementExpiresAfter: length}
		ahead := time.Duration(rapid.IntRange(0, 3*day).Draw(t, "minutes ahead")) * time.Minute
		bench.now = minute(0).Add(ahead)
		bench.fold(receivedAt(eventOf(0, firingAlert()), bench.now))
		setBack := rapid.IntRange(1, folds).Draw(t, "set back before")
		for n := 1; n < folds; n++ {
			if bench.now = minute(n); n < setBack {
				bench.now = bench.now.Add(ahead)
			}
			if kind := rapid.SampledFrom(kinds).Draw(t, "alert"); kind != "nothing" {
				bench.fold(receivedAt(eventOf(n, alerts[kind]), bench.now))
			}
		}
		bench.at(folds)
		status, latest := bench.status(), bench.now.Add(MaxClockDifference+length+folds*time.Minute)
		for _, noted := range []*v1alpha1.Timestamp{status.LastAlertTime, status.ResolvedTime} {
			g.Expect(IsFuture(valueOf(noted).Time, bench.now)).To(BeFalse())
		}
		at, ok := Deadline(bench.incident, bench.policy)
		g.Expect(ok).To(BeTrue())
		g.Expect(at).To(BeTemporally("<=", latest))
		if given := status.Acknowledgement; given != nil {
			g.Expect(given.ExpirationTime.Time).To(BeTemporally("<=", latest))
		}
		g.Expect(bench.fold().Write).To(BeFalse(), "it is written once")
	})
}
