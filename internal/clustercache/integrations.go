package clustercache

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// maxIntegrations bounds the memory of the specs of cached WebhookIntegrations. A namespace has a share of it.
	maxIntegrations = 128 << 20

	// maxCachedLabels bounds the labels of a cached WebhookIntegration, and maxStubLabels those of a stub. The API server bounds
	// each of them, but not their number.
	maxCachedLabels = 64
	maxStubLabels   = 8

	// maxStubDefaults is how large the defaults may be that a stub keeps.
	maxStubDefaults = 2 << 10
)

// Integrations condenses the WebhookIntegrations of the cache. Their specs may have 600 KiB each, so those of one namespace would
// fill the memory of every replica: what has no place is a stub (integrations.IsWhole). First come, first served.
type Integrations struct {
	mu    sync.Mutex
	known map[types.UID]*knownIntegration
	sizes fair.Budget[string] // bytes in memory of those that are whole, by namespace
	last  int                 // the last order
}

type knownIntegration struct {
	name   types.NamespacedName
	size   int64 // bytes in memory that it takes, or would
	isStub bool
	order  int // the stub with the lowest one is next
}

// NewIntegrations returns Integrations without any. A namespace may have a share of the memory.
func NewIntegrations(share float64) *Integrations {
	return &Integrations{
		known: map[types.UID]*knownIntegration{},
		sizes: fair.Budget[string]{Limit: fair.Limit{All: maxIntegrations, Share: share}},
	}
}

// Condense is the transform of the cache. It removes the metadata that nothing reads, of which a tenant could write 1 MiB on each
// object, and makes a stub of what has no place. Of the labels, by which the forwarding selects an integration, the first
// maxCachedLabels in the order of their names stay. A second call changes nothing.
func (i *Integrations) Condense(object any) (any, error) {
	w, ok := object.(*v1alpha1.WebhookIntegration)
	if !ok || !integrations.IsWhole(w) {
		return object, nil
	}
	w.ManagedFields, w.Annotations, w.Finalizers, w.OwnerReferences = nil, nil, nil, nil
	w.Labels = firstLabels(w.Labels, maxCachedLabels)
	if !i.admit(w, memoryOf(&w.Spec)+memoryOf(w.Labels)) {
		w.Labels = firstLabels(w.Labels, maxStubLabels)
		integrations.MakeStub(w, memoryOf(w.Spec.Defaults) <= maxStubDefaults)
	}
	return w, nil
}

func firstLabels(labels map[string]string, most int) map[string]string {
	if len(labels) <= most {
		return labels
	}
	kept := make(map[string]string, most)
	for _, name := range slices.Sorted(maps.Keys(labels))[:most] {
		kept[name] = labels[name]
	}
	return kept
}

// admit reports whether an integration may be whole. One that has a place keeps it unless it grows beyond what is left.
func (i *Integrations) admit(w *v1alpha1.WebhookIntegration, size int64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	entry, held := i.known[w.UID], int64(0)
	if entry == nil {
		i.last++
		entry = &knownIntegration{name: client.ObjectKeyFromObject(w), isStub: true, order: i.last}
		i.known[w.UID] = entry
	}
	if !entry.isStub {
		held = entry.size
	}
	entry.size, entry.isStub = size, size > held && i.sizes.IsOver(w.Namespace, size-held)
	if entry.isStub {
		size = 0
	}
	i.sizes.Add(w.Namespace, size-held)
	return !entry.isStub
}

// NextStub returns the first stub that has a place; ok is false if there is none.
func (i *Integrations) NextStub(isOwn func(namespace string) bool) (next queue.Stub, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := 0
	for uid, entry := range i.known {
		if entry.isStub && (!ok || entry.order < first) && isOwn(entry.name.Namespace) &&
			!i.sizes.IsOver(entry.name.Namespace, entry.size) {
			next, first, ok = queue.Stub{Name: entry.name, UID: uid}, entry.order, true
		}
	}
	return next, ok
}

// PostponeStub has other stubs read before.
func (i *Integrations) PostponeStub(s queue.Stub) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if entry := i.known[s.UID]; entry != nil {
		i.last++
		entry.order = i.last
	}
}

// Forget forgets an integration that is gone.
func (i *Integrations) Forget(w *v1alpha1.WebhookIntegration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if entry := i.known[w.UID]; entry != nil && !entry.isStub {
		i.sizes.Add(w.Namespace, -entry.size)
	}
	delete(i.known, w.UID)
}

// forgetDropped forgets the integrations of a list that failed half-way, but those that the informer has.
func (i *Integrations) forgetDropped(dropped []runtime.Object, shown toolscache.Store) {
	for _, object := range dropped {
		if w, ok := object.(*v1alpha1.WebhookIntegration); ok {
			found, _, _ := shown.Get(w)
			if other, ok := found.(*v1alpha1.WebhookIntegration); !ok || other.UID != w.UID {
				i.Forget(w)
			}
		}
	}
}

// memoryOf returns about how many bytes a value takes beside what a pointer to it, a slice or a map takes itself.
func memoryOf(value any) int64 { return beyond(reflect.ValueOf(value)) }

func beyond(v reflect.Value) (bytes int64) {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len()+15) &^ 15
	case reflect.Pointer:
		if !v.IsNil() {
			bytes = int64(v.Type().Elem().Size()) + beyond(v.Elem())
		}
	case reflect.Slice:
		bytes = int64(v.Cap()) * int64(v.Type().Elem().Size())
		for n := range v.Len() {
			bytes += beyond(v.Index(n))
		}
	case reflect.Map:
		bytes = 2 * int64(v.Len()) * int64(v.Type().Key().Size()+v.Type().Elem().Size())
		for entries := v.MapRange(); entries.Next(); {
			bytes += beyond(entries.Key()) + beyond(entries.Value())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return 0 // its location is shared
		}
		for _, field := range v.Fields() {
			bytes += beyond(field)
		}
	default: // a number or a boolean, which has nothing beside itself
	}
	return bytes
}
