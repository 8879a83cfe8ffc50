// Package live keeps the Incidents of a namespace, or of a whole cluster, up to date by a watch.
package live

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Change is what happened to one Incident.
type Change struct {
	// Incident is how it is now or, when it is gone, how it was last. It is not to be modified.
	Incident *v1alpha1.Incident
	// Gone is true when it was deleted.
	Gone bool
}

// Feed follows Incidents: it lists and watches them, and begins again when the connection is lost.
type Feed struct {
	informer cache.SharedIndexInformer
	onChange func(Change)

	mu      sync.Mutex
	problem error
}

// Follow makes a Feed for a namespace, empty for all. onChange is called for every Incident that there is and
// for every change, one call at a time; it must not block for long. The Feed keeps of an Incident what keep
// leaves of it; nil keeps all.
func Follow(c client.WithWatch, namespace string, keep func(*v1alpha1.Incident), onChange func(Change)) (*Feed, error) {
	f := &Feed{onChange: onChange}
	source := cache.ToListWatcherWithWatchListSemantics(f.source(c, namespace), c)
	f.informer = cache.NewSharedIndexInformer(source, &v1alpha1.Incident{}, 0, cache.Indexers{})
	err := f.informer.SetTransform(func(object any) (any, error) {
		if incident, ok := object.(*v1alpha1.Incident); ok {
			incident.ManagedFields = nil
			if keep != nil {
				keep(incident)
			}
		}
		return object, nil
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the watch: %w", err)
	}
	// What goes wrong is in Problem; the default handler would log it as well.
	err = f.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	if err != nil {
		return nil, fmt.Errorf("setting up the watch: %w", err)
	}
	_, err = f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f.tell(object, false) },
		UpdateFunc: func(_, object any) { f.tell(object, false) },
		DeleteFunc: func(object any) { f.tell(object, true) },
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the watch: %w", err)
	}
	return f, nil
}

// source lists and watches, and notes how that goes.
func (f *Feed) source(c client.WithWatch, namespace string) *cache.ListWatch {
	where := func(options metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: namespace, Raw: &options}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.IncidentList{}
			err := c.List(ctx, list, where(options))
			f.note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := c.Watch(ctx, &v1alpha1.IncidentList{}, where(options))
			if options.SendInitialEvents == nil || !apierrors.IsInvalid(err) {
				f.note(ctx, err)
			} // else the API server does not know initial events, and is asked for a list next
			return events, err
		},
	}
}

func (f *Feed) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // it is over
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problem = err
}

func (f *Feed) tell(object any, gone bool) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if incident, ok := object.(*v1alpha1.Incident); ok {
		f.onChange(Change{Incident: incident, Gone: gone})
	}
}

// Run follows until ctx ends.
func (f *Feed) Run(ctx context.Context) { f.informer.RunWithContext(ctx) }

// Synced says whether all Incidents that there were at first are known.
func (f *Feed) Synced() bool { return f.informer.HasSynced() }

// Incidents are those that there are, in no order. They are not to be modified.
func (f *Feed) Incidents() []*v1alpha1.Incident {
	var incidents []*v1alpha1.Incident
	for _, object := range f.informer.GetStore().List() {
		if incident, ok := object.(*v1alpha1.Incident); ok {
			incidents = append(incidents, incident)
		}
	}
	return incidents
}

// Problem is why what is known may be out of date; nil when it is not.
func (f *Feed) Problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}
