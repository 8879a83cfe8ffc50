package maintenance

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/informers"
)

// Windows knows the windows that a cache has, by their namespaces. Every fold asks for them, so they are kept ready.
type Windows struct {
	synced toolscache.InformerSynced // nil: they follow no cache

	mu    sync.Mutex
	plans map[string]Plan // sorted by name. A plan never changes: another one takes its place
	gone  map[string]Plan // the windows that were removed or replaced since All was called, in a namespace the newest maxGone
	noted int             // how many windows gone has
}

const (
	// maxGone is how many windows of a namespace are remembered that are gone.
	maxGone = 16

	// maxAllGone is the same for all namespaces; then all are forgotten. Otherwise the memory of a replica that does not lead, where
	// nobody calls All, would grow with each namespace. The leader calls it each second.
	maxAllGone = 1000
)

// NewWindows returns Windows without any.
func NewWindows() *Windows {
	return &Windows{plans: map[string]Plan{}, gone: map[string]Plan{}}
}

// Follow has the windows follow a cache.
func (w *Windows) Follow(objects cache.Informers) (err error) {
	w.synced, err = informers.Feed(objects, &v1alpha1.MaintenanceWindow{},
		func(window *v1alpha1.MaintenanceWindow, _ bool) { w.Set(window) }, w.Remove)
	return err
}

// Synced reports whether all windows are known that existed at the start.
func (w *Windows) Synced() bool { return w.synced == nil || w.synced() }

// Set notes a window as it is now. One that is invalid mutes nothing. The object must not be modified afterwards.
func (w *Windows) Set(window *v1alpha1.MaintenanceWindow) {
	w.replace(window, Compile)
}

// Remove forgets a window.
func (w *Windows) Remove(window *v1alpha1.MaintenanceWindow) { w.replace(window, nil) }

// replace replaces a window by what is compiled of it, if anything.
func (w *Windows) replace(window *v1alpha1.MaintenanceWindow, compile func(*v1alpha1.MaintenanceWindow) (*Window, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	plan := w.plans[window.Namespace]
	at, found := slices.BinarySearchFunc(plan, window.Name, func(other *Window, name string) int {
		return strings.Compare(other.Name, name)
	})
	rest := at
	if found {
		if compile != nil && reflect.DeepEqual(plan[at].Spec, window.Spec) {
			return // its status has changed
		}
		rest++
		w.note(window.Namespace, plan[at])
	}
	var now []*Window
	if compile != nil {
		if compiled, err := compile(window); err == nil {
			now = []*Window{compiled}
		}
	}
	if w.plans[window.Namespace] = slices.Concat(plan[:at], now, plan[rest:]); len(w.plans[window.Namespace]) == 0 {
		delete(w.plans, window.Namespace)
	}
}

func (w *Windows) note(namespace string, window *Window) {
	if w.noted == maxAllGone {
		w.gone, w.noted = map[string]Plan{}, 0
	}
	w.gone[namespace] = append(w.gone[namespace], window)
	if w.noted++; len(w.gone[namespace]) > maxGone {
		w.gone[namespace] = w.gone[namespace][1:]
		w.noted--
	}
}

// Of returns the windows that are for the Incidents of an integration, of which the namespace, the name and the labels count.
// Those of nil are none.
func (w *Windows) Of(integration *v1alpha1.WebhookIntegration) Plan {
	if integration == nil {
		return nil
	}
	return w.In(integration.Namespace).Of(integration)
}

// In returns the windows of a namespace.
func (w *Windows) In(namespace string) Plan {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.plans[namespace]
}

// All returns the windows of each namespace that has some, and those that are gone since the last call: a window may come and go
// in between, and mute an Incident.
func (w *Windows) All() (now, gone map[string]Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gone, w.gone, w.noted = w.gone, map[string]Plan{}, 0
	return maps.Clone(w.plans), gone
}
