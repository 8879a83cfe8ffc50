// Package clustercache configures the manager's cache of the cluster's objects for outages of the API server.
//
// The manager starts without an API server (RESTMapper, NonBlocking), and its informers retry at a constant rate (Informers). The
// cache has the Incidents that are not Resolved (Selector).
package clustercache

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/pages"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// retryInterval is the mean time between two attempts of an informer to reach the API server. client-go's own
	// backoff grows to 30 seconds, and a replica that starts during an outage accepts no alerts until its informers
	// have listed.
	retryInterval = time.Second

	// logInterval is how often an informer logs why it cannot list or watch.
	logInterval = 30 * time.Second
)

// RESTMapper returns a static mapper of the kinds that the manager reads through controller-runtime. Discovery would
// require the API server before the manager starts.
func RESTMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion})
	for _, kind := range []string{
		"AlertEvent", "Heartbeat", "Incident", "IncidentSummary", "MaintenanceWindow", "RequestCapture", "WebhookIntegration",
	} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind+"List"), meta.RESTScopeNamespace)
	}
	return mapper, nil
}

// NonBlocking is a cache whose manager does not wait for it to sync. Without an API server the manager would wait
// forever, even after it was told to stop. All other users take the Cache inside.
type NonBlocking struct{ cache.Cache }

// WaitForCacheSync implements cache.Informers.
func (NonBlocking) WaitForCacheSync(context.Context) bool { return true }

// Selector selects the Incidents that the cache has: all that are not Resolved. So memory and start depend on what is open, not
// on history. To the cache, an Incident that is resolved looks as if it were deleted, and one that is reopened as if it were new.
func Selector() fields.Selector {
	return fields.OneTermNotEqualSelector(v1alpha1.StateField, string(v1alpha1.IncidentResolved))
}

// Informers makes the informers of a cache. They retry at a constant rate during an outage, list in pages that are bounded by
// their bytes, and watch anew when a watch has stalled.
type Informers struct {
	// Log gets the errors of the informers.
	Log logr.Logger

	// Listed is told that an informer has read all objects of a kind anew: its watch had a gap, or is the first one. If that failed
	// half-way, the objects that it read are dropped: the informer does not show them. Nil: nobody is told.
	Listed func(kind runtime.Object, dropped ...runtime.Object)

	// Events and Integrations have the stubs that the watches of their kinds read again. Nil: they read none.
	Events       *queue.Cached
	Integrations *Integrations

	// Hidden bounds the number of objects. Nil: all are shown.
	Hidden *Hidden

	// read reads an object from the quorum.
	read func(ctx context.Context, name types.NamespacedName, object client.Object, _ ...client.GetOption) error

	watches sync.Map // the open watches, each a *guardedWatch
}

// NewCache implements cache.NewCacheFunc.
func (i *Informers) NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	options.NewInformer = i.newInformer
	objects, err := cache.New(config, options)
	if err != nil || i.Events == nil && i.Integrations == nil {
		return objects, err
	}
	if err := i.Hidden.follow(objects, i.Events); err != nil {
		return nil, err
	}
	live, err := client.New(config, client.Options{Scheme: options.Scheme, Mapper: options.Mapper})
	if err != nil {
		return nil, fmt.Errorf("making the client that reads stubs: %w", err)
	}
	i.read = live.Get
	if i.Integrations != nil {
		_, err = informers.Feed(objects, &v1alpha1.WebhookIntegration{},
			func(*v1alpha1.WebhookIntegration, bool) {}, i.Integrations.Forget)
	}
	return objects, err
}

func (i *Informers) newInformer(
	source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	withContext := toolscache.ToListerWatcherWithContext(source)
	informer := &pagedInformer{places: i.Hidden.of(object)}
	informer.SharedIndexInformer = toolscache.NewSharedIndexInformer(listsFirst{&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			all, err := informer.list(ctx, options, func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error) {
				return retry(ctx, i.Log, func() (runtime.Object, error) {
					ctx, cancel := context.WithTimeout(ctx, maxSilence)
					defer cancel()
					return withContext.ListWithContext(ctx, page)
				})
			})
			var dropped []runtime.Object
			if err != nil {
				dropped = all.Items
			}
			if i.Listed != nil {
				i.Listed(object, dropped...)
			}
			if i.Integrations != nil {
				i.Integrations.forgetDropped(dropped, informer.GetStore())
			}
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return retry(ctx, i.Log, func() (watch.Interface, error) { return i.watch(ctx, informer, object, withContext, options) })
		},
	}}, object, resync, indexers)
	return informer
}

// listsFirst says that an informer lists before it watches. By default it has the watch send all objects first, which takes the
// API server and this process twice as long.
type listsFirst struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go asks.
func (listsFirst) IsWatchListSemanticsUnSupported() bool { return true }

// pagedInformer transforms the objects of a list page by page, so that the process never has all of them whole.
type pagedInformer struct {
	toolscache.SharedIndexInformer
	transform  toolscache.TransformFunc
	reader     pages.Reader
	namespaces sync.Map // those of stubs
	places     *places  // of its kind; nil: all are shown
}

func (p *pagedInformer) SetTransform(transform toolscache.TransformFunc) error {
	if transform == nil {
		return nil
	}
	p.transform = func(object any) (any, error) {
		transformed, err := transform(object)
		switch object := transformed.(type) {
		case *v1alpha1.AlertEvent:
			if queue.IsStub(object) {
				p.namespaces.Store(object.Namespace, nil)
			}
		case *v1alpha1.WebhookIntegration:
			if !integrations.IsWhole(object) {
				p.namespaces.Store(object.Namespace, nil)
			}
		}
		return transformed, err
	}
	return p.SharedIndexInformer.SetTransform(p.transform) // for what the watch shows; what was listed, it finds transformed
}

// hasStubs reports whether the informer has shown a stub of the namespace: there may be an informer for each namespace.
func (p *pagedInformer) hasStubs(namespace string) bool {
	_, ok := p.namespaces.Load(namespace)
	return ok
}

func (p *pagedInformer) list(
	ctx context.Context, options metav1.ListOptions, list func(context.Context, metav1.ListOptions) (runtime.Object, error),
) (*internalversion.List, error) {
	options.ResourceVersion, options.ResourceVersionMatch = "", "" // with another one there are no pages
	all, listing := &internalversion.List{}, p.places.list(p)
	version, err := p.reader.Each(ctx, options, list, func(page runtime.Object, _ int64) error {
		return meta.EachListItemWithAlloc(page, func(object runtime.Object) error {
			if !listing.passes(object) {
				return nil
			}
			if p.transform != nil {
				transformed, err := p.transform(object)
				if err != nil {
					return err
				}
				object, _ = transformed.(runtime.Object)
			}
			all.Items = append(all.Items, object)
			return nil
		})
	})
	listing.end(err)
	all.ResourceVersion = version
	return all, err
}

func retry[T any](ctx context.Context, log logr.Logger, call func() (T, error)) (T, error) {
	var logged time.Time
	for {
		result, err := call()
		if err == nil || isPermanent(err) || ctx.Err() != nil {
			return result, err
		}
		if time.Since(logged) >= logInterval {
			logged = time.Now()
			log.Error(err, "Cannot list or watch, retrying")
		}
		select {
		case <-ctx.Done():
			return result, err
		case <-time.After(wait.Jitter(retryInterval/2, 2)):
		}
	}
}

// isPermanent reports whether retrying the same call is of no use. Unauthorized and Forbidden are not permanent: an API
// server that has just started denies everything until it has read its roles.
func isPermanent(err error) bool {
	if errors.Is(err, pages.ErrTooLarge) {
		return true // it is asked for in another way
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return true // the informer lists again: the store was restored from a backup
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout,
		http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}
