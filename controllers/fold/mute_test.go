package fold

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

// at folds at a minute.
func (b *foldBench) at(n int, events ...*v1alpha1.AlertEvent) *Plan {
	b.now = minute(n)
	return new(b.fold(events...))
}

// windowOf returns a window between two minutes.
func windowOf(name string, from, to int, severities ...v1alpha1.Severity) v1alpha1.MaintenanceWindow {
	window := testenv.Window("team", name, minute(from), minute(to))
	if len(severities) > 0 {
		window.Spec.Match = &v1alpha1.MaintenanceMatch{Severities: severities}
	}
	return window
}

func (b *foldBench) maintain(windows ...v1alpha1.MaintenanceWindow) {
	b.policy.Muting = maintenance.New(windows...)
}

// TestAMuteDoesNotDependOnBatching folds the same alerts at the same times, as many at once as comes, and compares the records.
func TestAMuteDoesNotDependOnBatching(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		windows := []v1alpha1.MaintenanceWindow{windowOf("all", 2, 5), windowOf("low", 4, 8, "warning", "info")}
		alert := rapid.Custom(func(t *rapid.T) v1alpha1.Alert {
			return alertOf(rapid.SampledFrom([]v1alpha1.AlertStatus{"firing", "firing", "resolved", "acknowledged"}).Draw(t, "status"),
				v1alpha1.AlertContent{Severity: rapid.SampledFrom([]v1alpha1.Severity{"", "critical", "info"}).Draw(t, "severity")})
		})
		var benches [2]*foldBench
		for i := range benches {
			benches[i] = newBench()
			benches[i].policy.LateFiringWindow = 0
			benches[i].maintain(windows...)
		}
		for n := range 10 {
			alerts := rapid.SliceOfN(alert, 0, 4).Draw(t, "alerts")
			for _, bench := range benches {
				for rest, id := alerts, 10*n; len(rest) > 0; {
					size := rapid.IntRange(1, len(rest)).Draw(t, "folded at once")
					var events []*v1alpha1.AlertEvent
					for j := range rest[:size] {
						event := eventOf(id, rest[j])
						event.Alerts[0].ID = fmt.Sprintf("alert-%d", id)
						events = append(events, receivedAt(event, minute(n)))
						id++
					}
					bench.at(n, events...)
					rest = rest[size:]
				}
			}
			if benches[0].incident != nil {
				NewWithT(t).Expect(benches[1].status().Mute).To(Equal(benches[0].status().Mute), "at minute %d", n)
				in := benches[0].input()
				if in.Now = Due(in.Incident, &in.Policy); !in.Now.IsZero() {
					NewWithT(t).Expect(Decide(in).Write).To(BeTrue(), "it is folded again and again")
				}
			}
		}
	})
}

func TestAnIncidentIsMuted(t *testing.T) {
	start := func(t *testing.T, windows ...v1alpha1.MaintenanceWindow) (*WithT, *foldBench) {
		t.Helper()
		bench := newBench()
		bench.policy.LateFiringWindow = 0
		bench.maintain(windows...)
		return NewWithT(t), bench
	}
	critical := alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Severity: "critical"})

	t.Run("from its first write on if a window is open, until that ends", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.at(12, eventOf(12, firingAlert()))
		g.Expect(bench.status().Mute).To(Equal(&v1alpha1.Mute{StartTime: *minuteStamp(12), Window: "db", EndTime: minuteStamp(20)}))
		g.Expect(bench.at(19).IsIdle()).To(BeTrue(), "nothing is written in between")
		p := bench.at(20)
		g.Expect(p.Write).To(BeTrue())
		g.Expect(p.Urgent).To(BeFalse(), "changes of the windows write an Incident once a second at most")
		g.Expect(bench.status().Mute).To(BeNil())
		g.Expect(bench.at(21).IsIdle()).To(BeTrue())
	})
	t.Run("when a window opens, and keeps the severity with which it was forwarded", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.at(1, eventOf(1, firingAlert()))
		g.Expect(bench.status().Mute).To(BeNil())
		g.Expect(bench.at(10).Write).To(BeTrue())
		want := &v1alpha1.Mute{StartTime: *minuteStamp(10), Window: "db", EndTime: minuteStamp(20), ForwardedSeverity: "warning"}
		g.Expect(bench.status().Mute).To(Equal(want))
		bench.at(11, eventOf(11, critical))
		g.Expect(bench.status().Alert.Severity).To(Equal(v1alpha1.SeverityCritical))
		g.Expect(bench.status().Mute).To(Equal(want))
	})
	t.Run("and stays so while nobody knows the windows, until the end that was known", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.at(12, eventOf(12, firingAlert()))
		want := bench.status().Mute.DeepCopy()
		bench.policy.Stub, bench.policy.Muting = true, nil
		stored := bench.status().DeepCopy()
		p := bench.at(13, eventOf(13, critical))
		g.Expect(bench.status().Mute).To(Equal(want))
		g.Expect(p.WithoutContent(stored, &bench.policy, "too large", bench.now).Status.Mute).To(Equal(want))
		bench.at(20)
		g.Expect(bench.status().Mute).To(BeNil())
		bench.at(21, eventOf(21, critical))
		g.Expect(bench.status().Mute).To(BeNil(), "nothing is hidden by a window that may be open")
	})
	t.Run("by the next window, with the severity with which it was posted after the last one", func(t *testing.T) {
		for _, told := range []v1alpha1.Severity{"warning", ""} {
			g, bench := start(t, windowOf("db", 10, 20), windowOf("web", 22, 30))
			bench.at(12, eventOf(12, firingAlert()))
			if told != "" { // no status could be written meanwhile
				bench.told = postedAs(told, 12)
			}
			bench.at(23)
			g.Expect(bench.status().Mute.Window).To(Equal("web"))
			g.Expect(bench.status().Mute.ForwardedSeverity).To(Equal(told))
		}
	})
	t.Run("by the alert that raises its severity, if that comes first", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.at(1, eventOf(1, firingAlert()))
		bench.at(11, eventOf(11, critical))
		g.Expect(bench.status().Mute.ForwardedSeverity).To(Equal(v1alpha1.SeverityWarning))
	})
	t.Run("and what was forwarded has an end, and what was not has none", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.at(1, eventOf(1, firingAlert()))
		bench.at(10)
		bench.at(11, eventOf(11, resolvingAlert()))
		g.Expect(bench.status().Mute).To(Equal(&v1alpha1.Mute{StartTime: *minuteStamp(10), ForwardedSeverity: "warning"}))
		bench.at(12, eventOf(12, firingAlert()))
		g.Expect(bench.status().Mute).To(Equal(&v1alpha1.Mute{StartTime: *minuteStamp(12), Window: "db", EndTime: minuteStamp(20)}))
		bench.at(13, eventOf(13, resolvingAlert()))
		g.Expect(bench.status().Mute).To(Equal(&v1alpha1.Mute{StartTime: *minuteStamp(12)}))
		g.Expect(bench.at(30).IsIdle()).To(BeTrue(), "the end of a window writes no Resolved Incident")
		bench.at(31, eventOf(31, firingAlert()))
		g.Expect(bench.status().Mute).To(BeNil())
	})
	t.Run("until it is resolved, although the window has ended before, if nobody has folded that", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.at(12, eventOf(12, firingAlert()))
		bench.at(21, eventOf(21, resolvingAlert()))
		g.Expect(bench.status().Mute).To(Equal(&v1alpha1.Mute{StartTime: *minuteStamp(12)}), "what was never forwarded has no end")
	})
	t.Run("as one that was never forwarded if it is resolved and opened again in one fold", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.at(1, eventOf(1, firingAlert()))
		bench.at(10)
		bench.at(12, eventOf(11, resolvingAlert()), eventOf(12, firingAlert()))
		g.Expect(bench.status().Mute).To(Equal(&v1alpha1.Mute{StartTime: *minuteStamp(12), Window: "db", EndTime: minuteStamp(20)}))
	})
	t.Run("if it opens and is resolved in one fold", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.at(11, eventOf(11, firingAlert(), resolvingAlert()))
		g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentResolved))
		g.Expect(bench.status().Mute).To(Equal(&v1alpha1.Mute{StartTime: *minuteStamp(11)}))
		bench.at(21, eventOf(21, firingAlert(), resolvingAlert()))
		g.Expect(bench.status().Mute).To(BeNil(), "of the next episode")
	})
	t.Run("not by its end", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.at(1, eventOf(1, firingAlert()))
		bench.at(11, eventOf(11, resolvingAlert()))
		g.Expect(bench.status().Mute).To(BeNil())
	})
	t.Run("only while its severity matches", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20, "warning", "info"))
		bench.at(11, eventOf(11, firingAlert()))
		g.Expect(bench.status().Mute).NotTo(BeNil())
		bench.at(12, eventOf(12, critical))
		g.Expect(bench.status().Mute).To(BeNil())
		bench.at(13, eventOf(13, alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{Severity: "info"})))
		g.Expect(bench.status().Mute.ForwardedSeverity).To(Equal(v1alpha1.SeverityCritical))
	})
	t.Run("until the window is deleted", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.at(11, eventOf(11, firingAlert()))
		bench.policy.Muting = nil
		g.Expect(bench.at(12).Write).To(BeTrue())
		g.Expect(bench.status().Mute).To(BeNil())
	})
	t.Run("until another time if the window is changed", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.at(11, eventOf(11, firingAlert()))
		bench.maintain(windowOf("db", 10, 20), windowOf("next", 15, 40))
		bench.at(12)
		g.Expect(bench.status().Mute).To(Equal(&v1alpha1.Mute{StartTime: *minuteStamp(11), Window: "next", EndTime: minuteStamp(40)}))
		g.Expect(bench.at(25).IsIdle()).To(BeTrue(), "one window follows another without a break")
		bench.maintain(windowOf("another", 15, 40))
		bench.at(26)
		g.Expect(bench.status().Mute.Window).To(Equal("another"))
		bench.maintain(windowOf("another", 15, 50))
		bench.at(27)
		g.Expect(bench.status().Mute.EndTime).To(Equal(minuteStamp(50)))
	})
	t.Run("also if the content of its alerts is rejected", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.now = minute(11)
		p := Decide(bench.input(eventOf(11, firingAlert())))
		bare := p.WithoutContent(&v1alpha1.IncidentStatus{}, &bench.policy, "too large", bench.now)
		g.Expect(bare.Status.Mute.EndTime.Time).To(Equal(minute(20)))

		window := windowOf("db", 10, 20)
		window.Spec.Match = &v1alpha1.MaintenanceMatch{Labels: map[string]v1alpha1.LabelValue{"team": "storage"}}
		bench.maintain(window)
		storage := v1alpha1.AlertContent{Labels: map[string]string{"team": "storage"}}
		p = Decide(bench.input(eventOf(11, alertOf(v1alpha1.AlertFiring, storage))))
		g.Expect(p.Status.Mute).NotTo(BeNil())
		bare = p.WithoutContent(&v1alpha1.IncidentStatus{}, &bench.policy, "too large", bench.now)
		g.Expect(bare.Status.Mute).To(BeNil(), "nothing tells any more that the window matches")
	})
	t.Run("until the window's end while the integration is absent", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.at(11, eventOf(11, firingAlert()))
		policy := bench.policy
		bench.policy = PolicyOf(nil, nil)
		g.Expect(bench.at(12).IsIdle()).To(BeTrue(), "it may be created again at once")
		bench.policy = policy
		g.Expect(bench.at(13).IsIdle()).To(BeTrue())
		g.Expect(bench.status().Mute.ForwardedSeverity).To(BeEmpty(), "it was never forwarded")
		bench.policy = PolicyOf(nil, nil)
		g.Expect(Due(bench.incident, &bench.policy)).To(Equal(minute(20)), "nothing else has it folded then")
		bench.at(20)
		g.Expect(bench.status().Mute).To(BeNil())
		g.Expect(Due(bench.incident, &bench.policy)).To(BeZero())
	})
	t.Run("until a time at which it changes, unless it is resolved", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20), windowOf("next", 30, 40))
		bench.at(11, eventOf(11, firingAlert()))
		bench.maintain(windowOf("db", 10, 20), windowOf("longer", 15, 40))
		g.Expect(Due(bench.incident, &bench.policy)).To(Equal(minute(20)))
		g.Expect(bench.at(20).Write).To(BeTrue())
		g.Expect(Due(bench.incident, &bench.policy)).To(Equal(minute(40)))
		bench.at(21, eventOf(21, resolvingAlert()))
		g.Expect(Due(bench.incident, &bench.policy)).To(BeZero())
	})
	t.Run("and resolves by itself all the same", func(t *testing.T) {
		g, bench := start(t, windowOf("db", 10, 20))
		bench.policy.AutoResolveAfter = time.Minute
		bench.at(11, eventOf(11, firingAlert()))
		bench.at(13)
		g.Expect(bench.status().State).To(Equal(v1alpha1.IncidentResolved))
		g.Expect(bench.status().Mute).To(Equal(&v1alpha1.Mute{StartTime: *minuteStamp(11)}))
	})
}
