package webhookserver

import (
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Signals of heartbeats are written to the status of their integration: each heartbeat at most once in a third of its interval,
// and the last signal always within that time. So the leader, whichever replica it is, has it well before the heartbeat is
// missed. A signal that ends a miss or a failure is written at once, and a ping that reports a failure before its answer.

// heardTimes are the signals of a heartbeat that came to this replica and are not in the status. They are in the order in which
// they came: one that seems to be before the last one, since the time of the API server is known to a second, counts as after it.
type heardTimes struct {
	heard  time.Time // the last signal
	failed time.Time // the last ping that reported a failure
	exit   int64     // of that ping

	// A signal ends a failure that was known when it came, whatever their times. One that another replica wrote is known from
	// the cache, and one that this replica wrote before the cache has it.
	after   time.Time
	written time.Time
}

// hear notes a signal. It returns when the signals of the heartbeat are to be written, as far as the integration tells.
func (p *pendingReports) hear(integration *v1alpha1.WebhookIntegration, s signal) (due time.Time) {
	if p.beats == nil {
		p.beats = map[string]heardTimes{}
	}
	known := v1alpha1.FindHeartbeat(integration.Status.Heartbeats, s.heartbeat)
	times := p.beats[s.heartbeat]
	at := latest(s.time.Truncate(time.Microsecond), next(times.heard), next(times.written))
	times.heard, times.after = at, time.Time{}
	switch {
	case s.failed:
		times.failed, times.exit = at, s.exit
	case known != nil && known.FailedTime != nil:
		times.after = latest(times.written, known.FailedTime.Time)
	default:
		times.after = times.written
	}
	p.beats[s.heartbeat] = times
	if !times.failed.IsZero() || !times.written.IsZero() {
		return time.Time{}
	}
	return signalDue(integration, known)
}

// signalDue is when a signal of a heartbeat is to be written, as far as the integration tells.
func signalDue(integration *v1alpha1.WebhookIntegration, known *v1alpha1.HeartbeatStatus) time.Time {
	if known == nil || known.LastSignalTime == nil || known.MissedTime != nil || known.HasFailed() ||
		known.AlertStatus == v1alpha1.AlertFiring {
		return time.Time{}
	}
	at := slices.IndexFunc(integration.Spec.Heartbeats, func(h v1alpha1.Heartbeat) bool { return h.Name == known.Name })
	if at < 0 {
		return time.Time{}
	}
	return known.LastSignalTime.Add(integration.Spec.Heartbeats[at].Every() / 3)
}

// merge returns the status of an integration's heartbeats with signals that came, when they are to be written at the latest, and
// the failures among them with the times that they got, zero if the status has no place. changed is false if all are in the
// status. The signals of heartbeats that are not defined any more are ignored.
func merge(integration *v1alpha1.WebhookIntegration, beats map[string]heardTimes, now time.Time) (
	updated []v1alpha1.HeartbeatStatus, due time.Time, failures map[string]time.Time, changed bool,
) {
	due, failures = now.Add(signalRecheck), map[string]time.Time{}
	for i := range integration.Status.Heartbeats {
		updated = append(updated, *integration.Status.Heartbeats[i].DeepCopy())
	}
	for i := range integration.Spec.Heartbeats {
		name := integration.Spec.Heartbeats[i].Name
		times, ok := beats[name]
		if !ok {
			continue
		}
		status := v1alpha1.FindHeartbeat(updated, name)
		if status == nil {
			if len(updated) >= maxHeartbeatStatuses { // the leader removes those of removed heartbeats
				if !times.failed.IsZero() {
					failures[name] = time.Time{}
				}
				continue
			}
			updated = append(updated, v1alpha1.HeartbeatStatus{Name: name})
			status = &updated[len(updated)-1]
		}
		isNewer, failed := times.mergeInto(status, now)
		if !isNewer {
			continue
		}
		changed = true
		at := signalDue(integration, v1alpha1.FindHeartbeat(integration.Status.Heartbeats, name))
		if failed {
			failures[name], at = status.FailedTime.Time, time.Time{}
		}
		if at.Before(due) {
			due = at
		}
	}
	return updated, due, failures, changed
}

// mergeInto brings the status of a heartbeat up to date. failed says that it has a failure which it had not.
//
// Clocks of replicas differ by up to maxClockSkew. Otherwise, a signal that came before a failure, to another replica, could seem
// to end it, and nobody would be told. So within maxClockSkew a signal ends only a failure that was known when it came, and a
// failure is after the signals that the status has. A time in the future is of a wrong clock.
func (t heardTimes) mergeInto(s *v1alpha1.HeartbeatStatus, now time.Time) (changed, failed bool) {
	heardBefore := believed(s.LastSignalTime, now)
	heard, failure, failed := t.merge(s, now)
	if failed {
		s.FailedTime, s.ExitCode = new(v1alpha1.NewTimestamp(failure)), nil
		if t.exit > 0 {
			s.ExitCode = new(t.exit)
		}
	}
	if heard.After(heardBefore) {
		s.LastSignalTime = new(v1alpha1.NewTimestamp(heard))
	}
	return failed || heard.After(heardBefore), failed
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
