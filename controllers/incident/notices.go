package incident

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// maxNoticeRate and maxNoticeBurst bound the Kubernetes Events on Incidents and their log lines, a second and at once. Each
	// Event is a write of its own; a storm that opens thousands of Incidents would make half as many more of them.
	maxNoticeRate  = 2
	maxNoticeBurst = 100
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reasonNoIncident is the reason of a Kubernetes Event on an AlertEvent.
const reasonNoIncident = "NoIncident"

// maxLoggedTitle is how many characters, and bytes, of a title the log has.
const maxLoggedTitle = 128

// maxNote is how many bytes the note of a Kubernetes Event may have.
const maxNote = 1024

// kubernetesEvent is how a transition shows as a Kubernetes Event.
type kubernetesEvent struct {
	eventType string
	action    string // as events.k8s.io requires
}

// kubernetesEvents lists the Kubernetes Events on an Incident by their reason, which is the transition's
// type. A transition that is not listed has none.
var kubernetesEvents = map[v1alpha1.TransitionType]kubernetesEvent{
	v1alpha1.TransitionOpened:          {corev1.EventTypeWarning, "Open"},
	v1alpha1.TransitionReopened:        {corev1.EventTypeWarning, "Reopen"},
	v1alpha1.TransitionResolved:        {corev1.EventTypeNormal, "Resolve"},
	v1alpha1.TransitionAcknowledged:    {corev1.EventTypeNormal, "Acknowledge"},
	v1alpha1.TransitionUnacknowledged:  {corev1.EventTypeNormal, "Unacknowledge"},
	v1alpha1.TransitionAssigned:        {corev1.EventTypeNormal, "Assign"},
	v1alpha1.TransitionUnassigned:      {corev1.EventTypeNormal, "Unassign"},
	v1alpha1.TransitionSilenced:        {corev1.EventTypeNormal, "Silence"},
	v1alpha1.TransitionUnsilenced:      {corev1.EventTypeNormal, "Unsilence"},
	v1alpha1.TransitionSeverityChanged: {corev1.EventTypeNormal, "ChangeSeverity"},
}

// emit records the Kubernetes Event of a transition that is written.
func emit(recorder events.EventRecorder, incident *v1alpha1.Incident, transition *v1alpha1.Transition) {
	entry, ok := kubernetesEvents[transition.Type]
	if !ok {
		return
	}
	if incident.Status.Alert.Severity == v1alpha1.SeverityInfo {
		entry.eventType = corev1.EventTypeNormal
	}
	note := transition.Message
	if transition.Comment != "" {
		note += ": " + transition.Comment
	}
	if title := incident.Status.Alert.Title; title != "" && !strings.Contains(note, title) {
		note += " (" + title + ")"
	}
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-len("…")], "") + "…"
	}
	recorder.Eventf(incident, nil, entry.eventType, string(transition.Type), entry.action, "%s", note)
}
