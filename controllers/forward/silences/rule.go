package silences

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Messages of the condition Silenced.
const (
	messageNotSilenced        = "No silence in Alertmanager covers the incident."
	messageSilenceRequested   = "A silence was requested; it was not found in Alertmanager yet."
	messageForwardingDisabled = "A silence was requested, but has no effect: the manager runs without --alertmanager-config."
)

// Result is that of folding a request for a silence, or the end of one.
const Result = "silenced"

// Rule is the rule of the folds of an Incident: it records requests for silences, and what is known about those in Alertmanager.
type Rule struct {
	Disabled bool              // Incidents are not forwarded
	Read     bool              // the silences were read
	Covering *v1alpha1.Silence // the one that covers the Incident; nil if none does

	// Ended is the endTime of the request whose silence somebody has ended in the Alertmanager EndedIn; zero if nobody has.
	Ended   time.Time
	EndedIn string
}

// TakeReport records the request of a user for a silence, or the end of it. A request lasts no longer than the episode: a silence
// that outlives it would keep the receiver from hearing that the Incident is resolved.
func (Rule) TakeReport(p *fold.Plan, a *v1alpha1.Alert, entry v1alpha1.Transition) string {
	switch status := &p.Status; {
	case a.Status != v1alpha1.AlertSilenced:
		return ""
	case status.State == v1alpha1.IncidentResolved:
		return fold.ResultLate
	case a.SilenceFor == nil || a.SilenceFor.Duration <= 0:
		if status.Silence == nil {
			return Result
		}
		status.Silence = nil
		entry.Type, entry.Message = v1alpha1.TransitionUnsilenced, "Silence ended"+entry.Message
	default:
		length := a.SilenceFor.Duration
		status.Silence = &v1alpha1.Silence{EndTime: v1alpha1.NewTimestamp(entry.Time.Add(length)), By: entry.By, Comment: a.Comment}
		entry.Type, entry.Message = v1alpha1.TransitionSilenced, "Silenced for "+plaintext.Duration(length)+entry.Message
	}
	p.AddEntry(entry)
	p.Urgent = true
	return Result
}

// Reset implements fold.Rule: a request is of one episode.
func (Rule) Reset(status *v1alpha1.IncidentStatus) { status.Silence = nil }

// Finish implements fold.Rule.
func (r Rule) Finish(in *fold.Input, p *fold.Plan) {
	r.endSilence(in, p)
	r.updateSilenced(in, p)
	redate(in, p)
}

// Due is the end of a request for a silence that was not found.
func (Rule) Due(status *v1alpha1.IncidentStatus) (never time.Time) {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSilenced)
	if status.Silence == nil || condition == nil || condition.Status == metav1.ConditionTrue ||
		condition.Reason == v1alpha1.ReasonNotSilenced {
		return never
	}
	return status.Silence.EndTime.Time
}

// Bare leaves comments out.
func (Rule) Bare(status *v1alpha1.IncidentStatus) {
	for _, silence := range []*v1alpha1.Silence{status.Silence, status.SilencedBy} {
		if silence != nil {
			silence.Comment = ""
		}
	}
}

// endSilence ends the request for a silence that somebody has ended in Alertmanager, which does not tell who did.
func (r Rule) endSilence(in *fold.Input, p *fold.Plan) {
	request, ended := p.Status.Silence, r.Ended
	if request == nil || ended.IsZero() || !request.EndTime.Equal(ended) {
		return
	}
	p.Status.Silence = nil
	p.AddEntry(v1alpha1.Transition{
		Type: v1alpha1.TransitionUnsilenced, Time: v1alpha1.NewTimestamp(in.Now),
		Message: fmt.Sprintf("Silence ended in Alertmanager %s, which does not tell who ended it", r.EndedIn),
	})
	p.Write, p.Urgent = true, true
}

// updateSilenced sets the condition Silenced, once a silence was requested or found.
func (r Rule) updateSilenced(in *fold.Input, p *fold.Plan) {
	status, covering := &p.Status, r.Covering
	requested := status.Silence != nil && status.Silence.EndTime.After(in.Now)
	value, reason, message := r.silenced(status, requested)
	if status.State == "" || reason == "" {
		return
	}
	none := &v1alpha1.Silence{}
	differs := *cmp.Or(status.SilencedBy, none) != *cmp.Or(covering, none)
	changed := meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionSilenced, Status: value, ObservedGeneration: in.Incident.Generation,
		LastTransitionTime: metav1.NewTime(in.Now.UTC().Truncate(time.Second)), Reason: reason, Message: message,
	})
	if !changed && !differs {
		return
	}
	status.SilencedBy = covering.DeepCopy()
	p.Write = true
}

// redate corrects a request that was noted before the API server's clock was set back, as fold does with other times. It goes by
// the request's entry in the timeline: the request has no time of its own.
func redate(in *fold.Input, p *fold.Plan) {
	timeline, request := p.Status.Timeline, p.Status.Silence
	if p.Status.State == "" || request == nil || in.Policy.Uncertain {
		return
	}
	for i := range slices.Backward(timeline) {
		if timeline[i].Type == v1alpha1.TransitionSilenced {
			if ahead := fold.Redate(&timeline[i].Time, in.Now); ahead > 0 {
				request.EndTime, p.Write = v1alpha1.NewTimestamp(request.EndTime.Add(-ahead)), true
			}
			return
		}
	}
}

// silenced returns the condition Silenced, with an empty reason if it stays as it is, or there is none. Nothing is known after a
// start of the leader. A request that ends before anything is known was not found.
func (r Rule) silenced(
	status *v1alpha1.IncidentStatus, requested bool,
) (value metav1.ConditionStatus, reason, message string) {
	before := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSilenced)
	switch {
	case r.Covering != nil:
		return metav1.ConditionTrue, v1alpha1.ReasonSilenced, describe(r.Covering)
	case requested && r.Disabled:
		return metav1.ConditionFalse, v1alpha1.ReasonForwardingDisabled, messageForwardingDisabled
	case requested && (r.Read || before == nil || before.Status != metav1.ConditionTrue):
		return metav1.ConditionFalse, v1alpha1.ReasonSilenceRequested, messageSilenceRequested
	case !requested && before != nil && (r.Read || r.Disabled || before.Status != metav1.ConditionTrue):
		return metav1.ConditionFalse, v1alpha1.ReasonNotSilenced, messageNotSilenced
	}
	return "", "", ""
}

// describe returns the author, the end and the comment of a silence, for the condition.
func describe(s *v1alpha1.Silence) string {
	message := fmt.Sprintf("%s silenced the incident in Alertmanager until %s.",
		cmp.Or(plaintext.ShortMessage(s.By), "somebody"), s.EndTime.UTC().Format(time.RFC3339))
	if s.Comment != "" {
		message += " " + plaintext.ShortMessage(s.Comment)
	}
	return message
}
