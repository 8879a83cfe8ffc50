package fold

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// stale reports whether a resolve tells of a firing before the newest one. All times of the simulation are whole seconds.
func (r *simReplay) stale(alert *v1alpha1.Alert) bool {
	told := alert.EndTime
	if told == nil {
		told = alert.StartTime
	}
	return told != nil && alert.By == "" && told.Before(r.lastStart())
}

// lastStart is the latest startTime of the episode's firing alerts.
func (r *simReplay) lastStart() time.Time {
	var last time.Time
	for _, told := range r.episode {
		if t := told.alert.StartTime; t != nil && told.alert.Status == v1alpha1.AlertFiring && t.After(last) {
			last = t.Time
		}
	}
	return last
}

// over reports whether a firing tells of the episode that has ended.
func (r *simReplay) over(alert *v1alpha1.Alert, when time.Time) bool {
	if alert.StartTime == nil || r.view.Reason == "AutoResolved" || r.window == 0 || !when.Before(r.resolved.Add(r.window)) {
		return false
	}
	t := alert.StartTime.Time
	startTime, endTime := r.said()
	if startTime != nil && t.Equal(*startTime) || t.Equal(r.lastStart()) {
		return true
	}
	return !t.After(r.resolved) && (!t.After(r.start()) || !t.After(r.lastStart()) || endTime != nil && !t.After(*endTime))
}

// simReceived believes no time that is more than a minute after the creation, or more than five minutes before.
func simReceived(event *v1alpha1.AlertEvent) time.Time {
	received, created := event.Spec.ReceivedTime.Time, event.CreationTimestamp
	if received.IsZero() || received.After(created.Add(time.Minute)) || received.Before(created.Add(-5*time.Minute)) {
		return created.Time
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
