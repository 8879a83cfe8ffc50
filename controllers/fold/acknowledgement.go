package fold

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const messageAcknowledgementExpired = "The acknowledgement has expired."

// minAcknowledgement bounds how long an acknowledgement lasts, as the schema does.
const minAcknowledgement = time.Minute

// acknowledgementRule ends acknowledgements that are forgotten. The end is set with the acknowledgement, and again with each
// further one that has a duration, its own or the integration's. So a change of the integration concerns no earlier one.
type acknowledgementRule struct{ noRule }

func (acknowledgementRule) alert(f *folding, a receivedAlert, _ former) {
	given := f.status.Acknowledgement
	if a.Status != v1alpha1.AlertAcknowledged || a.overtaken || given == nil || f.status.State != v1alpha1.IncidentOpen {
		return
	}
	if lasts := durationOr(a.AcknowledgeFor, f.in.Policy.AcknowledgementExpiresAfter); lasts > 0 {
		lasts = min(max(lasts, minAcknowledgement), v1alpha1.MaxAcknowledgement)
		given.ExpirationTime = timestamp(a.received.Add(lasts))
	}
}

func (acknowledgementRule) finish(f *folding, _ former) {
	at := acknowledgedUntil(f.status, &f.in.Policy)
	if at.IsZero() || !f.in.Now.After(at) || f.isBehind() {
		return
	}
	entry := v1alpha1.Transition{Type: v1alpha1.TransitionUnacknowledged, Time: *timestamp(f.in.Now)}
	entry.Message = fmt.Sprintf("The acknowledgement by %s expired", cmp.Or(f.status.Acknowledgement.By, byAlert))
	f.condition(v1alpha1.ConditionAcknowledged, metav1.ConditionFalse, f.in.Now,
		v1alpha1.ReasonExpired, messageAcknowledgementExpired)
	f.status.Acknowledgement = nil
	f.episode().ExpiredAcknowledgements++
	f.plan.record(entry)
	f.plan.Write, f.plan.Urgent, f.plan.ByTime = true, true, true
}

func (acknowledgementRule) due(status *v1alpha1.IncidentStatus, p *Policy) time.Time {
	return acknowledgedUntil(status, p)
}

// acknowledgedUntil is when the acknowledgement of an Open Incident expires; zero if it does not. It does not while a repetition
// could not be stored, or the time is not certain, see Policy.QuietFrom.
func acknowledgedUntil(status *v1alpha1.IncidentStatus, p *Policy) time.Time {
	given := status.Acknowledgement
	if status.State != v1alpha1.IncidentOpen || given == nil || !isSet(given.ExpirationTime) {
		return time.Time{}
	}
	return Latest(given.ExpirationTime.Time, p.QuietFrom)
}
