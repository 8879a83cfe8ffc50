package fold

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const messageAcknowledgementExpired = "The acknowledgement has expired."

// minAcknowledgement bounds how long an acknowledgement lasts, as the schema does.
const minAcknowledgement = time.Minute

// acknowledgementRule ends acknowledgements that are forgotten. The end is set with the acknowledgement, and again with each
// further one that has a duration, its own or the integration's. So a change of the integration concerns no earlier one.
type acknowledgementRule struct{ noRule }

func (acknowledgementRule) alert(f *folding, a receivedAlert, _ stateBefore) {
	given := f.status.Acknowledgement
	if a.Status != v1alpha1.AlertAcknowledged || a.overtaken || given == nil || f.status.State != v1alpha1.IncidentOpen {
		return
	}
	if lasts := durationOr(a.AcknowledgeFor, f.in.Policy.AcknowledgementExpiresAfter); lasts > 0 {
		lasts = min(max(lasts, minAcknowledgement), v1alpha1.MaxAcknowledgement)
		given.ExpirationTime = timestamp(a.received.Add(lasts))
	}
}

func (r acknowledgementRule) finish(f *folding, _ stateBefore) {
	at := r.due(f.status, &f.in.Policy)
	if at.IsZero() || !f.in.Now.After(at) || f.hasWaitingAlerts() {
		return
	}
	entry := v1alpha1.Transition{Type: v1alpha1.TransitionUnacknowledged, Time: *timestamp(f.in.Now)}
	entry.Message = fmt.Sprintf("The acknowledgement by %s expired", cmp.Or(f.status.Acknowledgement.By, byAlert))
	f.condition(v1alpha1.ConditionAcknowledged, metav1.ConditionFalse, f.in.Now,
		v1alpha1.ReasonExpired, messageAcknowledgementExpired)
	f.status.Acknowledgement = nil
	f.episode().ExpiredAcknowledgements++
	f.plan.AddEntry(entry)
	f.plan.Write, f.plan.Urgent, f.plan.ByTime = true, true, true
}

// due is when the acknowledgement of an Open Incident expires; zero if it does not. It does not while a repetition could not be
// stored, or the time is not certain, see Policy.QuietFrom.
func (acknowledgementRule) due(status *v1alpha1.IncidentStatus, p *Policy) time.Time {
	given := status.Acknowledgement
	if status.State != v1alpha1.IncidentOpen || given == nil || !isSet(given.ExpirationTime) {
		return time.Time{}
	}
	return Latest(given.ExpirationTime.Time, p.QuietFrom)
}

// acknowledge sets the condition Acknowledged if the alert acknowledges the Incident or withdraws an acknowledgement.
func (f *folding) acknowledge(a receivedAlert) string {
	acknowledged := meta.IsStatusConditionTrue(f.status.Conditions, v1alpha1.ConditionAcknowledged)
	switch {
	case a.Status == v1alpha1.AlertUnacknowledged && acknowledged:
		reason, message, entry := a.describe(v1alpha1.TransitionUnacknowledged,
			v1alpha1.ReasonUnacknowledged, v1alpha1.ReasonUnacknowledgedByUser)
		f.condition(v1alpha1.ConditionAcknowledged, metav1.ConditionFalse, a.received, reason, message)
		f.status.Acknowledgement = nil
		f.plan.AddEntry(entry)
		f.plan.Urgent = true
		return ResultUnacknowledged
	case a.Status != v1alpha1.AlertAcknowledged:
		return ResultUpdated
	}
	reason, message, entry := a.describe(v1alpha1.TransitionAcknowledged,
		v1alpha1.ReasonAcknowledged, v1alpha1.ReasonAcknowledgedByUser)
	f.cover(&entry)
	if !acknowledged || a.Comment != "" { // a further acknowledgement is recorded for its comment
		f.plan.AddEntry(entry)
		f.plan.Urgent = true
	}
	if acknowledged {
		return ResultUpdated // the condition stays with the first one
	}
	f.condition(v1alpha1.ConditionAcknowledged, metav1.ConditionTrue, a.received, reason, message)
	return ResultAcknowledged
}

// cover has the acknowledgement cover the severity that the Incident has now. Who acknowledged it first, and when, stays.
func (f *folding) cover(entry *v1alpha1.Transition) {
	if StaysAcknowledged(f.status) {
		return
	}
	if f.status.Acknowledgement == nil {
		f.status.Acknowledgement = &v1alpha1.Acknowledgement{Time: entry.Time, By: entry.By, Comment: entry.Comment}
	}
	f.status.Acknowledgement.Severity = f.status.Alert.Severity
}

// AcknowledgedBy returns who acknowledged the current episode: a user's name, "an alert", or empty if nobody did.
func AcknowledgedBy(status *v1alpha1.IncidentStatus) string {
	if status.Acknowledgement != nil {
		return cmp.Or(status.Acknowledgement.By, byAlert)
	}
	return ""
}

// StaysAcknowledged reports whether the acknowledgement of an Incident covers it: the Incident is open, and not more severe
// than it was then. An acknowledgement at an unknown severity covers nothing.
func StaysAcknowledged(status *v1alpha1.IncidentStatus) bool {
	then := status.Acknowledgement
	if status.State != v1alpha1.IncidentOpen || then == nil || then.Severity == "" {
		return false
	}
	return !IsMoreSevere(status.Alert.Severity, then.Severity)
}
