// Package live keeps the Incidents of a namespace, or of a whole cluster, up to date by a watch.
//
// A watch is silent while nothing changes, and just as silent while the API server hangs. So a Feed also asks for one
// Incident's metadata every few seconds: what is known is up to date as long as that succeeds and the watch stands.
package live

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// probeInterval is how often the API server is asked for a sign of life.
	probeInterval = 3 * time.Second
	// probeTimeout is how long an API server may take to answer before it counts as hanging.
	probeTimeout = 5 * time.Second
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
	client    client.WithWatch
	namespace string
	informer  cache.SharedIndexInformer
	onChange  func(Change)

	mu        sync.Mutex
	problems  [requests]error
	confirmed time.Time
	// reachable is closed when a probe succeeds again; nil while the API server answers.
	reachable chan struct{}
}

// request is a kind of request that may fail by itself: who may list need not be allowed to watch.
type request int

const (
	probe request = iota
	list
	watching
	requests
)

// Follow makes a Feed for a namespace, empty for all. onChange is called for every Incident that there is and
// for every change, one call at a time; it must not block for long. The Feed keeps of an Incident what keep
// leaves of it; nil keeps all.
func Follow(c client.WithWatch, namespace string, keep func(*v1alpha1.Incident), onChange func(Change)) (*Feed, error) {
	f := &Feed{client: c, namespace: namespace, onChange: onChange, confirmed: time.Now()}
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
			f.awaitReachable(ctx)
			incidents := &v1alpha1.IncidentList{}
			err := c.List(ctx, incidents, where(options))
			f.note(ctx, list, err)
			return incidents, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			f.awaitReachable(ctx)
			events, err := c.Watch(ctx, &v1alpha1.IncidentList{}, where(options))
			if options.SendInitialEvents == nil || !apierrors.IsInvalid(err) {
				f.note(ctx, watching, err)
			} // else the API server does not know initial events, and is asked for a list next
			return events, err
		},
	}
}

// note remembers how a request went.
func (f *Feed) note(ctx context.Context, of request, err error) {
	if ctx.Err() != nil {
		return // it is over
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problems[of] = err
	if of == watching && err == nil {
		f.problems[list] = nil // the watch brings what a list would have brought
	}
}

// awaitReachable waits until the API server answers. The informer's own retries come at longer and longer
// intervals; waiting here, it has failed once or twice when the API server is back.
func (f *Feed) awaitReachable(ctx context.Context) {
	f.mu.Lock()
	reachable := f.reachable
	f.mu.Unlock()
	if reachable == nil {
		return
	}
	select {
	case <-reachable:
	case <-ctx.Done():
	}
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
func (f *Feed) Run(ctx context.Context) {
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		f.probe(ctx)
	}()
	f.informer.RunWithContext(ctx)
	<-probed
}

// probe asks the API server for a sign of life until ctx ends.
func (f *Feed) probe(ctx context.Context) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		err := Check(ctx, f.client, f.namespace)
		f.note(ctx, probe, err)
		f.conclude(err)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// conclude draws the conclusions from a probe.
func (f *Feed) conclude(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch answered := err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown; {
	case !answered && f.reachable == nil:
		f.reachable = make(chan struct{})
	case answered && f.reachable != nil:
		close(f.reachable)
		f.reachable = nil
	}
	if f.problem() == nil && f.informer.HasSynced() {
		f.confirmed = time.Now()
	}
}

// Check finds out whether the API server answers and lets the caller list the Incidents of a namespace, empty for
// all. It waits for no longer than a few seconds.
func Check(ctx context.Context, c client.Client, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	one := &metav1.PartialObjectMetadataList{}
	one.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("IncidentList"))
	return c.List(ctx, one, client.InNamespace(namespace), client.Limit(1))
}

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
	return f.problem()
}

func (f *Feed) problem() error {
	for _, err := range f.problems {
		if err != nil {
			return err
		}
	}
	return nil
}

// Age is how long ago the API server last confirmed that what is known is up to date.
func (f *Feed) Age() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.confirmed)
}
