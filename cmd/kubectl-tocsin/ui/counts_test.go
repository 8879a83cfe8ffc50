package ui

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/live"
)

func change(name string, gone bool) live.Change {
	return live.Change{Incident: incidentNamed("shop", name), Gone: gone}
}

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
		"from before the time into it":                   {[]transition{{opened, 100}, {resolved, 46}}, false, 100, ago(48, 46)},
		"each episode counts, the gap between does not":  {[]transition{{opened, 40}, {resolved, 38}, {reopened, 10}, {resolved, 9}}, false, 10, append(ago(40, 38), ago(10, 9)...)},
		"two episodes in one interval count once":        {[]transition{{opened, 10}, {resolved, 10}, {reopened, 10}, {resolved, 10}}, false, 10, ago(10, 10)},
		"other transitions end nothing":                  {[]transition{{opened, 5}, {worse, 4}}, true, 5, ago(5, 1)},
		"a beginning that the timeline forgot, open":     {[]transition{{worse, 4}}, true, 6, ago(6, 1)},
		"a beginning that the timeline forgot, resolved": {[]transition{{worse, 4}, {resolved, 3}}, false, 6, ago(6, 3)},
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
