package clustercache

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// pageSize is how many Incidents are read at a time. For each page, the API server goes through all of them.
const pageSize = 2000

// errIncidentList is the answer to whoever lists Incidents in the cache.
var errIncidentList = errors.New("the cache does not list Incidents: there may be very many")

// Incidents makes a cache that can have very many Incidents. It reads them in pages and condenses them (see
// v1alpha1.Incident.Condense), and its store has Resolved ones as restingIncidents. Its readers and event handlers get
// Incidents.
type Incidents struct {
	// Log gets the errors of the informers.
	Log logr.Logger

	// Listed is called after an informer has read all objects of its kind anew: its watch had a gap, or is the first one.
	// Nil: it is not.
	Listed func(kind runtime.Object)

	mu     sync.RWMutex
	stores []toolscache.Store // one for each informer of Incidents
	begun  atomic.Int32       // how many of these informers have read their first page

	watches watches
}

// NewCache implements cache.NewCacheFunc.
func (i *Incidents) NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	options.NewInformer = i.newInformer
	byObject := map[client.Object]cache.ByObject{&v1alpha1.Incident{}: {Transform: func(object any) (any, error) {
		if incident, ok := object.(*v1alpha1.Incident); ok {
			return condense(incident), nil
		}
		return object, nil
	}}}
	maps.Copy(byObject, options.ByObject)
	options.ByObject = byObject
	objects, err := cache.New(config, options)
	return &expandingCache{objects, i}, err
}

// Begun says whether each informer has read its first page: that this process may read Incidents, and will have them all.
func (i *Incidents) Begun() bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return int(i.begun.Load()) == len(i.stores)
}

// newInformer returns an informer that retries at a constant rate during an outage, and that reads Incidents in pages.
func (i *Incidents) newInformer(
	source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	withContext := toolscache.ToListerWatcherWithContext(source)
	list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		defer i.listed(object)
		return retry(ctx, i.Log, func() (runtime.Object, error) { return withContext.ListWithContext(ctx, options) })
	}
	_, isIncidents := object.(*v1alpha1.Incident)
	if isIncidents {
		list = inPages(list, sync.OnceFunc(func() { i.begun.Add(1) }))
		indexers = toolscache.Indexers{} // nobody can list them, not even those of a namespace
	}
	informer := toolscache.NewSharedIndexInformer(&listerWatcher{isIncidents, toolscache.ListWatch{
		ListWithContextFunc:  list,
		WatchFuncWithContext: i.watch(object, withContext.WatchWithContext),
	}}, object, resync, indexers)
	if isIncidents {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.stores = append(i.stores, informer.GetStore())
	}
	return informer
}

// listed calls Listed.
func (i *Incidents) listed(kind runtime.Object) {
	if i.Listed != nil {
		i.Listed(kind)
	}
}

// listerWatcher says whether an informer lists before it watches. By default it has the watch send all objects first, which
// takes the API server and this process twice as long: it sends, and they encode and decode, each object by itself.
type listerWatcher struct {
	lists bool
	toolscache.ListWatch
}

// IsWatchListSemanticsUnSupported is what client-go asks.
func (l *listerWatcher) IsWatchListSemanticsUnSupported() bool { return l.lists }

// inPages returns a list of Incidents that reads them in pages and condenses each page, so that neither process has all of
// them in full. It calls begun after each page.
func inPages(
	list func(context.Context, metav1.ListOptions) (runtime.Object, error), begun func(),
) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page, err := list(ctx, options)
		incidents, ok := page.(*v1alpha1.IncidentList)
		if !ok || err != nil {
			return page, err
		}
		begun()
		condensed := &internalversion.List{ListMeta: incidents.ListMeta}
		for n := range incidents.Items {
			object := condense(&incidents.Items[n])
			if incident, ok := object.(*v1alpha1.Incident); ok {
				alone := *incident // without the memory of the whole page
				object = &alone
			}
			condensed.Items = append(condensed.Items, object)
		}
		return condensed, nil
	})
	pages.PageSize = pageSize
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		options.Limit = 0                                              // ours
		options.ResourceVersion, options.ResourceVersionMatch = "", "" // with another one there are no pages
		all, _, err := pages.List(ctx, options)
		return all, err
	}
}

// expandingCache expands the Incidents of its store.
type expandingCache struct {
	cache.Cache
	incidents *Incidents
}

// Get implements client.Reader.
func (c *expandingCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	incident, ok := object.(*v1alpha1.Incident)
	if !ok {
		return c.Cache.Get(ctx, key, object, opts...)
	}
	if _, err := c.Cache.GetInformer(ctx, incident); err != nil { // it waits until the store has all
		return err
	}
	stored, err := c.incidents.get(key)
	if err != nil {
		return err
	}
	if shared := (&client.GetOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy; shared == nil || !*shared {
		stored = stored.DeepCopy()
	}
	*incident = *stored
	return nil
}

// get returns an Incident from the stores.
func (i *Incidents) get(key client.ObjectKey) (*v1alpha1.Incident, error) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, store := range i.stores {
		object, _, err := store.GetByKey(key.String())
		if err != nil {
			return nil, err
		}
		if incident, ok := expand(object).(*v1alpha1.Incident); ok {
			return incident, nil
		}
	}
	return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("incidents").GroupResource(), key.Name)
}

// List implements client.Reader.
func (c *expandingCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.IncidentList); ok {
		return errIncidentList
	}
	return c.Cache.List(ctx, list, opts...)
}

// GetInformer implements cache.Informers.
func (c *expandingCache) GetInformer(
	ctx context.Context, object client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	informer, err := c.Cache.GetInformer(ctx, object, opts...)
	return expandingInformer{informer}, err
}

// GetInformerForKind implements cache.Informers.
func (c *expandingCache) GetInformerForKind(
	ctx context.Context, kind schema.GroupVersionKind, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	informer, err := c.Cache.GetInformerForKind(ctx, kind, opts...)
	return expandingInformer{informer}, err
}

// expandingInformer expands the Incidents that it shows to event handlers.
type expandingInformer struct{ cache.Informer }

// AddEventHandler implements cache.Informer.
func (i expandingInformer) AddEventHandler(
	handler toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandler(expanding(handler))
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i expandingInformer) AddEventHandlerWithResyncPeriod(
	handler toolscache.ResourceEventHandler, period time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithResyncPeriod(expanding(handler), period)
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i expandingInformer) AddEventHandlerWithOptions(
	handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithOptions(expanding(handler), options)
}

// SkipsResting is an event handler that does without most of the Resolved Incidents that are there at the start. To show them to
// it would take as much memory as the store.
type SkipsResting struct {
	toolscache.ResourceEventHandler
}

// expandingHandler expands the Incidents that an event handler gets.
type expandingHandler struct {
	handler toolscache.ResourceEventHandler
	skips   bool // see SkipsResting
}

func expanding(handler toolscache.ResourceEventHandler) expandingHandler {
	_, skips := handler.(SkipsResting)
	return expandingHandler{handler, skips}
}

// OnAdd implements cache.ResourceEventHandler.
func (h expandingHandler) OnAdd(object any, initial bool) {
	if _, rests := object.(*restingIncident); rests && initial && h.skips {
		return
	}
	h.handler.OnAdd(expand(object), initial)
}

// OnUpdate implements cache.ResourceEventHandler.
func (h expandingHandler) OnUpdate(old, object any) { h.handler.OnUpdate(expand(old), expand(object)) }

// OnDelete implements cache.ResourceEventHandler.
func (h expandingHandler) OnDelete(object any) { h.handler.OnDelete(expand(object)) }
