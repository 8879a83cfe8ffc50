// Package clustercache configures the manager's cache of the cluster's objects for outages of the API server.
//
// The manager starts without an API server (RESTMapper, Unawaited), its informers retry at a constant rate
// (NewInformer), and a store that was restored from a backup ends the process (StoreGuard).
package clustercache

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// retryInterval is the mean time between two attempts of an informer to reach the API server. client-go's own
	// backoff grows to 30 seconds, and a replica that starts during an outage accepts no alerts until its informers
	// have listed.
	retryInterval = time.Second

	// pageSize is how many Incidents are read at a time. For each page, the API server goes through all of them.
	pageSize = 2000

	// logInterval is how often an informer logs why it cannot list or watch.
	logInterval = 30 * time.Second
)

// RESTMapper returns a static mapper of the kinds that the manager reads through controller-runtime. Discovery would
// require the API server before the manager starts.
func RESTMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion})
	for _, kind := range []string{"AlertEvent", "Incident", "WebhookIntegration"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind+"List"), meta.RESTScopeNamespace)
	}
	return mapper, nil
}

// Unawaited is a cache whose manager does not wait for it to sync. Without an API server the manager would wait
// forever, even after it was told to stop. All other users take the Cache inside.
type Unawaited struct{ cache.Cache }

// WaitForCacheSync implements cache.Informers.
func (Unawaited) WaitForCacheSync(context.Context) bool { return true }

// IncidentLists knows how far the informers of Incidents are: with very many Incidents, they take long.
type IncidentLists struct{ made, begun atomic.Int32 }

// Begun says whether each informer has read its first page: that this process may read Incidents, and will have them all.
func (l *IncidentLists) Begun() bool { return l.begun.Load() == l.made.Load() }

// NewInformer returns a constructor of informers that retry at a constant rate during an outage, and that read Incidents in
// pages.
func NewInformer(log logr.Logger, lists *IncidentLists) func(
	toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers,
) toolscache.SharedIndexInformer {
	return func(
		source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		withContext := toolscache.ToListerWatcherWithContext(source)
		list := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return retry(ctx, log, func() (runtime.Object, error) { return withContext.ListWithContext(ctx, options) })
		}
		_, isIncidents := object.(*v1alpha1.Incident)
		if isIncidents {
			list = inPages(list, lists)
		}
		return toolscache.NewSharedIndexInformer(&listerWatcher{isIncidents, toolscache.ListWatch{
			ListWithContextFunc: list,
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return retry(ctx, log, func() (watch.Interface, error) { return withContext.WatchWithContext(ctx, options) })
			},
		}}, object, resync, indexers)
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
// them in full.
func inPages(
	list func(context.Context, metav1.ListOptions) (runtime.Object, error), lists *IncidentLists,
) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	lists.made.Add(1)
	begin := sync.OnceFunc(func() { lists.begun.Add(1) })
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page, err := list(ctx, options)
		if incidents, ok := page.(*v1alpha1.IncidentList); ok && err == nil {
			begin()
			for i := range incidents.Items {
				incidents.Items[i].Condense()
			}
		}
		return page, err
	})
	pages.PageSize = pageSize
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		options.Limit = 0                                              // ours
		options.ResourceVersion, options.ResourceVersionMatch = "", "" // with another one there are no pages
		all, _, err := pages.ListWithAlloc(ctx, options)
		return all, err
	}
}

// retry repeats a call until it succeeds or fails with a permanent error.
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
		case <-time.After(retryInterval/2 + rand.N(retryInterval)):
		}
	}
}

// isPermanent reports whether retrying the same call is of no use. Unauthorized and Forbidden are not permanent: an API
// server that has just started denies everything until it has read its roles.
func isPermanent(err error) bool {
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
