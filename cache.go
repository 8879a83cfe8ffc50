package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
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
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// relistPause is about how long informers wait between two attempts to reach the API server. client-go's own
	// backoff grows to half a minute, and a replica that starts during an outage takes no alerts until its informers
	// have listed.
	relistPause = time.Second

	// relistLogInterval is how often an informer logs why it cannot list or watch.
	relistLogInterval = 30 * time.Second
)

// staticMapper knows the kinds that the manager reads through controller-runtime. Discovery would need the API server
// before the manager starts.
func staticMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion})
	for _, kind := range []string{"AlertEvent", "Incident", "WebhookIntegration"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind+"List"), meta.RESTScopeNamespace)
	}
	return mapper, nil
}

// unawaitedCache is a cache whose manager does not wait for it to sync: without an API server the manager would wait
// for ever, even after the order to stop. Everybody else uses the cache itself.
type unawaitedCache struct{ cache.Cache }

// WaitForCacheSync implements cache.Informers.
func (unawaitedCache) WaitForCacheSync(context.Context) bool { return true }

// newInformer returns a constructor of informers that do not slow down during an outage.
func newInformer(log logr.Logger) func(
	toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers,
) toolscache.SharedIndexInformer {
	return func(
		source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		patient := toolscache.ToListerWatcherWithContext(source)
		return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return retry(ctx, log, func() (runtime.Object, error) { return patient.ListWithContext(ctx, options) })
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return retry(ctx, log, func() (watch.Interface, error) { return patient.WatchWithContext(ctx, options) })
			},
		}, object, resync, indexers)
	}
}

// retry makes a call again until the API server has decided about it. An API server that has just started denies
// everything until it has read its roles.
func retry[T any](ctx context.Context, log logr.Logger, call func() (T, error)) (T, error) {
	var logged time.Time
	for {
		result, err := call()
		if err == nil || isDecided(err) || ctx.Err() != nil {
			return result, err
		}
		if time.Since(logged) >= relistLogInterval {
			logged = time.Now()
			log.Error(err, "Could not list or watch, trying again")
		}
		select {
		case <-ctx.Done():
			return result, err
		case <-time.After(relistPause/2 + rand.N(relistPause)):
		}
	}
}

// isDecided reports whether another attempt of the same call would be of no use.
func isDecided(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return true // the informer lists anew: the store was restored from a backup
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout,
		http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}
