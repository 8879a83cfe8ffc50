package fold

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// clockRule corrects times that were noted before the API server's clock was set back. Otherwise an Incident would stay open,
// acknowledged or stored for longer, by as much as that clock was ahead. A time of the future, see IsFuture, becomes now, which
// is written once, and what was to end a while after it ends as long after now.
//
// The openedTime stays, because the forwarding tells episodes apart by it. So do the times that senders give.
type clockRule struct{ noRule }

// begin forgets an end that was kept back if the resolvedTime is of the future. Otherwise the Incident would fire again in
// Alertmanager, which has been told of its end, see EndIsKeptBack, once that time is now. If only the end is of the future,
// nothing tells whether Alertmanager has been told of it.
func (clockRule) begin(f *folding) {
	f.redateAcknowledgement()
	status := f.status
	if status.Flapping != nil && !f.in.Policy.Uncertain && IsFuture(valueOf(status.ResolvedTime).Time, f.in.Now) {
		status.Flapping.KeptFiring = nil
	}
}

// alert corrects an acknowledgement before the next one sets its end. Otherwise an end that is right would be moved.
func (clockRule) alert(f *folding, _ receivedAlert, _ stateBefore) { f.redateAcknowledgement() }

func (clockRule) finish(f *folding, _ stateBefore) {
	if f.status.State == "" || f.in.Policy.Uncertain {
		return
	}
	status, redated := f.status, false
	for _, t := range []*v1alpha1.Timestamp{status.LastAlertTime, status.ResolvedTime} {
		redated = f.redate(t) > 0 || redated
	}
	if redated && status.Episode != nil && IsFuture(valueOf(status.Episode.LastStartTime).Time, f.in.Now) {
		status.Episode.LastStartTime = nil // else each resolve would be stale, see isStaleResolve
	}
	f.redate(status.OrphanedTime)
}

// redate is Redate for a time of the status, which is written if it changes.
func (f *folding) redate(t *v1alpha1.Timestamp) (ahead time.Duration) {
	ahead = Redate(t, f.in.Now)
	f.plan.Write = f.plan.Write || ahead > 0
	return ahead
}

// Redate gives a time of the future, which may be nil, the time of now. It returns by how much it was ahead, zero if it was not.
func Redate(t *v1alpha1.Timestamp, now time.Time) (ahead time.Duration) {
	if t == nil || !IsFuture(t.Time, now) {
		return 0
	}
	is := v1alpha1.NewTimestamp(now)
	ahead, *t = t.Sub(is.Time), is
	return ahead
}

// redateAcknowledgement moves the end with the time of the first acknowledgement. If only a further one was of the future,
// nothing tells by how much, so the longest time that an acknowledgement may have bounds its end.
func (f *folding) redateAcknowledgement() {
	given := f.status.Acknowledgement
	if given == nil || f.in.Policy.Uncertain {
		return
	}
	end := &given.ExpirationTime
	if ahead := f.redate(&given.Time); ahead > 0 && isSet(*end) {
		*end = timestamp((*end).Add(-ahead))
	}
	if longest := f.in.Now.Add(v1alpha1.MaxAcknowledgement); isSet(*end) && IsFuture((*end).Time, longest) {
		*end, f.plan.Write = timestamp(longest), true
	}
}

// IsFuture reports whether a time that was noted is further ahead of now than clocks differ: the clock by which it was noted was
// wrong, or has been set back.
func IsFuture(t, now time.Time) bool { return t.Sub(now) > MaxClockDifference }

// LeadOf returns how far a clock is ahead that showed a time, cut to seconds, at some moment between sent and received. It
// returns the smallest difference that is possible.
func LeadOf(date, sent, received time.Time) time.Duration {
	switch {
	case date.After(received):
		return date.Sub(received)
	case sent.Sub(date) > time.Second:
		return date.Add(time.Second).Sub(sent)
	default:
		return 0
	}
}

// Latest returns the latest of the times, of which there must be one.
func Latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// Earliest returns the earliest of the times, of which there must be one.
func Earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

// valueOf returns the first of the times that is set; the zero time if none is.
func valueOf(times ...*v1alpha1.Timestamp) v1alpha1.Timestamp {
	for _, t := range times {
		if isSet(t) {
			return *t
		}
	}
	return v1alpha1.Timestamp{}
}

func isSet(t *v1alpha1.Timestamp) bool { return t != nil && !t.IsZero() }

func timestamp(t time.Time) *v1alpha1.Timestamp { return new(v1alpha1.NewTimestamp(t)) }

// durationOr returns the duration, or another one if it is not set.
func durationOr(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}
