package heartbeat

import (
	"cmp"
	"fmt"
	"slices"
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

	// alertPause is the least time between two alerts of a heartbeat.
	alertPause = 10 * time.Second

	// maxStatuses is how many heartbeats the status of an integration can have, as the schema says. It is more than can be defined,
	// for those that were removed.
	maxStatuses = 40
)

// facts are what is known of the heartbeats of an integration. All times are by the API server's clock.
type facts struct {
	integration *v1alpha1.WebhookIntegration
	now         time.Time
	quietFrom   time.Time // since when signals could be delivered without a break
	specified   time.Time // since when the leader knows the heartbeats as they are defined
	judging     bool      // false: that no signal comes says nothing now, and the time may be wrong

	// isOpen reports whether a heartbeat has an open Incident. It is asked about those that are seen for the first time.
	isOpen func(name string) bool
}

// plan is what is to be done, in this order: write the status if it has changed, and store the alerts that it calls for.
type plan struct {
	heartbeats []v1alpha1.HeartbeatStatus
	changed    bool
	missed     []string // heartbeats that have been found to be missed
	alerts     []owed
	next       time.Time // when to look again, zero for never
}

// owed is an alert that is to be stored, and the heartbeat and the time that it is about.
type owed struct {
	v1alpha1.Alert

	heartbeat string
	about     *v1alpha1.Timestamp
	last      bool // nothing more is to be known of the heartbeat
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
			p.observe(f, &s)
		}
		for _, t := range []*v1alpha1.Timestamp{s.LastSignalTime, s.FailedTime, s.ObservedTime, s.AlertTime} {
			if f.judging && t != nil && t.Sub(f.now) > fold.MaxClockDifference { // of a wrong clock
				*t, p.changed = v1alpha1.NewTimestamp(f.now), true
			}
		}
		p.judge(f, h, &s)
		p.heartbeats = append(p.heartbeats, s)
		p.owe(f, h, &p.heartbeats[len(p.heartbeats)-1])
	}
	for i := range status.Heartbeats {
		if s := status.Heartbeats[i].DeepCopy(); !defined.Has(s.Name) {
			p.remove(f, s)
		}
	}
	return p
}

// observe notes a heartbeat that is defined. If its integration was deleted and is defined again, an Incident of it may be open,
// which ends when it is heard.
func (p *plan) observe(f *facts, s *v1alpha1.HeartbeatStatus) {
	s.ObservedTime, p.changed = new(v1alpha1.NewTimestamp(f.now)), true
	if s.AlertTime == nil && f.isOpen(s.Name) {
		s.AlertTime, s.AlertStatus = s.ObservedTime.DeepCopy(), v1alpha1.AlertFiring
	}
}

// remove forgets a heartbeat that is not defined any more, as soon as its Incident needs no resolve. If it is defined again
// before, its last signal counts: it may be missed still.
func (p *plan) remove(f *facts, s *v1alpha1.HeartbeatStatus) {
	if s.MissedTime != nil || s.FailedTime != nil || s.ObservedTime != nil {
		p.changed = true
		if trouble := newestTrouble(s); trouble != nil && (s.AlertTime == nil || trouble.After(s.AlertTime.Time)) {
			s.AlertTime, s.AlertStatus = trouble, v1alpha1.AlertFiring
		}
	}
	if s.AlertTime == nil || s.AlertStatus != v1alpha1.AlertFiring || len(p.heartbeats) >= maxStatuses {
		p.changed = true
		return
	}
	left := v1alpha1.HeartbeatStatus{
		Name: s.Name, LastSignalTime: s.LastSignalTime, AlertTime: s.AlertTime, AlertStatus: s.AlertStatus}
	p.heartbeats = append(p.heartbeats, left)
	p.resolve(f, &left, "The heartbeat was removed from the integration.", true)
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
			p.miss(f, s)
		}
	case expected:
		p.at(due)
	}
}

// miss notes that a heartbeat is missed. The time is after that of the last alert, whatever was done to the clock.
func (p *plan) miss(f *facts, s *v1alpha1.HeartbeatStatus) {
	at := f.now
	for _, before := range []*v1alpha1.Timestamp{s.AlertTime, s.FailedTime} {
		if before != nil {
			at = fold.Latest(at, before.Add(time.Microsecond))
		}
	}
	s.MissedTime, s.MissedAfterTime, p.changed = new(v1alpha1.NewTimestamp(at)), s.LastSignalTime, true
	p.missed = append(p.missed, s.Name)
}

// judgeMissed decides about a heartbeat that is missed. Nothing is to be done until it is heard: whoever resolves its Incident by
// hand has seen it. It stays missed if it is late, or was when it was found missed: the clock may have been set back since.
func (p *plan) judgeMissed(f *facts, s *v1alpha1.HeartbeatStatus, stays bool) {
	heard := s.LastSignalTime != nil && (s.MissedAfterTime == nil || s.LastSignalTime.After(s.MissedAfterTime.Time))
	if !heard && (stays || !f.judging) {
		return
	}
	if s.AlertTime == nil || s.MissedTime.After(s.AlertTime.Time) {
		// Its alert may be stored, by a leader that could not note it. A resolve that matches nothing does no harm.
		s.AlertTime, s.AlertStatus = s.MissedTime, v1alpha1.AlertFiring
	}
	s.MissedTime, s.MissedAfterTime, p.changed = nil, nil, true
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

// deadline is when a heartbeat that is due is missed: signals that could not be delivered do not make their sender quiet.
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

// newestTrouble is when the heartbeat was last missed, if it is, or has failed. Each such time is after those before.
func newestTrouble(s *v1alpha1.HeartbeatStatus) *v1alpha1.Timestamp {
	if s.MissedTime != nil && (s.FailedTime == nil || s.MissedTime.After(s.FailedTime.Time)) {
		return s.MissedTime
	}
	return s.FailedTime
}

// owe finds the alert that the status of a heartbeat calls for: one of each miss and failure, and one of their end. Alerts of a
// heartbeat are at least alertPause apart: their AlertEvents are kept for a while, and a sender may fail as often as it wants.
func (p *plan) owe(f *facts, h *v1alpha1.Heartbeat, s *v1alpha1.HeartbeatStatus) {
	trouble := newestTrouble(s)
	fires := trouble != nil && (s.AlertTime == nil || trouble.After(s.AlertTime.Time))
	// The Incident of a heartbeat that was seen for the first time while it was open ends with a signal.
	hasEnded := s.AlertTime != nil && s.AlertStatus == v1alpha1.AlertFiring && s.MissedTime == nil && !s.HasFailed() &&
		(s.LastSignalTime != nil || s.AlertTime.After(s.ObservedTime.Time))
	switch {
	case !fires && !hasEnded:
	case s.AlertTime != nil && f.now.Before(s.AlertTime.Add(alertPause)):
		p.at(s.AlertTime.Add(alertPause))
	case fires:
		p.fire(f, h, s, trouble)
	case s.LastSignalTime != nil:
		p.resolve(f, s, "The heartbeat is heard again.", false)
	default:
		p.resolve(f, s, "The heartbeat is not missed by its present interval.", false)
	}
}

// fire opens the Incident of a heartbeat that is missed or has failed.
func (p *plan) fire(f *facts, h *v1alpha1.Heartbeat, s *v1alpha1.HeartbeatStatus, trouble *v1alpha1.Timestamp) {
	title, description := "The heartbeat %s is missed", lastHeard(h, s)
	if trouble == s.FailedTime {
		title, description = "The heartbeat %s has failed", "The sender reported a failure."
		if s.ExitCode != nil {
			description = fmt.Sprintf("The sender reported a failure, with the exit code %d.", *s.ExitCode)
		}
	}
	p.post(f, s, trouble, v1alpha1.Alert{
		Status: v1alpha1.AlertFiring,
		AlertContent: v1alpha1.AlertContent{
			Title:       cmp.Or(h.Title, fmt.Sprintf(title, h.Name)),
			Description: description,
			Severity:    cmp.Or(h.Severity, v1alpha1.SeverityCritical),
			Type:        AlertType,
			// Not the time of the last signal: this absence may have begun before the end of an Incident that was resolved, and would
			// be taken for a late alert of it.
			StartTime: trouble,
		},
	}, false)
}

// lastHeard describes since when a heartbeat is not heard.
func lastHeard(h *v1alpha1.Heartbeat, s *v1alpha1.HeartbeatStatus) string {
	expectation := fmt.Sprintf("One is expected every %s, and may be late by %s.",
		duration(h.Every()), duration(h.Period()-h.Every()))
	if s.LastSignalTime == nil {
		return "No signal has come since the heartbeat was defined, at " + rfc3339(s.ObservedTime) + ". " + expectation
	}
	return "The last signal came at " + rfc3339(s.LastSignalTime) + ". " + expectation
}

// resolve ends the Incident of a heartbeat. The alert tells the time of the end, so it ends no later miss or failure: a leader
// that was suspended may store it late.
func (p *plan) resolve(f *facts, s *v1alpha1.HeartbeatStatus, why string, last bool) {
	end := s.AlertTime
	if s.LastSignalTime != nil && s.LastSignalTime.After(end.Time) {
		end = s.LastSignalTime
	}
	p.post(f, s, s.AlertTime, v1alpha1.Alert{
		Status: v1alpha1.AlertResolved, Comment: why, AlertContent: v1alpha1.AlertContent{EndTime: end},
	}, last)
}

// post adds an alert. Its AlertEvent is named after what it is about, so each leader stores the same: no header has a NUL, so no
// sender has the name.
func (p *plan) post(f *facts, s *v1alpha1.HeartbeatStatus, about *v1alpha1.Timestamp, alert v1alpha1.Alert, last bool) {
	key := strings.Join([]string{"heartbeat", string(f.integration.UID), string(alert.Status), s.Name, rfc3339(about)}, "\x00")
	alert.DedupKey = v1alpha1.HeartbeatKey(s.Name)
	alert.ID = v1alpha1.KeyedEventName(f.integration.Name, key)
	alert.IncidentName = v1alpha1.IncidentName(f.integration.Name, alert.DedupKey)
	p.alerts = append(p.alerts, owed{Alert: alert, heartbeat: s.Name, about: about, last: last})
}

// stored notes an alert that is stored in the status of its heartbeat.
func (p *plan) stored(alert *owed) {
	at := slices.IndexFunc(p.heartbeats, func(s v1alpha1.HeartbeatStatus) bool { return s.Name == alert.heartbeat })
	if alert.last {
		p.heartbeats = slices.Delete(p.heartbeats, at, at+1)
		return
	}
	p.heartbeats[at].AlertTime, p.heartbeats[at].AlertStatus = alert.about, alert.Status
}

func rfc3339(t *v1alpha1.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// duration writes whole seconds: a fifth of an interval may have more digits than anybody wants to read.
func duration(d time.Duration) string { return plaintext.Duration(d.Round(time.Second)) }
