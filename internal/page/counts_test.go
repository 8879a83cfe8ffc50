package page

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestCountOpen(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	at := func(minutesAgo int) v1alpha1.Timestamp {
		return v1alpha1.NewTimestamp(now.Add(-time.Duration(minutesAgo) * time.Minute))
	}
	// An interval has a minute: 48 of them are 48 minutes.
	const span = intervals * time.Minute
	type transition struct {
		kind       v1alpha1.TransitionType
		minutesAgo int
	}
	const (
		opened   = v1alpha1.TransitionOpened
		reopened = v1alpha1.TransitionReopened
		resolved = v1alpha1.TransitionResolved
		worse    = v1alpha1.TransitionSeverityChanged
	)
	for sentence, test := range map[string]struct {
		timeline []transition
		open     bool
		began    int   // openedTime
		want     []int // the intervals, as minutes ago
	}{
		"open since before the time counts in all":       {[]transition{{opened, 100}}, true, 100, ago(48, 1)},
		"open since then counts from then on":            {[]transition{{opened, 3}}, true, 3, ago(3, 1)},
		"over before the time counts nowhere":            {[]transition{{opened, 100}, {resolved, 60}}, false, 100, nil},
		"from before the time into it":                   {[]transition{{opened, 100}, {resolved, 46}}, false, 100, ago(48, 47)},
		"each episode counts, the gap between does not":  {[]transition{{opened, 40}, {resolved, 38}, {reopened, 10}, {resolved, 9}}, false, 10, append(ago(40, 39), ago(10, 10)...)},
		"an episode of no length was open at no moment":  {[]transition{{opened, 10}, {resolved, 10}, {reopened, 8}, {resolved, 7}}, false, 8, ago(8, 8)},
		"other transitions end nothing":                  {[]transition{{opened, 5}, {worse, 4}}, true, 5, ago(5, 1)},
		"a beginning that the timeline forgot, open":     {[]transition{{worse, 4}}, true, 6, ago(6, 1)},
		"a beginning that the timeline forgot, resolved": {[]transition{{worse, 4}, {resolved, 3}}, false, 6, ago(6, 4)},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			incident := incidentNamed("shop", "a")
			began := at(test.began)
			incident.Status.OpenedTime = &began
			for _, entry := range test.timeline {
				incident.Status.Timeline = append(incident.Status.Timeline, v1alpha1.Transition{Type: entry.kind, Time: at(entry.minutesAgo)})
			}
			if !test.open {
				ended := incident.Status.Timeline[len(incident.Status.Timeline)-1].Time
				incident.Status.State, incident.Status.ResolvedTime = v1alpha1.IncidentResolved, &ended
			}
			result := countOpen([]*v1alpha1.Incident{incident}, now, span)
			g.Expect(result.Counts).To(HaveLen(intervals))
			var got []int
			for i, one := range result.Counts {
				if one.Severity[v1alpha1.SeverityCritical] > 0 {
					g.Expect(one.Severity[v1alpha1.SeverityCritical]).To(Equal(1))
					got = append(got, intervals-i)
				}
			}
			g.Expect(got).To(Equal(test.want))
		})
	}
}

// ago are the intervals from one to another, both counted in minutes ago.
func ago(from, to int) []int {
	var list []int
	for i := from; i >= to; i-- {
		list = append(list, i)
	}
	return list
}

// modelIncident is an Incident that was open in some episodes, in seconds before now.
type modelIncident struct {
	severity v1alpha1.Severity
	episodes [][2]int // from, to; the last may end at -1: it is open
}

func (m modelIncident) openAt(secondsAgo int) bool {
	for _, episode := range m.episodes {
		if secondsAgo <= episode[0] && secondsAgo > episode[1] {
			return true
		}
	}
	return false
}

func drawIncident(t *rapid.T, longest int) modelIncident {
	m := modelIncident{severity: rapid.SampledFrom([]v1alpha1.Severity{"critical", "error", "warning", "info"}).Draw(t, "severity")}
	at := rapid.IntRange(1, longest).Draw(t, "opened")
	for at > 0 {
		to := rapid.IntRange(-1, at).Draw(t, "resolved")
		m.episodes = append(m.episodes, [2]int{at, to})
		if len(m.episodes) == 8 || to <= 0 {
			break
		}
		at = rapid.IntRange(0, to).Draw(t, "reopened")
	}
	return m
}

func (m modelIncident) incident(now time.Time) *v1alpha1.Incident {
	incident := incidentNamed("shop", "a")
	incident.Status.Alert.Severity = m.severity
	at := func(secondsAgo int) *v1alpha1.Timestamp {
		moment := v1alpha1.NewTimestamp(now.Add(-time.Duration(secondsAgo) * time.Second))
		return &moment
	}
	status := &incident.Status
	for i, episode := range m.episodes {
		kind := v1alpha1.TransitionReopened
		if i == 0 {
			kind = v1alpha1.TransitionOpened
		}
		status.State, status.OpenedTime, status.ResolvedTime = v1alpha1.IncidentOpen, at(episode[0]), nil
		status.Timeline = append(status.Timeline, v1alpha1.Transition{Type: kind, Time: *status.OpenedTime})
		if episode[1] >= 0 {
			status.State, status.ResolvedTime = v1alpha1.IncidentResolved, at(episode[1])
			status.Timeline = append(status.Timeline, v1alpha1.Transition{Type: v1alpha1.TransitionResolved, Time: *status.ResolvedTime})
		}
	}
	return incident
}

// TestCountOpenAgainstAModel compares the counts with those of a model that looks at every second.
func TestCountOpenAgainstAModel(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	const seconds = 3 * intervals
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		var incidents []*v1alpha1.Incident
		var model []modelIncident
		for range rapid.IntRange(0, 12).Draw(t, "incidents") {
			m := drawIncident(t, seconds+20)
			model = append(model, m)
			incidents = append(incidents, m.incident(now))
		}
		result := countOpen(incidents, now, seconds*time.Second)
		most := 0
		for i, one := range result.Counts {
			first := seconds - 3*i
			last := first - 2
			if i == intervals-1 {
				last = 0
			}
			best, want := -1, map[v1alpha1.Severity]int{}
			for second := first; second >= last; second-- {
				open, total := map[v1alpha1.Severity]int{}, 0
				for _, m := range model {
					if m.openAt(second) {
						open[m.severity]++
						total++
					}
				}
				if total > best {
					best, want = total, open
				}
			}
			g.Expect(one.Severity).To(Equal(want), "interval %d", i)
			most = max(most, best)
		}
		g.Expect(result.Most).To(Equal(most))
	})
}
