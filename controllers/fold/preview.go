package fold

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Preview folds the alerts of an event of the integration as if there were no Incident yet, by the same fold as the
// operator's. It returns the Incidents that they would open, in the order of their first alerts; alerts that acknowledge
// or resolve open none.
func Preview(
	event *v1alpha1.AlertEvent, integration *v1alpha1.WebhookIntegration, presets Presets, now time.Time,
) []v1alpha1.Incident {
	event = event.DeepCopy()
	event.UID, event.Name, event.ResourceVersion = "preview", "preview", "1"
	if event.CreationTimestamp.IsZero() {
		event.CreationTimestamp = metav1.NewTime(now)
	}
	if event.Spec.ReceivedTime.IsZero() {
		event.Spec.ReceivedTime = v1alpha1.NewTimestamp(now)
	}
	var incidents []v1alpha1.Incident
	seen := map[string]bool{}
	for i := range event.Alerts {
		name := event.IncidentNameFor(&event.Alerts[i])
		if seen[name] {
			continue
		}
		seen[name] = true
		folded := Decide(Input{
			Name:    name,
			Events:  []*v1alpha1.AlertEvent{event},
			Listing: AllListed{},
			Policy:  PolicyOf(integration, presets),
			Now:     now,
		})
		if folded.Create == nil {
			continue
		}
		folded.Status.Ledger = v1alpha1.Ledger{}
		incidents = append(incidents, v1alpha1.Incident{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Incident"},
			ObjectMeta: metav1.ObjectMeta{Namespace: event.Namespace, Name: name},
			Spec:       *folded.Create,
			Status:     folded.Status,
		})
	}
	return incidents
}
