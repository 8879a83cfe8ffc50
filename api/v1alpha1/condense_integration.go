package v1alpha1

import (
	"maps"
	"slices"
)

// maxCachedLabels bounds the labels of a cached WebhookIntegration. The API server bounds each of them, but not their number.
const maxCachedLabels = 64

// Condense reduces the size of a cached WebhookIntegration: it removes the metadata that nothing reads. Of the labels, by which
// the forwarding selects integrations, it keeps the first maxCachedLabels in the order of their names.
//
// Without it, a tenant could fill the memory of every replica with 1 MiB of annotations or labels on each integration.
func (w *WebhookIntegration) Condense() {
	w.ManagedFields, w.Annotations, w.Finalizers, w.OwnerReferences = nil, nil, nil, nil
	if len(w.Labels) > maxCachedLabels {
		kept := make(map[string]string, maxCachedLabels)
		for _, name := range slices.Sorted(maps.Keys(w.Labels))[:maxCachedLabels] {
			kept[name] = w.Labels[name]
		}
		w.Labels = kept
	}
}
