package fold

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// isLateDuplicate reports whether a firing repeats the episode that has ended: it was received within the window of the
// resolve, or before it (by another replica's clock, or it was stored late), and its startTime is not after the newest one of
// that episode, or not after its end.
//
// After the window, the sender says that the trouble goes on: Prometheus keeps startTime when its alerts could not reach
// Alertmanager for a while and were resolved there. A duplicate that reopens an Incident annoys; an outage that stays hidden
// hurts. With a window of zero, the sender delivers in order.
//
// Only times up to the resolve are believed: some senders write a predicted end into every alert, and an end in the year 9999
// must not hide every later outage. A startTime that the ended episode had is late whatever it is. After an Incident resolved by
// itself, no alert has said that the trouble was over, so whatever fires then reopens it.
func isLateDuplicate(s *v1alpha1.IncidentStatus, a receivedAlert, window time.Duration) bool {
	if !isSet(a.StartTime) || window <= 0 || !isSet(s.ResolvedTime) || a.received.Sub(s.ResolvedTime.Time) >= window ||
		IsFuture(s.ResolvedTime.Time, a.heard) { // the clock has been set back, and would hide it until then
		return false
	}
	resolved := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionResolved)
	if resolved != nil && (resolved.Reason == v1alpha1.ReasonAutoResolved || resolved.Reason == v1alpha1.ReasonExpired) {
		return false
	}
	episode := cmp.Or(s.Episode, &v1alpha1.Episode{})
	for _, known := range []*v1alpha1.Timestamp{s.Alert.StartTime, episode.LastStartTime} {
		if isSet(known) && a.StartTime.Equal(known.Time) {
			return true
		}
	}
	if a.StartTime.After(s.ResolvedTime.Time) {
		return false
	}
	last := Latest(episode.StartTime.Time, valueOf(episode.LastStartTime).Time, valueOf(s.Alert.EndTime).Time)
	return !a.StartTime.After(last)
}

// isStaleResolve reports whether a resolve of a sender is about an earlier firing than the newest of the episode: its endTime,
// or without one its startTime, is before the startTime of that firing. A sender repeats and delays messages, so the resolve of
// an earlier round may come after the firing of the next one; it must not end what fires.
//
// Only times given by the sender are compared: an episode whose alerts have no startTime is resolved by any resolve. So is one
// that began in the future by the API server's clock, since that was set back: a heartbeat goes by it, and its Incident would
// stay open. A startTime of the future alone says that the sender's clock is ahead.
func isStaleResolve(s *v1alpha1.IncidentStatus, a receivedAlert) bool {
	last := cmp.Or(s.Episode, &v1alpha1.Episode{}).LastStartTime
	if a.Status != v1alpha1.AlertResolved || a.by() != "" || !isSet(last) {
		return false
	}
	if IsFuture(last.Time, a.heard) && IsFuture(valueOf(s.LastAlertTime).Time, a.heard) {
		return false
	}
	about := a.EndTime
	if !isSet(about) {
		about = a.StartTime
	}
	return isSet(about) && about.Before(last.Truncate(unitOf(about.Time)))
}

// noteStart keeps the latest startTime of the episode's firing alerts. One that is far ahead of its receipt is no time of a
// sender's clock, and would keep every resolve out.
func noteStart(episode *v1alpha1.Episode, a receivedAlert) {
	if a.Status != v1alpha1.AlertFiring || !isSet(a.StartTime) || a.StartTime.Sub(a.received) > maxClockLead {
		return
	}
	if last := episode.LastStartTime; !isSet(last) || last.Before(a.StartTime.Time) {
		episode.LastStartTime = a.StartTime.DeepCopy()
	}
}

// unitOf is the unit in which a sender appears to give a time. Some give the end of an alert in seconds and its start
// with a fraction; an alert that ends in the second in which it started must not seem to end before.
func unitOf(t time.Time) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond} {
		if t.Truncate(unit).Equal(t) {
			return unit
		}
	}
	return time.Microsecond
}

// ignore leaves a trace of an alert that came too late to change anything but the count: whoever waits for what it reported finds
// out why nothing happened.
func (f *folding) ignore(a receivedAlert, reason v1alpha1.IgnoredReason) string {
	f.status.LastIgnored = &v1alpha1.IgnoredAlert{
		Reason: reason, Time: *timestamp(a.received), Message: plaintext.ShortMessage(whyIgnored(f.status, a, reason)),
	}
	return ResultLate
}

func whyIgnored(s *v1alpha1.IncidentStatus, a receivedAlert, reason v1alpha1.IgnoredReason) string {
	switch at := func(t *v1alpha1.Timestamp) string { return t.UTC().Format(time.RFC3339) }; reason {
	case v1alpha1.IgnoredLate:
		return fmt.Sprintf("A firing that began at %s repeats the episode that was resolved at %s.",
			at(a.StartTime), at(s.ResolvedTime))
	case v1alpha1.IgnoredStale:
		about, verb := a.EndTime, "ended"
		if !isSet(about) {
			about, verb = a.StartTime, "began"
		}
		return fmt.Sprintf("A resolve of what %s at %s is about an earlier firing than the one that began at %s.",
			verb, at(about), at(s.Episode.LastStartTime))
	default:
		return fmt.Sprintf("An alert with status %s was folded after one that had been accepted later.", a.Status)
	}
}
