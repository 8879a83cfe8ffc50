// Package clustercache configures the manager's cache of the cluster's objects for outages of the API server.
//
// The manager starts without an API server (RESTMapper, Unawaited), its informers retry at a constant rate (Informers), and a
// store that was restored from a backup ends the process (StoreGuard). The cache has the Incidents that are not Resolved
// (Selector).
package clustercache

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/pages"
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
