package heartbeat

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
)

const (
	// signalRecheck is also the least between a start and what is written before or after it: twice that is shorter than the
	// shortest maxDuration.
	signalRecheck = 20 * time.Second

	maxSignalLead    = time.Minute     // of the stored time of a signal before the API server's clock; a later one is wrong
	maxClockSkew     = 2 * time.Second // between the times of two replicas: each knows that of the API server to a second
	maxListedSignals = 10              // of a heartbeat, equal to that of the schema
)

// Signals of heartbeats are written to their status: each heartbeat at most once in a third of the time in which one is expected,
// and the last signal always within that time. So the leader, whichever replica it is, has it well before the heartbeat is
// missed. A signal that ends a miss or a failure is written at once, and those that follow once a second; a ping that
// reports a failure is written before its answer. A start and what ends it are at least signalRecheck apart from what was written
// before.

// heardTimes are the signals of a heartbeat that came to this replica and are not in the status. They are in the order in which
// they came: one that seems to be before the last one, since the time of the API server is known to a second, counts as after it.
type heardTimes struct {
	heard   time.Time // the last signal
	failed  time.Time // the last ping that reported a failure
	exit    int64     // of that ping
	started time.Time // the last start

	// A signal ends a failure that was known when it came, whatever their times. One that another replica wrote is known from
	// the cache, and one that this replica wrote before the cache has it.
	after   time.Time
	written time.Time
}

// hear notes a signal. It returns when the signals of the heartbeat are to be written, as far as the cache tells.
func (t *heardTimes) hear(s Signal) (due time.Time) {
	known := &s.Heartbeat.Status
	at := latest(s.Time.Truncate(time.Microsecond), next(t.heard), next(t.started), next(t.written))
	if s.Kind == v1alpha1.SignalStart {
		t.started = at
		return t.due(s.Heartbeat)
	}
	t.heard, t.after = at, time.Time{}
	switch {
	case s.Kind == v1alpha1.SignalFailure:
		t.failed, t.exit = at, s.Exit
	case known.FailedTime != nil:
		t.after = latest(t.written, known.FailedTime.Time)
	default:
		t.after = t.written
	}
	return t.due(s.Heartbeat)
}

// due is when the signals are to be written, as far as the status of the heartbeat tells.
func (t *heardTimes) due(h *v1alpha1.Heartbeat) time.Time {
	s := &h.Status
	isHeard, isRunning := !t.heard.IsZero(), heartbeats.IsRunning(s)
	if !t.failed.IsZero() || !t.written.IsZero() || isHeard && isTroubled(s) {
		return time.Time{}
	}
	pause, last := signalRecheck, s.LastStartTime.OrZero()
	if heard := s.LastSignalTime.OrZero(); !heard.IsZero() {
		if expected, err := heartbeats.After(h, heard); err == nil {
			pause = expected.Sub(heard) / 3
		}
		last = latest(last, heard)
	}
	switch {
	case !t.started.IsZero() && isRunning && !isHeard && h.Spec.MaxDuration != nil: // another start
		pause = min(pause, h.Spec.MaxDuration.Duration/3)
	case !t.started.IsZero() || isRunning:
		pause = min(pause, signalRecheck)
	}
	return last.Add(pause)
}

// isTroubled reports whether the leader waits for a signal, as far as a status tells.
func isTroubled(s *v1alpha1.HeartbeatStatus) bool {
	return s.LastSignalTime == nil || s.MissedTime != nil || s.HasFailed() || s.AlertStatus == v1alpha1.AlertFiring
}

// mergeInto brings the status of a heartbeat up to date with signals that came. It returns when it is to be written at the
// latest, and the time that a failure among them got, zero if there is none. changed is false if the status has all of them.
//
// Clocks of replicas differ by up to maxClockSkew. Otherwise, a signal that came before a failure, to another replica, could seem
// to end it, and nobody would be told. So within maxClockSkew a signal ends only a failure that was known when it came, and a
// failure is after the signals that the status has. A time in the future is of a wrong clock.
func (t heardTimes) mergeInto(h *v1alpha1.Heartbeat, now time.Time) (due, failure time.Time, changed bool) {
	s := &h.Status
	for _, known := range []**v1alpha1.Timestamp{&s.LastSignalTime, &s.LastStartTime} {
		if believed(*known, now).IsZero() {
			*known = nil
		}
	}
	due = t.due(h)
	startedBefore, heardBefore := believed(s.LastStartTime, now), believed(s.LastSignalTime, now)
	var came []v1alpha1.HeartbeatSignal
	add := func(at time.Time, kind v1alpha1.SignalKind) *v1alpha1.HeartbeatSignal {
		came = append(came, v1alpha1.HeartbeatSignal{Time: v1alpha1.NewTimestamp(at), Kind: kind})
		return &came[len(came)-1]
	}
	heard, failure, failed := t.merge(s, now)
	if ahead := startedBefore.Sub(heard); heard.After(heardBefore) && ahead >= 0 && ahead <= maxClockSkew {
		heard = next(startedBefore) // a short run, whose start another replica has heard
	}
	if t.started.After(latest(startedBefore, heardBefore)) {
		add(t.started, v1alpha1.SignalStart)
	}
	if failed {
		if added := add(failure, v1alpha1.SignalFailure); t.exit > 0 {
			added.ExitCode = new(t.exit)
		}
	}
	if heard.After(heardBefore) && (!failed || heard.After(failure)) {
		add(heard, v1alpha1.SignalSuccess)
	}
	if !failed {
		failure = time.Time{}
	}
	takeAll(h, came)
	return due, failure, len(came) > 0
}

// takeAll notes signals in the status of a heartbeat, and when the next one is due.
func takeAll(h *v1alpha1.Heartbeat, came []v1alpha1.HeartbeatSignal) {
	slices.SortStableFunc(came, func(a, b v1alpha1.HeartbeatSignal) int { return a.Time.Compare(b.Time.Time) })
	for _, signal := range came {
		take(&h.Status, signal)
	}
	h.Status.NextDueTime = nil
	if expectation, ok, _ := heartbeats.Of(h); ok {
		h.Status.NextDueTime = new(v1alpha1.NewTimestamp(expectation.Due))
	}
}

// take notes one signal in a status. One that waited for the API server may be before others.
func take(s *v1alpha1.HeartbeatStatus, signal v1alpha1.HeartbeatSignal) {
	isNewest := s.LastSignalTime == nil || signal.Time.After(s.LastSignalTime.Time)
	switch {
	case signal.Kind == v1alpha1.SignalStart:
		s.LastStartTime = &signal.Time
	case isNewest && heartbeats.IsRunning(s) && signal.Time.After(s.LastStartTime.Time):
		signal.Duration = &metav1.Duration{Duration: signal.Time.Sub(s.LastStartTime.Time).Round(time.Millisecond)}
	}
	if isNewest && signal.Kind != v1alpha1.SignalStart {
		s.LastSignalTime, s.LastDuration = &signal.Time, signal.Duration
	}
	if signal.Kind == v1alpha1.SignalFailure {
		s.FailedTime, s.ExitCode = &signal.Time, signal.ExitCode
	}
	s.Signals = slices.Insert(s.Signals, 0, signal)
	slices.SortStableFunc(s.Signals, func(a, b v1alpha1.HeartbeatSignal) int { return b.Time.Compare(a.Time.Time) })
	s.Signals = s.Signals[:min(len(s.Signals), maxListedSignals)]
}

// merge returns the newest signal and the newest failure of the status and of the times, and whether the failure is one that the
// status had not.
func (t heardTimes) merge(s *v1alpha1.HeartbeatStatus, now time.Time) (heard, failure time.Time, failed bool) {
	heard, failure = believed(s.LastSignalTime, now), believed(s.FailedTime, now)
	isFailing := !failure.IsZero() && !heard.After(failure)
	isKnown := t.failed.IsZero() || t.failed.Equal(failure) || isFailing && failure.After(t.failed)
	failed = !isKnown
	switch {
	case failed && heard.Sub(t.failed) > maxClockSkew: // it waited for the API server, and the heartbeat has been heard since
		failed = t.failed.After(failure)
		failure, heard = t.failed, latest(heard, t.heard)
	case failed:
		failure = latest(t.failed, next(heard), next(failure), next(believed(s.MissedTime, now)), next(believed(s.AlertTime, now)))
		heard = failure
		if t.heard.After(t.failed) {
			heard = latest(t.heard, next(failure))
		}
	case !isFailing:
		heard = latest(heard, t.heard)
	case !t.heard.IsZero() && (!t.after.Before(failure) || t.heard.Sub(failure) > maxClockSkew):
		heard = latest(t.heard, next(failure))
	}
	return heard, failure, failed
}

// subtract removes what was written, with a failure that got a time, zero if there was none.
func (t *heardTimes) subtract(was heardTimes, failure time.Time) {
	failed := !failure.IsZero()
	if !failed {
		failure = was.written
	}
	switch {
	case *t == was && (was.heard.IsZero() && was.started.IsZero() || failure.IsZero()):
		*t = heardTimes{}
	case *t == was: // until the cache has it
		*t = heardTimes{written: failure}
	case failed:
		t.written = failure
		if t.failed.Equal(was.failed) {
			t.failed = time.Time{}
		}
	}
	if t.started.Equal(was.started) {
		t.started = time.Time{}
	}
}

// believed returns a stored time, zero if there is none or it is in the future.
func believed(t *v1alpha1.Timestamp, now time.Time) time.Time {
	if t == nil || t.Sub(now) > maxSignalLead {
		return time.Time{}
	}
	return t.Time
}

// next returns the first time after another one that the status can have.
func next(t time.Time) time.Time { return t.Add(time.Microsecond) }

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
