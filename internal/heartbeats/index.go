package heartbeats

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/informers"
)

// Index knows the Heartbeats that a cache has, by their integrations. Every request asks for them, so they are kept ready.
type Index struct {
	synced toolscache.InformerSynced // nil: it follows no cache

	mu  sync.RWMutex
	all map[types.NamespacedName][]*v1alpha1.Heartbeat // by integration, sorted by name; a list never changes
}

// NewIndex returns an Index without any.
func NewIndex() *Index {
	return &Index{all: map[types.NamespacedName][]*v1alpha1.Heartbeat{}}
}

// Follow has the index follow a cache, of which List then finds the Heartbeats as well.
func (x *Index) Follow(objects cache.Informers) (err error) {
	x.synced, err = informers.Feed(objects, &v1alpha1.Heartbeat{},
		func(h *v1alpha1.Heartbeat, _ bool) { x.Set(h) }, x.Remove)
	return cmp.Or(err, addField(objects))
}

// Synced reports whether all Heartbeats are known that existed at the start.
func (x *Index) Synced() bool { return x.synced == nil || x.synced() }

// Set notes a Heartbeat as it is now. The object must not be modified afterwards. Its integration never changes.
func (x *Index) Set(h *v1alpha1.Heartbeat) { x.replace(h, h) }

// Remove forgets a Heartbeat.
func (x *Index) Remove(h *v1alpha1.Heartbeat) { x.replace(h) }

func (x *Index) replace(h *v1alpha1.Heartbeat, now ...*v1alpha1.Heartbeat) {
	x.mu.Lock()
	defer x.mu.Unlock()
	integration := IntegrationOf(h)
	list := x.all[integration]
	at, found := slices.BinarySearchFunc(list, h.Name, func(other *v1alpha1.Heartbeat, name string) int {
		return strings.Compare(other.Name, name)
	})
	rest := at
	if found {
		rest++
	}
	if x.all[integration] = slices.Concat(list[:at], now, list[rest:]); len(x.all[integration]) == 0 {
		delete(x.all, integration)
	}
}

// Of returns the Heartbeats of an integration, sorted by name.
func (x *Index) Of(integration types.NamespacedName) []*v1alpha1.Heartbeat {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.all[integration]
}

// addField has a cache find Heartbeats by their integration, as the API server does. See List.
func addField(fields client.FieldIndexer) error {
	integrationOf := func(object client.Object) []string {
		h, ok := object.(*v1alpha1.Heartbeat)
		if !ok {
			return nil
		}
		return []string{h.Spec.IntegrationName}
	}
	err := fields.IndexField(context.Background(), &v1alpha1.Heartbeat{}, v1alpha1.IntegrationField, integrationOf)
	if err != nil {
		return fmt.Errorf("indexing Heartbeats by their integration: %w", err)
	}
	return nil
}

// Condense is the transform of the cache: that of clustercache, which keeps LinkLabel.
func Condense(object any) (any, error) {
	if h, ok := object.(*v1alpha1.Heartbeat); ok {
		_, isOfLink := h.Labels[v1alpha1.LinkLabel]
		if clustercache.RemoveMetadata(&h.ObjectMeta); isOfLink {
			h.Labels = map[string]string{v1alpha1.LinkLabel: ""}
		}
	}
	return object, nil
}

// List returns the Heartbeats of an integration that a reader has. Whoever is told of a change by an informer reads its cache: an
// Index may be told later. They must not be modified.
func List(ctx context.Context, reader client.Reader, integration types.NamespacedName) (all []*v1alpha1.Heartbeat, err error) {
	var list v1alpha1.HeartbeatList
	err = reader.List(ctx, &list, client.InNamespace(integration.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{v1alpha1.IntegrationField: integration.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the Heartbeats: %w", err)
	}
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// IntegrationOf returns the name of a Heartbeat's integration.
func IntegrationOf(h *v1alpha1.Heartbeat) types.NamespacedName {
	return client.ObjectKey{Namespace: h.Namespace, Name: h.Spec.IntegrationName}
}

// IncidentOf returns the name of a Heartbeat's Incident.
func IncidentOf(h *v1alpha1.Heartbeat) types.NamespacedName {
	key := v1alpha1.HeartbeatKey(h.Name)
	return client.ObjectKey{Namespace: h.Namespace, Name: v1alpha1.IncidentName(h.Spec.IntegrationName, key)}
}
