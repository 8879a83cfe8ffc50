package fold

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Messages of the condition Silenced.
const (
	messageNotSilenced        = "No silence in Alertmanager covers the incident."
	messageSilenceRequested   = "A silence was requested; it was not found in Alertmanager yet."
	messageForwardingDisabled = "A silence was requested, but has no effect: the manager runs without --alertmanager-config."
)

// Silencing is what is known about the silences in Alertmanager for an Incident.
type Silencing struct {
	Disabled bool              // Incidents are not forwarded
	Known    bool              // the silences were read
	Covering *v1alpha1.Silence // the one that covers the Incident; nil if none does

	// Ended is the endTime of the request whose silence somebody has ended in the Alertmanager EndedIn; zero if nobody has.
	Ended   time.Time
	EndedIn string
}

// silenceRule records requests for silences, and what is known about silences in Alertmanager.
type silenceRule struct{ noRule }

// takeReport records the request of a user for a silence, or the end of it. A request lasts no longer than the episode: a silence
// that outlives it would keep the receiver from hearing that the Incident is resolved.
func (silenceRule) takeReport(f *folding, a receivedAlert) string {
	switch {
	case a.Status != v1alpha1.AlertSilenced:
		return ""
	case f.status.State == v1alpha1.IncidentResolved:
		return ResultLate
	case a.SilenceFor == nil || a.SilenceFor.Duration <= 0:
		if f.status.Silence == nil {
			return ResultSilenced
		}
		f.status.Silence = nil
		f.plan.addEntry(a.transition(v1alpha1.TransitionUnsilenced, "Silence ended"))
	default:
		until := v1alpha1.NewTimestamp(a.received.Add(a.SilenceFor.Duration))
		f.status.Silence = &v1alpha1.Silence{EndTime: until, By: a.by(), Comment: a.Comment}
		f.plan.addEntry(a.transition(v1alpha1.TransitionSilenced, "Silenced for "+plaintext.Duration(a.SilenceFor.Duration)))
	}
	f.plan.Urgent = true
	return ResultSilenced
}

func (silenceRule) opens(f *folding) { f.status.Silence = nil }

func (silenceRule) ends(f *folding) { f.status.Silence = nil }

func (silenceRule) finish(f *folding, _ earlier) {
	f.endSilence()
	f.updateSilenced()
}

// due is the end of a request for a silence that was not found.
func (silenceRule) due(status *v1alpha1.IncidentStatus, _ *Policy) (never time.Time) {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSilenced)
	if status.Silence == nil || condition == nil || condition.Status == metav1.ConditionTrue ||
		condition.Reason == v1alpha1.ReasonNotSilenced {
		return never
	}
	return status.Silence.EndTime.Time
}

func (silenceRule) bare(status, _ *v1alpha1.IncidentStatus, _ *Policy, _ time.Time) {
	for _, silence := range []*v1alpha1.Silence{status.Silence, status.SilencedBy} {
		if silence != nil {
			silence.Comment = ""
		}
	}
}

// endSilence ends the request for a silence that somebody has ended in Alertmanager, which does not tell who did.
func (f *folding) endSilence() {
	request, ended := f.status.Silence, f.in.Silencing.Ended
	if request == nil || ended.IsZero() || !request.EndTime.Equal(ended) {
		return
	}
	f.status.Silence = nil
	f.plan.addEntry(v1alpha1.Transition{
		Type: v1alpha1.TransitionUnsilenced, Time: *timestamp(f.in.Now),
		Message: fmt.Sprintf("Silence ended in Alertmanager %s, which does not tell who ended it", f.in.Silencing.EndedIn),
	})
	f.plan.Write, f.plan.Urgent = true, true
}

// updateSilenced sets the condition Silenced, once a silence was requested or found.
func (f *folding) updateSilenced() {
	status, covering := f.status, f.in.Silencing.Covering
	requested := status.Silence != nil && status.Silence.EndTime.After(f.in.Now)
	value, reason, message := f.silenced(requested)
	if status.State == "" || reason == "" {
		return
	}
	none := &v1alpha1.Silence{}
	differs := *cmp.Or(status.SilencedBy, none) != *cmp.Or(covering, none)
	if !f.condition(v1alpha1.ConditionSilenced, value, f.in.Now, reason, message) && !differs {
		return
	}
	status.SilencedBy = covering.DeepCopy()
	f.plan.Write = true
}

// silenced returns the condition Silenced, with an empty reason if it stays as it is, or there is none. Nothing is known after a
// start of the leader. A request that ends before anything is known was not found.
func (f *folding) silenced(requested bool) (value metav1.ConditionStatus, reason, message string) {
	s, before := &f.in.Silencing, meta.FindStatusCondition(f.status.Conditions, v1alpha1.ConditionSilenced)
	switch {
	case s.Covering != nil:
		return metav1.ConditionTrue, v1alpha1.ReasonSilenced, describe(s.Covering)
	case requested && s.Disabled:
		return metav1.ConditionFalse, v1alpha1.ReasonForwardingDisabled, messageForwardingDisabled
	case requested && (s.Known || before == nil || before.Status != metav1.ConditionTrue):
		return metav1.ConditionFalse, v1alpha1.ReasonSilenceRequested, messageSilenceRequested
	case !requested && before != nil && (s.Known || s.Disabled || before.Status != metav1.ConditionTrue):
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
