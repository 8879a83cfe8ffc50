package controllers

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// deadline is when the Incident's time is up: when an Open one resolves by itself, or a Resolved one is
// to be deleted. ok is false when that never happens.
//
// A Resolved Incident's retention runs from its resolvedTime: alerts that come late do not prolong it.
func deadline(incident *v1alpha1.Incident, p policy) (at time.Time, ok bool) {
	status := &incident.Status
	switch status.State {
	case v1alpha1.IncidentResolved:
		since, known := firstTime(status.ResolvedTime, status.LastAlertTime, &v1alpha1.Timestamp{Time: incident.CreationTimestamp.Time})
		return since.Add(max(0, p.retention)), known
	case v1alpha1.IncidentOpen:
		since, known := lastHeard(status, incident.CreationTimestamp.Time)
		if p.autoResolveAfter <= 0 || !known {
			return time.Time{}, false
		}
		return since.Add(p.autoResolveAfter), true
	default: // created and not yet written: an alert is on its way
		return time.Time{}, false
	}
}

// lastHeard is since when an Open Incident has been silent.
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
