package page

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const intervals = 48

// count is the maximum number of Incidents that were open at the same time in an interval, by their last severity.
type count struct {
	Start    time.Time                 `json:"start"`
	Severity map[v1alpha1.Severity]int `json:"severity"`
}

// counts holds the counts of all intervals, oldest first.
type counts struct {
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Counts []count   `json:"counts"`
	// Most is the maximum of all intervals.
	Most int `json:"most"`
}

// turn is a time at which an Incident was opened or resolved.
type turn struct {
	at       time.Time
	change   int
	severity v1alpha1.Severity
}

// countOpen counts the Incidents that were open in the time span before now. It covers the newest 20 transitions of
// each Incident, which its timeline keeps, and no deleted Incidents.
func countOpen(incidents []*v1alpha1.Incident, now time.Time, span time.Duration) counts {
	from := now.Add(-span)
	step := span / intervals
	turns := turnsOf(incidents, now)
	result := counts{From: from, To: now, Counts: make([]count, intervals)}
	open, total := map[v1alpha1.Severity]int{}, 0
	pass := func() {
		open[turns[0].severity] += turns[0].change
		total += turns[0].change
		turns = turns[1:]
	}
	for i := range result.Counts {
		one := &result.Counts[i]
		one.Start = from.Add(time.Duration(i) * step)
		end := one.Start.Add(step)
		for len(turns) > 0 && !turns[0].at.After(one.Start) {
			pass()
		}
		most := total
		one.Severity = maps.Clone(open)
		for len(turns) > 0 && (turns[0].at.Before(end) || i == intervals-1 && !turns[0].at.After(now)) {
			pass()
			if total > most {
				most = total
				one.Severity = maps.Clone(open)
			}
		}
		maps.DeleteFunc(one.Severity, func(_ v1alpha1.Severity, n int) bool { return n == 0 })
		result.Most = max(result.Most, most)
	}
	return result
}

// turnsOf returns the times at which Incidents were opened or resolved, in order; at the same time, resolves come first.
func turnsOf(incidents []*v1alpha1.Incident, now time.Time) []turn {
	var turns []turn
	for _, incident := range incidents {
		severity := incident.Status.Alert.Severity
		episodes(incident, now, func(from, to time.Time) {
			turns = append(turns, turn{from, 1, severity}, turn{to, -1, severity})
		})
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.change, b.change)) })
	return turns
}

// episodes calls add for each span [from, to) in which an Incident was open by its timeline, in order and without overlap.
func episodes(incident *v1alpha1.Incident, now time.Time, add func(from, to time.Time)) {
	var end time.Time // of the last span
	span := func(from, to time.Time) {
		if from.Before(end) {
			from = end
		}
		if from.Before(to) {
			add(from, to)
			end = to
		}
	}
	var open *time.Time
	known := false // the timeline has a complete episode
	for i := range incident.Status.Timeline {
		transition := &incident.Status.Timeline[i]
		if transition.Type == v1alpha1.TransitionOpened || transition.Type == v1alpha1.TransitionReopened {
			open = &transition.Time.Time
		}
		if transition.Type == v1alpha1.TransitionResolved && open != nil {
			known = true
			span(*open, transition.Time.Time)
			open = nil
		}
	}
	status := &incident.Status
	switch {
	case status.State == v1alpha1.IncidentOpen && status.OpenedTime != nil:
		span(status.OpenedTime.Time, now.Add(time.Nanosecond)) // including now
	case !known && open == nil && status.OpenedTime != nil && status.ResolvedTime != nil:
		// The timeline no longer has the start of the last episode.
		span(status.OpenedTime.Time, status.ResolvedTime.Time)
	}
}
