package clustercache

import (
	"maps"
	"slices"
	"unique"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
)

// maxCachedLabels bounds the labels of a cached WebhookIntegration. The API server bounds each of them, but not their number.
const maxCachedLabels = 64

// Condense is the transform of the cache for Incidents and WebhookIntegrations: it removes the metadata that nothing reads, of
// which a tenant could write 1 MiB on each object and so fill the memory of every replica. Of the labels of a WebhookIntegration,
// by which the forwarding selects it, the first maxCachedLabels in the order of their names stay. A second call changes nothing.
// Events has the transform of AlertEvents.
func Condense(object any) (any, error) {
	switch object := object.(type) {
	case *v1alpha1.Incident:
		object.ManagedFields, object.Annotations, object.Labels = nil, nil, nil
		object.Finalizers, object.OwnerReferences, object.GenerateName = nil, nil, ""
		object.Namespace = intern(object.Namespace)
		object.Spec.IntegrationName = intern(object.Spec.IntegrationName)
		alertcontent.LimitKeys(&object.Status.Alert) // an earlier version did not
	case *v1alpha1.WebhookIntegration:
		object.ManagedFields, object.Annotations, object.Finalizers, object.OwnerReferences = nil, nil, nil, nil
		if len(object.Labels) > maxCachedLabels {
			kept := make(map[string]string, maxCachedLabels)
			for _, name := range slices.Sorted(maps.Keys(object.Labels))[:maxCachedLabels] {
				kept[name] = object.Labels[name]
			}
			object.Labels = kept
		}
	}
	return object, nil
}

// intern returns one copy of equal strings: thousands of Incidents have the same few.
func intern(s string) string { return unique.Make(s).Value() }
