package fold

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Origin is the AlertEvent from which the alerts of a quarantined one were moved.
type Origin struct {
	UID, ResourceVersion, Name string
	Created                    time.Time
}

// OriginOf returns the origin of a quarantined AlertEvent, and false for all others. The annotation alone is no proof,
// since anybody may write it: the name must be the one that is made of the UID and the Incident. A resourceVersion
// or a creation that is not older than the copy's own is not believed.
func OriginOf(event *v1alpha1.AlertEvent) (Origin, bool) {
	if !v1alpha1.IsQuarantineName(event.Name) || len(event.Spec.Alerts) == 0 {
		return Origin{}, false
	}
	parts := strings.SplitN(event.Annotations[v1alpha1.QuarantineOriginAnnotation], "/", 4)
	if len(parts) != 4 || event.Name != v1alpha1.QuarantineName(parts[0], event.IncidentNameFor(&event.Spec.Alerts[0])) {
		return Origin{}, false
	}
	from := Origin{UID: parts[0], ResourceVersion: parts[1], Name: parts[3], Created: event.CreationTimestamp.Time}
	if created, err := strconv.ParseInt(parts[2], 10, 64); err == nil && created < from.Created.Unix() {
		from.Created = time.Unix(created, 0)
	}
	if !NewerVersion(event.ResourceVersion, from.ResourceVersion) {
		from.ResourceVersion = event.ResourceVersion
	}
	return from, true
}

// CommitVersion is the resourceVersion that gives an AlertEvent's place in commit order: its own, or its origin's.
func CommitVersion(event *v1alpha1.AlertEvent) string {
	if from, ok := OriginOf(event); ok {
		return from.ResourceVersion
	}
	return event.ResourceVersion
}

// createdTime is when the API server stored an AlertEvent, or its origin.
func createdTime(event *v1alpha1.AlertEvent) time.Time {
	if from, ok := OriginOf(event); ok {
		return from.Created.UTC()
	}
	return event.CreationTimestamp.UTC()
}

// IsUnconfirmed reports whether it is not confirmed yet that the origin existed together with the copy. A missing label
// counts as confirmed: alerts are rather kept than lost.
func IsUnconfirmed(labels map[string]string) bool {
	return labels[v1alpha1.QuarantineLabel] == v1alpha1.QuarantineUnconfirmed
}

// QuarantineCopy returns the AlertEvent that takes over the alerts that an AlertEvent has for an Incident. They keep
// their ids, or get those that they would have had by their places, so that they count as the same alerts.
func QuarantineCopy(event *v1alpha1.AlertEvent, incidentName string) *v1alpha1.AlertEvent {
	moved := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: event.Namespace,
			Name:      v1alpha1.QuarantineName(string(event.UID), incidentName),
			Labels:    map[string]string{v1alpha1.QuarantineLabel: v1alpha1.QuarantineUnconfirmed},
			Annotations: map[string]string{
				v1alpha1.QuarantineOriginAnnotation: fmt.Sprintf("%s/%s/%d/%s",
					event.UID, CommitVersion(event), createdTime(event).Unix(), event.Name),
			},
		},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: event.Spec.IntegrationName,
			ReceivedTime:    v1alpha1.NewTimestamp(ReceivedTime(event)),
			Defaults:        event.Spec.Defaults.DeepCopy(),
		},
	}
	for i := range event.Spec.Alerts {
		if event.IncidentNameFor(&event.Spec.Alerts[i]) != incidentName {
			continue
		}
		alert := *event.Spec.Alerts[i].DeepCopy()
		alert.ID, alert.IncidentName = AlertID(event, i), incidentName
		moved.Spec.Alerts = append(moved.Spec.Alerts, alert)
	}
	return moved
}

// ReceivedTime is when an event was accepted. People may write any time into an AlertEvent of theirs, and a replica's
// clock may be wrong: one that lies further ahead of the creation than clocks may differ counts as the creation.
func ReceivedTime(event *v1alpha1.AlertEvent) time.Time {
	received, created := event.Spec.ReceivedTime.UTC(), createdTime(event)
	if received.IsZero() || !created.IsZero() && received.Sub(created) > MaxClockDifference {
		return created
	}
	return received
}

// heardTime is since when an Incident has been silent after an event. It is the time of receipt, but not much before the
// event was stored: the clock of a replica that lags behind must not make its alerts look like silence.
func heardTime(event *v1alpha1.AlertEvent) time.Time {
	received, created := ReceivedTime(event), createdTime(event)
	if earliest := created.Add(-MaxClockDifference); !created.IsZero() && received.Before(earliest) {
		return earliest
	}
	return received
}
