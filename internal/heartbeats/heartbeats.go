// Package heartbeats says when signals of Heartbeats are expected, and which Heartbeats an integration has. It reads no clock.
package heartbeats

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/cronspec"
)

const (
	// scheduleGrace is the default of spec.grace with a schedule.
	scheduleGrace = 15 * time.Minute

	// early is how long before a time of a schedule a signal may come and still count for it: clocks differ.
	early = 30 * time.Second

	// maxPostponement bounds what a break postpones. See Expectation.Deadline.
	maxPostponement = 6 * time.Hour
)

// Expectation is when a signal is expected, and when its heartbeat is missed without one.
type Expectation struct {
	Since    time.Time // of the last signal, or since when one is expected
	Expected time.Time
	Due      time.Time // when it is missed

	// Started is when what takes too long has begun: then Due is the end of its time. Zero: the next signal is due.
	Started time.Time
}

func (e Expectation) period() time.Duration { return e.Due.Sub(e.Since) }

// Of returns what is expected of a heartbeat. ok is false while nothing is: it waits for its first signal, or is suspended. An
// error says that its schedule is invalid.
//
// A run that has started in time has spec.maxDuration, however early it is over due. One that starts again and again is late
// all the same.
func Of(h *v1alpha1.Heartbeat) (e Expectation, ok bool, err error) {
	s := &h.Status
	next, err := expects(h)
	if err != nil || h.Spec.Suspend {
		return e, false, err
	}
	switch {
	case s.LastSignalTime != nil:
		e.Since = s.LastSignalTime.Time
		if s.ObservedTime != nil && s.ObservedTime.After(e.Since) { // it was suspended, or restored without its Incident
			e.Since = s.ObservedTime.Time
		}
		ok = true
	case h.Spec.Required && s.ObservedTime != nil:
		e.Since, ok = s.ObservedTime.Time, true
	}
	if ok {
		e.Expected = next(e.Since)
		e.Due = e.Expected.Add(Grace(h))
	}
	if longest := h.Spec.MaxDuration; longest != nil && IsRunning(s) && (!ok || s.LastStartTime.Before(e.Due)) {
		started := s.LastStartTime.Time
		end := started.Add(longest.Duration)
		return Expectation{Since: started, Expected: end, Due: end, Started: started}, true, nil
	}
	return e, ok, nil
}

// Deadline is when a heartbeat of which e is expected is missed, if signals could be delivered without a break since quietFrom:
// what could not be delivered does not make a sender quiet. It has its whole time anew, and one with a schedule its next time,
// also after a break within its grace: a job sends its signal once, perhaps during the break. A period of more than
// maxPostponement counts all the same once it has passed twice: or one of a week would never be missed where all replicas restart
// every day.
func (e Expectation) Deadline(h *v1alpha1.Heartbeat, quietFrom time.Time) time.Time {
	next, err := expects(h)
	var postponed, latest time.Time
	switch {
	case err != nil:
		return e.Due
	case h.Spec.Schedule == nil || !e.Started.IsZero():
		postponed, latest = quietFrom.Add(e.period()), e.Due.Add(e.period())
		if e.period() <= maxPostponement {
			latest = postponed
		}
	case quietFrom.After(e.Expected.Add(-early)):
		postponed, latest = next(quietFrom).Add(Grace(h)), next(e.Expected).Add(Grace(h))
	}
	if last := quietFrom.Add(maxPostponement); latest.Before(last) {
		latest = last
	}
	if postponed.After(latest) {
		postponed = latest
	}
	if postponed.Before(e.Due) {
		return e.Due
	}
	return postponed
}

// IsRunning reports whether a start has come, and no signal after it.
func IsRunning(s *v1alpha1.HeartbeatStatus) bool {
	return s.LastStartTime != nil && (s.LastSignalTime == nil || s.LastStartTime.After(s.LastSignalTime.Time))
}

// expects returns what tells when the next signal of a heartbeat is expected after one that came at a time. An error says that
// its schedule is invalid.
func expects(h *v1alpha1.Heartbeat) (next func(at time.Time) time.Time, err error) {
	if h.Spec.Schedule == nil {
		return func(at time.Time) time.Time { return at.Add(every(h)) }, nil
	}
	schedule, err := cronspec.Parse(h.Spec.Schedule.Cron, h.Spec.Schedule.TimeZone)
	if err != nil {
		return nil, err
	}
	return func(at time.Time) time.Time {
		next := schedule.Next(at.Add(early))
		for isRepeated(next.In(schedule.Location)) { // by a clock that is set back in autumn. cron, too, runs a job only once
			next = schedule.Next(next)
		}
		return next
	}, nil
}

// After returns when the next signal is expected after one that came at a time. An error says that the schedule is invalid.
func After(h *v1alpha1.Heartbeat, at time.Time) (time.Time, error) {
	next, err := expects(h)
	if err != nil {
		return time.Time{}, err
	}
	return next(at), nil
}

// isRepeated reports whether the clocks of a time's zone have shown the same time of day before, because they were set back.
func isRepeated(t time.Time) bool {
	_, offset := t.Zone()
	for _, back := range []time.Duration{time.Hour, 30 * time.Minute} {
		if _, before := t.Add(-back).Zone(); before-offset == int(back.Seconds()) {
			return true
		}
	}
	return false
}

// every is the longest time between two signals of a heartbeat without a schedule.
func every(h *v1alpha1.Heartbeat) time.Duration {
	if h.Spec.Every == nil {
		return time.Minute // the schema does not admit it
	}
	return h.Spec.Every.Duration
}

// Grace is how much later than expected a signal may come.
func Grace(h *v1alpha1.Heartbeat) time.Duration {
	switch {
	case h.Spec.Grace != nil:
		return h.Spec.Grace.Duration
	case h.Spec.Schedule != nil:
		return scheduleGrace
	}
	return every(h) / 5
}
