package fold

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Deadline is when the Incident's time is up: when an Open one resolves by itself, or a Resolved one or one without a
// status is to be deleted. ok is false when that never happens.
//
// A Resolved Incident's retention runs from its resolvedTime: alerts that come late do not prolong it. While its
// integration is gone, the retention that it last had counts, and the default retention from the orphanedTime on.
func Deadline(incident *v1alpha1.Incident, p Policy) (at time.Time, ok bool) {
	status := &incident.Status
	switch status.State {
	case v1alpha1.IncidentResolved:
		since, known := firstTime(status.ResolvedTime, status.LastAlertTime, &v1alpha1.Timestamp{Time: incident.CreationTimestamp.Time})
		retention := p.Retention
		if p.Absent {
			retention = retentionOf(status)
		}
		at = since.Add(max(0, retention))
		if p.Absent && isSet(status.OrphanedTime) {
			at = latest(at, status.OrphanedTime.Add(DefaultRetention))
		}
		return at, known
	case v1alpha1.IncidentOpen:
		at, _, ok = openDeadline(incident, p)
		return at, ok
	default: // created and not yet written: an alert is on its way, or its writer never came back
		created := incident.CreationTimestamp.Time
		return created.Add(EmptyPatience), !created.IsZero()
	}
}

// openDeadline is when an Open Incident resolves by itself: when its integration's autoResolveAfter has passed without an
// alert, or when its lease ends.
func openDeadline(incident *v1alpha1.Incident, p Policy) (at time.Time, expires, ok bool) {
	status := &incident.Status
	since, known := lastHeard(status, incident.CreationTimestamp.Time)
	if !known {
		return time.Time{}, false, false
	}
	if p.AutoResolveAfter > 0 {
		at, ok = latest(since, p.QuietFrom).Add(p.AutoResolveAfter), true
	}
	if end, leased := leaseEnd(status, since, p); leased && (!ok || end.Before(at)) {
		return end, true, true
	}
	return at, false, ok
}

// retentionOf is the retention that the Incident's integration last had.
func retentionOf(status *v1alpha1.IncidentStatus) time.Duration {
	if status.Retention == nil {
		return DefaultRetention
	}
	return status.Retention.Duration
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// lastHeard is since when an Open Incident has been quiet.
func lastHeard(status *v1alpha1.IncidentStatus, created time.Time) (time.Time, bool) {
	return firstTime(status.LastAlertTime, status.OpenedTime, &v1alpha1.Timestamp{Time: created})
}

// firstTime is the first of the times that is there.
func firstTime(times ...*v1alpha1.Timestamp) (time.Time, bool) {
	for _, t := range times {
		if isSet(t) {
			return t.Time, true
		}
	}
	return time.Time{}, false
}

func isSet(t *v1alpha1.Timestamp) bool { return t != nil && !t.IsZero() }
