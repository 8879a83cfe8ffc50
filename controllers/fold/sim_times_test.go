package fold

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// stale reports whether a resolve tells of an episode before this one. All times of the simulation are whole seconds.
func (r *simReplay) stale(alert *v1alpha1.Alert) bool {
	startTime, _ := r.said()
	told := alert.EndTime
	if told == nil {
		told = alert.StartTime
	}
	return startTime != nil && told != nil && alert.By == "" && told.Before(*startTime)
}

// over reports whether a firing tells of the episode that has ended.
func (r *simReplay) over(alert *v1alpha1.Alert, when time.Time) bool {
	if alert.StartTime == nil || r.view.Reason == "AutoResolved" || r.window == 0 || !when.Before(r.resolved.Add(r.window)) {
		return false
	}
	t := alert.StartTime.Time
	startTime, endTime := r.said()
	if startTime != nil && t.Equal(*startTime) {
		return true
	}
	return !t.After(r.resolved) && (!t.After(r.start()) || endTime != nil && !t.After(*endTime))
}

// simReceived believes no time that is more than a minute after the creation.
func simReceived(event *v1alpha1.AlertEvent) time.Time {
	received := event.Spec.ReceivedTime.Time
	if received.IsZero() || received.After(event.CreationTimestamp.Add(time.Minute)) {
		return event.CreationTimestamp.Time
	}
	return received
}

// simHeard is no more than a minute before the creation.
func simHeard(event *v1alpha1.AlertEvent) time.Time {
	heard := simReceived(event)
	if earliest := event.CreationTimestamp.Add(-time.Minute); heard.Before(earliest) {
		heard = earliest
	}
	return heard
}
