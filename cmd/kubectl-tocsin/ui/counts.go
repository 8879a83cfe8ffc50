package ui

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// intervals is into how many intervals the time that is looked at is divided.
const intervals = 48

// count is how many Incidents were open at some moment of an interval, by the severity that they have or had
// last.
type count struct {
	Start    time.Time                 `json:"start"`
	Severity map[v1alpha1.Severity]int `json:"severity"`
}

// counts are those of the intervals of a time that ends now, oldest first.
type counts struct {
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Counts []count   `json:"counts"`
}

// countOpen counts the Incidents that were open over the time before now. It knows of an Incident what its
// timeline has, the newest 20 transitions, and of one that was deleted nothing.
func countOpen(incidents []*v1alpha1.Incident, now time.Time, span time.Duration) counts {
	from := now.Add(-span)
	step := span / intervals
	result := counts{From: from, To: now, Counts: make([]count, intervals)}
	for i := range result.Counts {
		result.Counts[i] = count{Start: from.Add(time.Duration(i) * step), Severity: map[v1alpha1.Severity]int{}}
	}
	for _, incident := range incidents {
		var in [intervals]bool
		for _, episode := range episodes(incident, now) {
			first := max(0, int(episode.from.Sub(from)/step))
			last := min(intervals-1, int(episode.to.Sub(from)/step))
			if episode.to.Before(from) || episode.from.After(now) {
				continue
			}
			for i := first; i <= last; i++ {
				in[i] = true
			}
		}
		for i, open := range in {
			if open {
				result.Counts[i].Severity[incident.Status.Alert.Severity]++
			}
		}
	}
	return result
}

// stretch is a time from one moment to another.
type stretch struct{ from, to time.Time }

// episodes are when an Incident was open, as far as its timeline goes back.
func episodes(incident *v1alpha1.Incident, now time.Time) []stretch {
	var found []stretch
	var open *time.Time
	for i := range incident.Status.Timeline {
		transition := &incident.Status.Timeline[i]
		switch transition.Type {
		case v1alpha1.TransitionOpened, v1alpha1.TransitionReopened:
			open = &transition.Time.Time
		case v1alpha1.TransitionResolved:
			if open != nil {
				found = append(found, stretch{*open, transition.Time.Time})
			}
			open = nil
		case v1alpha1.TransitionAcknowledged, v1alpha1.TransitionSeverityChanged, v1alpha1.TransitionContentReplaced:
		}
	}
	status := &incident.Status
	switch {
	case len(found) == 0 && open == nil && status.OpenedTime != nil && status.ResolvedTime != nil:
		// The timeline has forgotten how the last episode began.
		found = append(found, stretch{status.OpenedTime.Time, status.ResolvedTime.Time})
	case status.State == v1alpha1.IncidentOpen && status.OpenedTime != nil:
		found = append(found, stretch{status.OpenedTime.Time, now})
	}
	return found
}
