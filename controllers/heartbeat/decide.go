package heartbeat

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	// maxPostponement is for how long after a break every heartbeat has its whole period anew. A longer period counts from
	// its last signal again, once it has passed twice: or one of a week would never be missed where replicas restart every day.
	maxPostponement = 6 * time.Hour

	// recheck is when the leader looks again at a heartbeat that it may not judge.
	recheck = 5 * time.Second

	// relearn is for how long nothing is missed by a new interval. Replicas may hold signals back for a third of the former one,
	// and look at them every 20 s.
	relearn = 25 * time.Second
)

// facts are what is known of the heartbeats of an integration. All times are by the API server's clock.
type facts struct {
	integration *v1alpha1.WebhookIntegration
	now         time.Time
	quietFrom   time.Time // since when signals could be delivered without a break
	specified   time.Time // since when the leader knows the heartbeats as they are defined
	judging     bool      // false: a silence says nothing now, and the time may be wrong

	// open returns the open Incident of a heartbeat, nil if there is none.
	open func(name string) *v1alpha1.Incident

	// posted are the heartbeats that this reconciliation has posted as missed, without writing it to the status.
	posted sets.Set[string]
}

// plan is what is to be done, in this order: store the alerts, and write the status if it has changed.
type plan struct {
	alerts     []v1alpha1.Alert // the ID is also the name of the AlertEvent: the same for every leader that decides the same
	heartbeats []v1alpha1.HeartbeatStatus
	changed    bool
	missed     []string  // heartbeats that one of the alerts says are missed
	next       time.Time // when to look again, zero for never
}

func (p *plan) isIdle() bool { return len(p.alerts) == 0 && !p.changed }

// decide returns what is to be done about the heartbeats of an integration.
func decide(f *facts) *plan {
	p := &plan{}
	spec, status := &f.integration.Spec, &f.integration.Status
	defined := sets.New[string]()
	for i := range spec.Heartbeats {
		h := &spec.Heartbeats[i]
		defined.Insert(h.Name)
		s := v1alpha1.HeartbeatStatus{Name: h.Name}
		if known := v1alpha1.FindHeartbeat(status.Heartbeats, h.Name); known != nil {
			s = *known.DeepCopy()
		}
		if s.ObservedTime == nil {
			s.ObservedTime, p.changed = new(v1alpha1.NewTimestamp(f.now)), true
		}
		for _, t := range []*v1alpha1.Timestamp{s.LastSignalTime, s.FailedTime, s.ObservedTime} {
			if f.judging && t != nil && t.Sub(f.now) > fold.MaxClockDifference { // of a wrong clock
				*t, p.changed = v1alpha1.NewTimestamp(f.now), true
			}
		}
		p.judge(f, h, &s)
		p.heartbeats = append(p.heartbeats, s)
	}
	for i := range status.Heartbeats {
		s := &status.Heartbeats[i]
		if defined.Has(s.Name) {
			continue
		}
		p.changed = true
		if s.MissedTime != nil || f.open(s.Name) != nil || f.posted.Has(s.Name) {
			p.resolve(f, s, "removed", "The heartbeat was removed from the integration.")
		}
	}
	return p
}

// judge decides about one heartbeat, and brings its status up to date.
func (p *plan) judge(f *facts, h *v1alpha1.Heartbeat, s *v1alpha1.HeartbeatStatus) {
	due, expected := dueTime(h, s)
	isLate := expected && !f.now.Before(due)
	switch {
	case s.MissedTime != nil:
		p.judgeMissed(f, s, expected && (isLate || !due.After(s.MissedTime.Time)))
	case isLate && !f.judging:
		p.at(f.now.Add(recheck))
	case isLate:
		if at := fold.Latest(deadline(due, h.Period(), f.quietFrom), f.specified.Add(relearn)); f.now.Before(at) {
			p.at(at)
		} else {
			p.miss(f, h, s)
		}
	case f.posted.Has(h.Name) && !s.HasFailed():
		p.resolve(f, s, "heard", "The heartbeat is heard again.")
	default:
		if expected {
			p.at(due)
		}
		p.recover(f, s)
	}
}

// judgeMissed decides about a heartbeat that is missed. Nothing is to be done until it is heard: whoever resolves its Incident by
// hand has seen it. It stays missed if it is late, or was when it was found missed: the clock may have been set back since.
func (p *plan) judgeMissed(f *facts, s *v1alpha1.HeartbeatStatus, stays bool) {
	heard := s.LastSignalTime != nil && (s.MissedAfterTime == nil || s.LastSignalTime.After(s.MissedAfterTime.Time))
	switch {
	case heard && s.HasFailed(): // its Incident is about the failure now
		s.MissedTime, s.MissedAfterTime, p.changed = nil, nil, true
	case heard:
		p.resolve(f, s, "heard", "The heartbeat is heard again.")
	case !stays && f.judging:
		p.resolve(f, s, "respecified", "The heartbeat is not missed by its present interval.")
	}
}

// recover resolves the Incident of a heartbeat that has failed, or was missed, and was heard since.
func (p *plan) recover(f *facts, s *v1alpha1.HeartbeatStatus) {
	incident := f.open(s.Name)
	if incident == nil || s.LastSignalTime == nil || s.HasFailed() {
		return
	}
	if last := incident.Status.LastAlertTime; last == nil || s.LastSignalTime.After(last.Time) {
		p.resolve(f, s, "recovered", "The heartbeat is heard again.")
	}
}

// dueTime is when a heartbeat is late. It is not expected while it waits for its first signal.
func dueTime(h *v1alpha1.Heartbeat, s *v1alpha1.HeartbeatStatus) (due time.Time, expected bool) {
	switch {
	case s.LastSignalTime != nil:
		return s.LastSignalTime.Add(h.Period()), true
	case h.Required && s.ObservedTime != nil:
		return s.ObservedTime.Add(h.Period()), true
	}
	return time.Time{}, false
}

// deadline is when a heartbeat that is due is missed: signals that could not be delivered are no silence of their sender.
func deadline(due time.Time, period time.Duration, quietFrom time.Time) time.Time {
	postponed := quietFrom.Add(period)
	if period > maxPostponement {
		postponed = fold.Earliest(postponed, fold.Latest(due.Add(period), quietFrom.Add(maxPostponement)))
	}
	return fold.Latest(due, postponed)
}

func (p *plan) at(t time.Time) {
	if p.next.IsZero() || t.Before(p.next) {
		p.next = t
	}
}

// miss opens the Incident of a heartbeat. The generation is part of the name: a heartbeat that is missed by one interval, and not
// by another, may be missed by the first one again.
func (p *plan) miss(f *facts, h *v1alpha1.Heartbeat, s *v1alpha1.HeartbeatStatus) {
	expectation := fmt.Sprintf("One is expected every %s, and may be late by %s.",
		duration(h.Every()), duration(h.Period()-h.Every()))
	silence := "No signal has come since the heartbeat was defined, at " + rfc3339(s.ObservedTime) + ". "
	if s.LastSignalTime != nil {
		silence = "The last signal came at " + rfc3339(s.LastSignalTime) + ". "
	}
	since := cmp.Or(s.LastSignalTime, s.ObservedTime)
	p.post(f, v1alpha1.Alert{
		DedupKey: v1alpha1.HeartbeatKey(h.Name),
		Status:   v1alpha1.AlertFiring,
		AlertContent: v1alpha1.AlertContent{
			Title:       cmp.Or(h.Title, fmt.Sprintf("The heartbeat %s is missed", h.Name)),
			Description: silence + expectation,
			Severity:    cmp.Or(h.Severity, v1alpha1.SeverityCritical),
			Type:        AlertType,
			// Not the time of the last signal: this silence may have begun before the end of an Incident that was resolved, and would
			// be taken for a late alert of it.
			StartTime: new(v1alpha1.NewTimestamp(f.now)),
		},
	}, "missed", h.Name, rfc3339(since), fmt.Sprint(f.integration.Generation))
	p.missed = append(p.missed, h.Name)
	s.MissedTime, s.MissedAfterTime, p.changed = new(v1alpha1.NewTimestamp(f.now)), s.LastSignalTime, true
}

func (p *plan) resolve(f *facts, s *v1alpha1.HeartbeatStatus, how, why string) {
	p.post(f, v1alpha1.Alert{
		DedupKey: v1alpha1.HeartbeatKey(s.Name), Status: v1alpha1.AlertResolved, Comment: why,
	}, how, s.Name, rfc3339(s.LastSignalTime), rfc3339(s.MissedTime), fmt.Sprint(f.integration.Generation))
	if s.MissedTime != nil {
		s.MissedTime, s.MissedAfterTime, p.changed = nil, nil, true
	}
}

// post adds an alert. Its AlertEvent is named after what is said and about what: no header has a NUL, so no sender has the name.
func (p *plan) post(f *facts, alert v1alpha1.Alert, about ...string) {
	key := "heartbeat\x00" + string(f.integration.UID) + "\x00" + strings.Join(about, "\x00")
	alert.ID = v1alpha1.KeyedEventName(f.integration.Name, key)
	alert.IncidentName = v1alpha1.IncidentName(f.integration.Name, alert.DedupKey)
	p.alerts = append(p.alerts, alert)
}

func rfc3339(t *v1alpha1.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// duration writes whole seconds: a fifth of an interval may have more digits than anybody wants to read.
func duration(d time.Duration) string { return plaintext.Duration(d.Round(time.Second)) }
