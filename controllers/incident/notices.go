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

// eventActions lists the actions, which events.k8s.io requires, of the Kubernetes Events on an Incident by their reason, which is
// the transition's type. A transition that is not listed has none.
var eventActions = map[v1alpha1.TransitionType]string{
	v1alpha1.TransitionOpened:          "Open",
	v1alpha1.TransitionReopened:        "Reopen",
	v1alpha1.TransitionResolved:        "Resolve",
	v1alpha1.TransitionAcknowledged:    "Acknowledge",
	v1alpha1.TransitionUnacknowledged:  "Unacknowledge",
	v1alpha1.TransitionAssigned:        "Assign",
	v1alpha1.TransitionUnassigned:      "Unassign",
	v1alpha1.TransitionSilenced:        "Silence",
	v1alpha1.TransitionUnsilenced:      "Unsilence",
	v1alpha1.TransitionSeverityChanged: "ChangeSeverity",
}

// opens reports whether an episode begins with a transition of a type.
func opens(kind v1alpha1.TransitionType) bool {
	return kind == v1alpha1.TransitionOpened || kind == v1alpha1.TransitionReopened
}

// emit records the Kubernetes Event of a transition that is written.
func emit(recorder events.EventRecorder, incident *v1alpha1.Incident, transition *v1alpha1.Transition) {
	action, ok := eventActions[transition.Type]
	if !ok {
		return
	}
	eventType := corev1.EventTypeNormal
	if opens(transition.Type) && incident.Status.Alert.Severity != v1alpha1.SeverityInfo {
		eventType = corev1.EventTypeWarning
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
	recorder.Eventf(incident, nil, eventType, string(transition.Type), action, "%s", note)
}
