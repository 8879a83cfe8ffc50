package clustercache

import (
	"maps"
	"slices"
	"unique"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
)

// Condense is the transform of the cache for Incidents and WebhookIntegrations: it makes them small. A second transform of the
// same object changes nothing. Events has the one of AlertEvents.
func Condense(object any) (any, error) {
	switch object := object.(type) {
	case *v1alpha1.Incident:
		condenseIncident(object)
	case *v1alpha1.WebhookIntegration:
		condenseIntegration(object)
	}
	return object, nil
}

// condenseIncident reduces the size of a cached Incident: it removes the metadata that no decision depends on, of which users
// may write much. A second call changes nothing.
func condenseIncident(i *v1alpha1.Incident) {
	i.ManagedFields, i.Annotations, i.Labels, i.Finalizers, i.OwnerReferences = nil, nil, nil, nil, nil
	i.GenerateName = ""
	i.Namespace = intern(i.Namespace)
	i.Spec.IntegrationName = intern(i.Spec.IntegrationName)
	alertcontent.LimitKeys(&i.Status.Alert) // an earlier version did not
}

// intern returns one copy of equal strings: thousands of Incidents have the same few.
func intern[S ~string](s S) S { return unique.Make(s).Value() }

// maxCachedLabels bounds the labels of a cached WebhookIntegration. The API server bounds each of them, but not their number.
const maxCachedLabels = 64

// condenseIntegration reduces the size of a cached WebhookIntegration: it removes the metadata that nothing reads. Of the
// labels, by which the forwarding selects integrations, it keeps the first maxCachedLabels in the order of their names.
//
// Without it, a tenant could fill the memory of every replica with 1 MiB of annotations or labels on each integration.
func condenseIntegration(w *v1alpha1.WebhookIntegration) {
	w.ManagedFields, w.Annotations, w.Finalizers, w.OwnerReferences = nil, nil, nil, nil
	if len(w.Labels) > maxCachedLabels {
		kept := make(map[string]string, maxCachedLabels)
		for _, name := range slices.Sorted(maps.Keys(w.Labels))[:maxCachedLabels] {
			kept[name] = w.Labels[name]
		}
		w.Labels = kept
	}
}
