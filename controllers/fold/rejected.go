package fold

import (
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// rejectedTitle is the title of an episode whose content is not kept.
const rejectedTitle = "The content of the alerts is not kept"

// WithoutContent returns the plan with a status that has nothing of the alerts' texts, because the API server rejects the whole
// one, or there is no space for it: state, conditions, counts, times, severity and ledger. The content is the stored one of the
// same episode, else a fixed title. The timeline tells the reason, once until another transition is recorded.
func (p *Plan) WithoutContent(stored *v1alpha1.IncidentStatus, reason string, now time.Time) Plan {
	bare := *p
	bare.Status, bare.Transitions = *p.Status.DeepCopy(), nil
	status := &bare.Status
	severity, preset := status.Alert.Severity, status.Alert.Preset
	status.Alert = v1alpha1.AlertContent{Title: rejectedTitle, Type: defaultType}
	if stored.Episode != nil && status.Episode != nil && stored.Episode.Number == status.Episode.Number {
		status.Alert = *stored.Alert.DeepCopy()
	}
	status.Alert.Severity, status.Alert.Preset = severity, preset
	if status.Silence != nil {
		status.Silence.Comment = ""
	}
	if status.Acknowledgement != nil {
		status.Acknowledgement.Comment = ""
	}
	status.Timeline = slices.Clone(stored.Timeline)
	for i := range p.Transitions {
		entry := &p.Transitions[i]
		bare.record(v1alpha1.Transition{Type: entry.Type, Time: entry.Time, Severity: entry.Severity})
	}
	bare.recordOnce(v1alpha1.Transition{Type: v1alpha1.TransitionContentRejected, Time: *timestamp(now), Message: reason})
	return bare
}
