package fold

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Deadline is when the Incident's time is up: when an Open one resolves by itself, or a Resolved one or one without a
// status is to be deleted. ok is false when that never happens.
//
// A Resolved Incident's retention, at least the late window, runs from its resolvedTime: alerts that come late do not prolong
// it, but an end that was kept back is forwarded first. While its integration is gone, the retention that it last had counts,
// and the default retention from the orphanedTime on.
func Deadline(incident *v1alpha1.Incident, p Policy) (at time.Time, ok bool) {
	status, created := &incident.Status, v1alpha1.Timestamp{Time: incident.CreationTimestamp.Time}
	switch status.State {
	case v1alpha1.IncidentResolved:
		since := valueOf(status.ResolvedTime, status.LastAlertTime, &created)
		retention := p.Retention
		if p.Absent {
			retention = durationOr(status.Retention, DefaultRetention)
		}
		at = since.Add(max(retention, p.lateWindow(status.Alert.Preset))) // else a late firing would open a new Incident
		if keptFiring(status) != nil {
			at = Latest(at, ForwardedEnd(status).Add(forwardedEndRetention))
		}
		if p.Absent && isSet(status.OrphanedTime) {
			at = Latest(at, status.OrphanedTime.Add(DefaultRetention))
		}
		return at, !since.IsZero()
	case v1alpha1.IncidentOpen:
		at, _ = openDeadline(incident, &p)
		return at, !at.IsZero()
	default: // created and not yet written: an alert is on its way, or its writer never came back
		return created.Add(EmptyPatience), !created.IsZero()
	}
}

// openDeadline is when an Open Incident resolves by itself: when its integration's autoResolveAfter has passed without an
// alert, or when it expires. at is zero when that never happens.
func openDeadline(incident *v1alpha1.Incident, p *Policy) (at time.Time, expires bool) {
	status := &incident.Status
	since := valueOf(status.LastAlertTime, status.OpenedTime, &v1alpha1.Timestamp{Time: incident.CreationTimestamp.Time})
	quietFrom := Latest(p.QuietFrom, p.Sender.PresentFrom)
	if since.IsZero() || p.Sender.Missing || slices.Contains(p.Sender.Keys, incident.Spec.DedupKey) {
		return time.Time{}, false
	}
	if p.AutoResolveAfter > 0 {
		at = Latest(since.Time, quietFrom).Add(p.AutoResolveAfter)
	}
	if status.Expiry == nil || p.Absent { // the sender cannot repeat the alert if there is no integration
		return at, false
	}
	end := Latest(since.Time, quietFrom, p.AcceptingFrom).Add(boundExpiry(status.Expiry.Duration))
	if at.IsZero() || end.Before(at) {
		return end, true
	}
	return at, false
}

// expiryOf returns how long an Incident stays open after a firing alert that is not repeated; nil if its sender does not
// say until when the alert is valid.
//
// That time is one of the sender's clock, so it is never compared with the leader's. The expiry is the shorter of
// two durations: from startTime to the end, which is exact in the first message of an alert and grows with its age, and from the
// receipt to the end, which is exact if the clocks agree. They may differ by MaxClockDifference, and no alert may end early. What
// a larger difference does is in docs/lifecycle.md.
func expiryOf(a receivedAlert) *metav1.Duration {
	if !isSet(a.ExpiryTime) {
		return nil
	}
	expiry := min(a.ExpiryTime.Sub(a.quietSince), maxExpiry) + MaxClockDifference
	if isSet(a.StartTime) && a.ExpiryTime.After(a.StartTime.Time) {
		expiry = min(expiry, a.ExpiryTime.Sub(a.StartTime.Time))
	}
	return &metav1.Duration{Duration: boundExpiry(expiry).Round(time.Second)}
}

// boundExpiry limits an expiry: a tiny one would resolve and reopen its Incident with each repetition, and a huge one would
// never end.
func boundExpiry(expiry time.Duration) time.Duration { return min(max(expiry, minExpiry), maxExpiry) }

// ReceivedTime is when an event was accepted. People may write any time into an AlertEvent of theirs, and a replica's
// clock may be wrong: one that is too far from the creation counts as the creation. Otherwise the times of Incidents, and all
// that goes by them, would be whatever a tenant writes.
func ReceivedTime(event *v1alpha1.AlertEvent) time.Time {
	received, created := event.Spec.ReceivedTime.UTC(), event.CreationTimestamp.UTC()
	ahead := received.Sub(created)
	if received.IsZero() || !created.IsZero() && (ahead > MaxClockDifference || ahead < -maxStoreDelay) {
		return created
	}
	return received
}

// storedTime is when an event was stored, by the API server's clock; of one that is not stored, when it was received.
func storedTime(event *v1alpha1.AlertEvent) time.Time {
	if created := event.CreationTimestamp.UTC(); !created.IsZero() {
		return created
	}
	return ReceivedTime(event)
}

// quietSince is since when an Incident has been quiet after an event. It is the time of receipt, but not much before the
// event was stored: the clock of a replica that lags behind must not make its sender look quiet.
func quietSince(event *v1alpha1.AlertEvent) time.Time {
	return Latest(ReceivedTime(event), storedTime(event).Add(-MaxClockDifference))
}
