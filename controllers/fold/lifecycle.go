package fold

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Messages of an Incident's conditions. They are stable, so that a condition changes only with its state.
const (
	messageFiring          = "The incident is open."
	messageResolvedByAlert = "An alert resolved the incident."
	messageAutoResolved    = "No alert came within the integration's autoResolveAfter."
	messageExpired         = "The sender stopped repeating the alert, and the time until which it was valid has passed."
	messageNotAcknowledged = "Nobody has acknowledged the incident."
	messageAcknowledged    = "An alert acknowledged the incident."
	messageUnacknowledged  = "An alert unacknowledged the incident."
)

// receivedAlert is an alert with the data of its event.
type receivedAlert struct {
	*v1alpha1.Alert
	received    time.Time
	heard       time.Time // when it ended the Incident's silence, see heardTime
	defaults    *v1alpha1.AlertDefaults
	integration string // of the Incident
	overtaken   bool   // a newer event is folded already
}

// lifecycle is the state machine of an Incident. Every time in it is that of an alert, so folding the same
// alerts again gives the same status.
type lifecycle struct {
	status      *v1alpha1.IncidentStatus
	generation  int64
	transitions []v1alpha1.Transition
	urgent      bool          // a state or condition changed
	sizeBound   int           // the content is not larger than this
	lateWindow  time.Duration // of late firings, see isLateDuplicate
	reopening   func()        // called before an episode replaces the last one
}

// apply takes in one alert and returns its result. An alert without an Incident changes nothing.
func (l *lifecycle) apply(a receivedAlert) string {
	if l.status.State == "" && isReport(a.Status) {
		return ResultNoMatch
	}
	result := l.step(a)
	if a.Status == v1alpha1.AlertNoted && a.Comment != "" {
		l.record(a.transition(v1alpha1.TransitionNoted, "Noted"))
	}
	l.count(a)
	return result
}

// step is the table of the life cycle.
func (l *lifecycle) step(a receivedAlert) string {
	switch {
	case l.status.State == "":
		l.open(a, v1alpha1.TransitionOpened)
		return ResultOpened
	case a.overtaken:
		return ResultLate
	case a.Status == v1alpha1.AlertSilenced:
		l.silence(a)
		return ResultSilenced
	case l.status.State != v1alpha1.IncidentResolved:
		return l.stepOpen(a)
	case isReport(a.Status), isLateDuplicate(l.status, a, l.lateWindow):
		return ResultLate
	default:
		l.open(a, v1alpha1.TransitionReopened)
		return ResultReopened
	}
}

// stepOpen takes in an alert of an Incident that is Open.
func (l *lifecycle) stepOpen(a receivedAlert) string {
	if isStaleResolve(l.status, a) {
		return ResultLate
	}
	before := l.status.Alert.Severity
	l.merge(a)
	if a.Status == v1alpha1.AlertFiring {
		l.status.Lease = leaseOf(a)
	}
	if a.Status == v1alpha1.AlertResolved {
		reason, message := a.report(v1alpha1.ReasonResolvedByAlert, messageResolvedByAlert,
			v1alpha1.ReasonResolvedByUser, "resolved")
		l.resolve(reason, message, a.transition(v1alpha1.TransitionResolved, "Resolved"))
		return ResultResolved
	}
	if after := l.status.Alert.Severity; before != after && before != "" {
		l.record(v1alpha1.Transition{
			Type: v1alpha1.TransitionSeverityChanged, Time: *timestamp(a.received), Severity: after,
			Message: fmt.Sprintf("Severity changed from %s to %s", before, after),
		})
	}
	return l.acknowledge(a)
}

// acknowledge sets the condition Acknowledged if the alert acknowledges the Incident or withdraws an acknowledgement.
func (l *lifecycle) acknowledge(a receivedAlert) string {
	again := meta.IsStatusConditionTrue(l.status.Conditions, v1alpha1.ConditionAcknowledged)
	if a.Status == v1alpha1.AlertUnacknowledged && again {
		reason, message := a.report(v1alpha1.ReasonUnacknowledged, messageUnacknowledged,
			v1alpha1.ReasonUnacknowledgedByUser, "unacknowledged")
		l.condition(v1alpha1.ConditionAcknowledged, metav1.ConditionFalse, a.received, reason, message)
		l.status.Acknowledgement = nil
		l.record(a.transition(v1alpha1.TransitionUnacknowledged, "Unacknowledged"))
		l.urgent = true
		return ResultUnacknowledged
	}
	if a.Status != v1alpha1.AlertAcknowledged {
		return ResultUpdated
	}
	entry := a.transition(v1alpha1.TransitionAcknowledged, "Acknowledged")
	l.cover(&entry)
	if again && a.Comment == "" {
		return ResultUpdated
	}
	// Who acknowledges it once more to say something is heard; the condition stays with the first one.
	l.record(entry)
	l.urgent = true
	if again {
		return ResultUpdated
	}
	reason, message := a.report(v1alpha1.ReasonAcknowledged, messageAcknowledged,
		v1alpha1.ReasonAcknowledgedByUser, "acknowledged")
	l.condition(v1alpha1.ConditionAcknowledged, metav1.ConditionTrue, a.received, reason, message)
	return ResultAcknowledged
}

// cover has the acknowledgement cover the severity that the Incident has now. Who acknowledged it first, and when, stays.
func (l *lifecycle) cover(entry *v1alpha1.Transition) {
	if StaysAcknowledged(l.status) {
		return
	}
	acknowledgement := AcknowledgementOf(l.status)
	if acknowledgement == nil {
		acknowledgement = &v1alpha1.Acknowledgement{Time: entry.Time, By: entry.By, Comment: entry.Comment}
	}
	acknowledgement.Severity = l.status.Alert.Severity
	l.status.Acknowledgement = acknowledgement
}

// transition returns the entry of the timeline for a report.
func (a *receivedAlert) transition(kind v1alpha1.TransitionType, did string) v1alpha1.Transition {
	by := a.by()
	return v1alpha1.Transition{
		Type: kind, Time: *timestamp(a.received), Message: did + " by " + cmp.Or(by, byAlert),
		By: by, Comment: plaintext.ShortComment(a.Comment),
	}
}

// by is the name of the user whose report the alert is, in one line; empty for an alert of a sender.
func (a *receivedAlert) by() string {
	return plaintext.ShortName(a.By)
}

// report is the reason and the message of the condition that an alert brings about: those of an alert, or
// those of a user.
func (a *receivedAlert) report(reason, message, userReason, userDid string) (condition, text string) {
	by := a.by()
	if by == "" {
		return reason, message
	}
	return userReason, by + " " + userDid + " the incident."
}

// open begins an episode: the content starts afresh.
func (l *lifecycle) open(a receivedAlert, transition v1alpha1.TransitionType) {
	s := l.status
	number := int64(1)
	if s.Episode != nil {
		number = s.Episode.Number + 1
		if l.reopening != nil {
			l.reopening()
		}
	}
	s.State = v1alpha1.IncidentOpen
	s.Episode = &v1alpha1.Episode{Number: number}
	s.OpenedTime = timestamp(a.received)
	s.ResolvedTime, s.Resolution, s.Acknowledgement = nil, nil, nil
	s.Alert = v1alpha1.AlertContent{}
	s.Lease = leaseOf(a)
	l.sizeBound = maxTitleBytes // a title may be made from the description
	l.condition(v1alpha1.ConditionResolved, metav1.ConditionFalse, a.received, v1alpha1.ReasonFiring, messageFiring)
	l.condition(v1alpha1.ConditionAcknowledged, metav1.ConditionFalse, a.received,
		v1alpha1.ReasonNotAcknowledged, messageNotAcknowledged)
	l.merge(a)
	l.record(v1alpha1.Transition{
		Type: transition, Time: *timestamp(a.received), Severity: s.Alert.Severity,
		Message: fmt.Sprintf("%s with severity %s: %s", transition, s.Alert.Severity, s.Alert.Title),
	})
	l.urgent = true
}

// merge folds an alert's content into the episode's.
func (l *lifecycle) merge(a receivedAlert) {
	content, mergeInto := &l.status.Alert, mergeContent
	if a.Status == v1alpha1.AlertResolved {
		mergeInto = mergeResolve
	}
	mergeInto(content, &a.AlertContent)
	fillContent(content, a.defaults, a.integration)
	// Measuring a large content for each of thousands of small alerts would cost seconds: measure it when
	// the sum of the alerts could have passed the limit.
	l.sizeBound += alertcontent.Size(&a.AlertContent) + defaultsSize(a.defaults) + resolvedTextsSize
	if l.sizeBound > alertcontent.MaxBytes || alertcontent.Keys(content) > alertcontent.MaxKeys {
		said := boundContent(content, &a.AlertContent, a.defaults, a.integration)
		l.sizeBound = alertcontent.Size(content)
		if said != "" && !l.justRecorded(v1alpha1.TransitionContentReplaced) {
			l.record(v1alpha1.Transition{Type: v1alpha1.TransitionContentReplaced, Time: *timestamp(a.received), Message: said})
		}
	}
	if began := beginning(a); !isSet(&l.episode().StartTime) || began.Before(l.episode().StartTime.Time) {
		l.episode().StartTime = *timestamp(began)
	}
}

// justRecorded reports whether the timeline ends with an entry of this kind: a sender whose every alert is too large
// does not push everything else out of it.
func (l *lifecycle) justRecorded(kind v1alpha1.TransitionType) bool {
	n := len(l.status.Timeline)
	return n > 0 && l.status.Timeline[n-1].Type == kind
}

// resolve ends the episode with the entry of the timeline.
func (l *lifecycle) resolve(reason, message string, entry v1alpha1.Transition) {
	l.status.State = v1alpha1.IncidentResolved
	l.status.ResolvedTime = &entry.Time
	l.status.Resolution = &v1alpha1.Resolution{Reason: reason, By: entry.By}
	l.status.Lease = nil
	l.condition(v1alpha1.ConditionResolved, metav1.ConditionTrue, entry.Time.Time, reason, message)
	l.record(entry)
	l.urgent = true
}

// autoResolve resolves an Incident that has been silent for so long.
func (l *lifecycle) autoResolve(now time.Time, after time.Duration) {
	l.resolve(v1alpha1.ReasonAutoResolved, messageAutoResolved, v1alpha1.Transition{
		Type: v1alpha1.TransitionResolved, Time: *timestamp(now), Message: fmt.Sprintf("Resolved after %s without an alert", after),
	})
}

// expire resolves an Incident whose lease has ended.
func (l *lifecycle) expire(now time.Time) {
	lease := boundLease(l.status.Lease.Duration)
	l.resolve(v1alpha1.ReasonExpired, messageExpired, v1alpha1.Transition{
		Type: v1alpha1.TransitionResolved, Time: *timestamp(now),
		Message: fmt.Sprintf("Expired: the sender did not repeat the alert for %s", lease),
	})
}

// count counts an alert, whatever else became of it. A note, a request for a silence and the report of a person are none:
// they do not say whether the problem continues.
func (l *lifecycle) count(a receivedAlert) {
	episode := l.episode()
	if !isSet(&episode.StartTime) {
		episode.StartTime = *timestamp(a.received) // the API server rejects an Incident without a start
	}
	if a.Status == v1alpha1.AlertNoted || a.Status == v1alpha1.AlertSilenced || isReport(a.Status) && a.by() != "" {
		return
	}
	l.status.AlertCount++
	episode.AlertCount++
	if last := l.status.LastAlertTime; !isSet(last) || a.heard.After(last.Time) {
		l.status.LastAlertTime = timestamp(a.heard)
	}
}

// episode is the current one. An Incident written by another hand may lack it.
func (l *lifecycle) episode() *v1alpha1.Episode {
	if l.status.Episode == nil {
		l.status.Episode = &v1alpha1.Episode{Number: 1}
		if isSet(l.status.OpenedTime) {
			l.status.Episode.StartTime = *l.status.OpenedTime
		}
	}
	return l.status.Episode
}

// condition sets a condition; its transition time changes only with its status.
func (l *lifecycle) condition(kind string, status metav1.ConditionStatus, at time.Time, reason, message string) {
	meta.SetStatusCondition(&l.status.Conditions, metav1.Condition{
		Type:               kind,
		Status:             status,
		ObservedGeneration: l.generation,
		LastTransitionTime: metav1.NewTime(at.UTC().Truncate(time.Second)),
		Reason:             reason,
		Message:            message,
	})
}

// record adds an entry to the timeline, which keeps the newest.
func (l *lifecycle) record(entry v1alpha1.Transition) {
	entry.Message = plaintext.ShortMessage(entry.Message)
	l.transitions = append(l.transitions, entry)
	l.status.Timeline = append(l.status.Timeline, entry)
	if excess := len(l.status.Timeline) - v1alpha1.MaxTimeline; excess > 0 {
		l.status.Timeline = l.status.Timeline[excess:]
	}
}

// isReport reports whether an alert is about the incident rather than its cause: it opens nothing.
func isReport(status v1alpha1.AlertStatus) bool {
	return status != v1alpha1.AlertFiring
}

// beginning is when an alert says that the trouble began.
func beginning(a receivedAlert) time.Time {
	if isSet(a.StartTime) {
		return a.StartTime.Time
	}
	return a.received
}

func timestamp(t time.Time) *v1alpha1.Timestamp {
	stamp := v1alpha1.NewTimestamp(t)
	return &stamp
}
