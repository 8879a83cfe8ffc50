package heartbeat

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	// recheck is when the leader looks again at a heartbeat that it may not judge.
	recheck = 5 * time.Second

	// relearn is for how long nothing is missed by a new spec. Replicas may hold signals back for a third of the former time, and
	// look at them every 20 s.
	relearn = 25 * time.Second

	// alertPause is the least time between two alerts of a heartbeat.
	alertPause = 10 * time.Second

	// annotationRunbook is the annotation of an Incident that has the address of its runbook.
	annotationRunbook = "runbook_url"
)

// facts are what is known of a heartbeat. All times are by the API server's clock.
type facts struct {
	heartbeat *v1alpha1.Heartbeat
	now       time.Time
	quietFrom time.Time // since when signals could be delivered without a break
	specified time.Time // since when the leader knows the heartbeat as it is defined
	absent    bool      // there is no such integration
	unsigned  bool      // it is pinged, and the integration accepts only what is signed
	judging   bool      // false: that no signal comes says nothing now, and the time may be wrong

	// isOpen reports whether the heartbeat has an open Incident. It is asked about one whose status tells of no alert.
	isOpen func() bool
}

// plan is what is to be done, in this order: write the status if it has changed, and store the alert that it calls for.
type plan struct {
	status  v1alpha1.HeartbeatStatus
	changed bool
	missed  bool      // it has been found to be missed
	alert   *owed     // nil: there is none
	next    time.Time // when to look again, zero for never
	invalid bool      // its schedule was found to be invalid
}

// owed is an alert that is to be stored, and the time that it is about.
type owed struct {
	v1alpha1.Alert

	about *v1alpha1.Timestamp
}

// decision decides about one heartbeat.
type decision struct {
	*facts
	plan

	updated     *v1alpha1.Heartbeat // a copy, whose status is brought up to date
	expectation heartbeats.Expectation
	expected    bool
	scheduleErr error
}

// decide returns what is to be done about a heartbeat.
func decide(f *facts) *plan {
	d := &decision{facts: f, updated: f.heartbeat.DeepCopy()}
	s := &d.updated.Status
	switch {
	case d.updated.Spec.Suspend:
		d.suspend()
	case s.ObservedTime == nil && !f.absent:
		// Signals are expected from now on. If an Incident is open, because the status was lost, it ends when the heartbeat is heard.
		s.ObservedTime = new(v1alpha1.NewTimestamp(d.now))
		d.adopt()
	}
	for _, t := range []*v1alpha1.Timestamp{
		s.LastSignalTime, s.LastStartTime, s.FailedTime, s.ObservedTime, s.AlertTime, s.MissedTime, s.MissedUntilTime,
	} {
		if f.judging && t != nil && fold.IsFuture(t.Time, f.now) {
			*t = v1alpha1.NewTimestamp(f.now)
		}
	}
	d.expectation, d.expected, d.scheduleErr = heartbeats.Of(d.updated)
	if !f.absent {
		d.judge()
		d.owe()
	}
	d.describe()
	d.status, d.changed = *s, !reflect.DeepEqual(*s, f.heartbeat.Status)
	return &d.plan
}

// adopt takes an open Incident for that of an alert of now, which the status has lost.
func (d *decision) adopt() {
	if s := &d.updated.Status; s.AlertTime == nil && d.isOpen() {
		s.AlertTime, s.AlertStatus = new(v1alpha1.NewTimestamp(d.now)), v1alpha1.AlertFiring
	}
}

// suspend has a heartbeat be neither missed, nor failed, nor running. Signals are expected anew when it is suspended no longer: a
// start that has come meanwhile would be found to take too long.
// Whoever was told of a miss or a failure is told that it is over, and perhaps who was not: when it begins, a leader may have
// stored an alert that it could not note. A resolve that matches nothing does no harm.
func (d *decision) suspend() {
	s := &d.updated.Status
	begins := s.ObservedTime != nil
	if heartbeats.IsRunning(s) {
		s.LastStartTime = nil
	}
	if !begins {
		d.adopt()
	}
	if trouble := newestTrouble(s); trouble != nil && (s.AlertTime == nil || trouble.After(s.AlertTime.Time)) {
		s.AlertTime = trouble.DeepCopy()
		if begins {
			s.AlertStatus = v1alpha1.AlertFiring
		}
		s.AlertStatus = cmp.Or(s.AlertStatus, v1alpha1.AlertResolved)
	}
	s.ObservedTime = nil
	d.endMiss()
}

// judge decides whether the heartbeat is missed.
func (d *decision) judge() {
	s, due, isLate := &d.updated.Status, d.expectation.Due, d.isLate()
	switch {
	case s.MissedTime != nil:
		runs := d.updated.Spec.MaxDuration != nil && heartbeats.IsRunning(s)
		d.judgeMissed(d.expected && (isLate || runs || !due.After(s.MissedTime.Time)))
	case isLate && !d.judging:
		d.at(d.now.Add(recheck))
	case isLate:
		at := fold.Latest(d.expectation.Deadline(d.updated, d.quietFrom), d.specified.Add(relearn))
		if d.now.Before(at) {
			d.at(at)
		} else {
			d.miss()
		}
	case d.expected:
		d.at(due)
	}
}

// isLate reports whether a signal is overdue.
func (d *decision) isLate() bool { return d.expected && !d.now.Before(d.expectation.Due) }

// miss notes that the heartbeat is missed. The time is after that of the last alert, whatever was done to the clock.
func (d *decision) miss() {
	s, at := &d.updated.Status, d.now
	for _, before := range []*v1alpha1.Timestamp{s.AlertTime, s.FailedTime} {
		if before != nil {
			at = fold.Latest(at, before.Add(time.Microsecond))
		}
	}
	s.MissedTime, s.MissedAfterTime, d.missed = new(v1alpha1.NewTimestamp(at)), s.LastSignalTime.DeepCopy(), true
}

// judgeMissed decides about a heartbeat that is missed. Nothing is to be done until it is heard: whoever resolves its Incident by
// hand has seen it. It stays missed if it is late, or was when it was found missed: the clock may have been set back since.
func (d *decision) judgeMissed(stays bool) {
	s := &d.updated.Status
	heard := s.LastSignalTime != nil && (s.MissedAfterTime == nil || s.LastSignalTime.After(s.MissedAfterTime.Time))
	switch {
	case heard || !stays && d.judging:
		if s.AlertTime == nil || s.MissedTime.After(s.AlertTime.Time) {
			// Its alert may be stored, by a leader that could not note it. A resolve that matches nothing does no harm.
			s.AlertTime, s.AlertStatus = s.MissedTime, v1alpha1.AlertFiring
		}
		d.endMiss()
	case !stays:
		d.at(d.now.Add(recheck))
	}
}

func (d *decision) endMiss() {
	s := &d.updated.Status
	if s.MissedTime != nil {
		s.MissedTime, s.MissedAfterTime, s.MissedUntilTime = nil, nil, new(v1alpha1.NewTimestamp(d.now))
	}
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

// owe finds the alert that the status calls for: one of each miss and failure, and one of their end. Alerts of a heartbeat are at
// least alertPause apart: their AlertEvents are kept for a while, and a sender may fail as often as it wants.
func (d *decision) owe() {
	s, suspended := &d.updated.Status, d.updated.Spec.Suspend
	trouble := newestTrouble(s)
	fires := !suspended && trouble != nil && (s.AlertTime == nil || trouble.After(s.AlertTime.Time))
	switch {
	case !fires && !d.hasEnded():
	case s.AlertTime != nil && d.now.Before(s.AlertTime.Add(alertPause)):
		d.at(s.AlertTime.Add(alertPause))
	case fires:
		d.fire(trouble)
	case suspended:
		d.resolve("The heartbeat is suspended.")
	case s.LastSignalTime != nil:
		d.resolve("The heartbeat is heard again.")
	default:
		d.resolve("The heartbeat is not missed by its present spec.")
	}
}

// hasEnded reports whether the last alert fired, and what it is about is over. The Incident of a heartbeat that was seen for the
// first time while it was open ends with a signal.
func (d *decision) hasEnded() bool {
	s := &d.updated.Status
	if s.AlertTime == nil || s.AlertStatus != v1alpha1.AlertFiring || s.MissedTime != nil {
		return false
	}
	return d.updated.Spec.Suspend || !s.HasFailed() && (s.LastSignalTime != nil || s.AlertTime.After(s.ObservedTime.Time))
}

// fire opens the Incident of a heartbeat that is missed or has failed.
func (d *decision) fire(trouble *v1alpha1.Timestamp) {
	h, s := d.updated, &d.updated.Status
	title, description := "The heartbeat %s is missed", d.lastHeard()
	switch {
	case trouble == s.FailedTime:
		title, description = "The heartbeat %s has failed", "The sender reported a failure."
		if s.ExitCode != nil {
			description = fmt.Sprintf("The sender reported a failure, with the exit code %d.", *s.ExitCode)
		}
	case takesTooLong(h):
		title = "The heartbeat %s takes too long"
		description = fmt.Sprintf("It has started at %s, and no success has come within %s.",
			rfc3339(s.LastStartTime), duration(h.Spec.MaxDuration.Duration))
	}
	says := cmp.Or(h.Spec.Incident, &v1alpha1.HeartbeatIncident{})
	content := v1alpha1.AlertContent{
		Title:       cmp.Or(says.Title, fmt.Sprintf(title, h.Name)),
		Description: description,
		Severity:    cmp.Or(says.Severity, v1alpha1.SeverityCritical),
		Type:        AlertType,
		// Not the time of the last signal: this absence may have begun before the end of an Incident that was resolved, and would
		// be taken for a late alert of it.
		StartTime: trouble,
	}
	for name, value := range says.Labels {
		if content.Labels == nil {
			content.Labels = v1alpha1.Texts{}
		}
		content.Labels[name] = string(value)
	}
	if says.Runbook != "" {
		content.Annotations = v1alpha1.Texts{annotationRunbook: says.Runbook}
	}
	d.post(trouble, v1alpha1.Alert{Status: v1alpha1.AlertFiring, AlertContent: content})
}

// takesTooLong reports whether a heartbeat is missed because no success has come in time after its start.
func takesTooLong(h *v1alpha1.Heartbeat) bool {
	s, longest := &h.Status, h.Spec.MaxDuration
	return s.MissedTime != nil && longest != nil && heartbeats.IsRunning(s) &&
		!s.MissedTime.Before(s.LastStartTime.Add(longest.Duration))
}

// lastHeard describes since when the heartbeat is not heard.
func (d *decision) lastHeard() string {
	h, s := d.updated, &d.updated.Status
	grace := duration(heartbeats.Grace(h))
	expectation := fmt.Sprintf("One was expected at %s, and may be late by %s.",
		d.expectation.Expected.UTC().Format(time.RFC3339), grace)
	if h.Spec.Every != nil {
		expectation = fmt.Sprintf("One is expected every %s, and may be late by %s.", duration(h.Spec.Every.Duration), grace)
	}
	if s.LastSignalTime == nil {
		return "No signal has come since the heartbeat was defined, at " + rfc3339(s.ObservedTime) + ". " + expectation
	}
	return "The last signal came at " + rfc3339(s.LastSignalTime) + ". " + expectation
}

// resolve ends the Incident of a heartbeat. The alert tells the time of the end, so it ends no later miss or failure: a leader
// that was suspended may store it late.
func (d *decision) resolve(why string) {
	s := &d.updated.Status
	end := s.AlertTime
	if s.LastSignalTime != nil && s.LastSignalTime.After(end.Time) {
		end = s.LastSignalTime
	}
	d.post(s.AlertTime, v1alpha1.Alert{
		Status: v1alpha1.AlertResolved, Comment: why, AlertContent: v1alpha1.AlertContent{EndTime: end},
	})
}

// post adds an alert, named after what it is about, so each leader stores the same.
func (d *decision) post(about *v1alpha1.Timestamp, alert v1alpha1.Alert) {
	h := d.updated
	address(&alert, h.Spec.IntegrationName, h.Name, string(h.UID), string(alert.Status), rfc3339(about))
	d.alert = &owed{Alert: alert, about: about.DeepCopy()}
}

// address names an alert of a heartbeat, after what it is about, and its Incident. No header has a NUL, so no sender has the
// name.
func address(alert *v1alpha1.Alert, integration, heartbeat string, about ...string) {
	alert.DedupKey = v1alpha1.HeartbeatKey(heartbeat)
	alert.ID = v1alpha1.KeyedEventName(integration, strings.Join(append([]string{"heartbeat"}, about...), "\x00"))
	alert.IncidentName = v1alpha1.IncidentName(integration, alert.DedupKey)
}

// describe has the status say what is known: the condition, and when the heartbeat is due.
func (d *decision) describe() {
	h, s := d.updated, &d.updated.Status
	s.ObservedGeneration, s.NextDueTime = h.Generation, nil
	if d.expected && s.MissedTime == nil {
		s.NextDueTime = new(v1alpha1.NewTimestamp(d.expectation.Due))
	}
	heard := d.heard()
	if before := meta.FindStatusCondition(s.Conditions, heard.Type); heard.Reason == v1alpha1.ReasonInvalidSchedule &&
		(before == nil || before.Message != heard.Message) {
		d.invalid = true
	}
	meta.SetStatusCondition(&s.Conditions, heard)
}

// heard returns the condition Heard.
func (d *decision) heard() metav1.Condition {
	h, s := d.updated, &d.updated.Status
	heard := metav1.Condition{
		Type: v1alpha1.ConditionHeard, Status: metav1.ConditionUnknown, ObservedGeneration: h.Generation,
		LastTransitionTime: metav1.NewTime(d.now),
	}
	switch {
	case h.Spec.Suspend:
		heard.Reason, heard.Message = v1alpha1.ReasonSuspended, "No signal is expected: spec.suspend is true."
	case d.absent:
		heard.Reason = v1alpha1.ReasonNoIntegration
		heard.Message = "There is no WebhookIntegration " + h.Spec.IntegrationName + ": nobody can send a signal."
	case d.scheduleErr != nil:
		heard.Reason = v1alpha1.ReasonInvalidSchedule
		heard.Message = plaintext.ShortMessage("No signal is expected: " + d.scheduleErr.Error() + ".")
	case takesTooLong(h):
		heard.Status, heard.Reason = metav1.ConditionFalse, v1alpha1.ReasonTooLong
		heard.Message = "No success has come within spec.maxDuration after a start."
	case s.MissedTime != nil:
		heard.Status, heard.Reason, heard.Message = metav1.ConditionFalse, v1alpha1.ReasonMissed, "No signal has come in time."
	case s.HasFailed():
		heard.Status, heard.Reason, heard.Message = metav1.ConditionFalse, v1alpha1.ReasonFailed, "The last signal was a failure."
	case s.LastSignalTime == nil && d.unsigned:
		heard.Reason = v1alpha1.ReasonPingsUnsigned
		heard.Message = "Its pings get 403: signatures, which spec.verify of the integration demands, do not cover their path. " +
			"Use spec.match, or an integration of its own."
	case s.LastSignalTime == nil:
		heard.Reason, heard.Message = v1alpha1.ReasonWaiting, "It waits for its first signal."
	case d.isLate():
		heard.Reason = v1alpha1.ReasonWaiting
		heard.Message = "A signal is overdue. It does not count as missed yet: it may have come while none could be received."
	default:
		heard.Status, heard.Reason, heard.Message = metav1.ConditionTrue, v1alpha1.ReasonHeard, "Signals come in time."
	}
	return heard
}

func rfc3339(t *v1alpha1.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// duration writes whole seconds: a fifth of a duration may have more digits than anybody wants to read.
func duration(d time.Duration) string { return plaintext.Duration(d.Round(time.Second)) }
