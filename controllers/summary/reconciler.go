// Package summary keeps the IncidentSummary of each namespace that has WebhookIntegrations or Incidents that are Open: how many
// are open, and whether a rollout may go on. It may not while something keeps alerts from becoming Incidents.
//
// A summary is counted from the cache when an Incident has changed in what the summary tells. What is counted does not depend on
// earlier counts, so it is right after a change of the leader, and after an event that no watch has shown. It costs little,
// whatever happens:
//
//   - A namespace is counted at most once in countInterval. The first change after a pause is written at once; those that follow
//     within the interval are one write.
//   - All namespaces together take at most writeRate writes a second, in turns. In a storm over many namespaces the summaries are
//     late, and the alerts are not.
package summary

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=incidents;webhookintegrations,verbs=get;list;watch
// +kubebuilder:rbac:groups=tocsin.dev,resources=incidentsummaries,verbs=create;delete;get;list;watch
// +kubebuilder:rbac:groups=tocsin.dev,resources=incidentsummaries/status,verbs=patch

const (
	// countInterval is the least time between two counts of a namespace, and retryInterval the same after a write that failed.
	countInterval = 2 * time.Second
	retryInterval = 10 * time.Second

	// writeRate is how many writes a second all namespaces share: a storm over 1,000 namespaces is told within 100 s.
	writeRate = 10

	// concurrency is how many namespaces are counted at a time, more only if the API server takes a second for one.
	concurrency = 1
)

// reconciler keeps the summaries.
type reconciler struct {
	cache  client.Reader
	live   client.Client
	clock  replica.APIClock
	writes *rate.Limiter
	due    sync.Map // time.Time by namespace, before which that is not counted, of those that have a summary
}

func newReconciler(cache client.Reader, live client.Client, clock replica.APIClock) *reconciler {
	return &reconciler{cache: cache, live: live, clock: clock, writes: rate.NewLimiter(writeRate, 1)}
}

// Add adds the controller to the manager of a leader's term.
func Add(mgr ctrl.Manager, live client.Client, clock replica.APIClock) error {
	return requests.Complete("the IncidentSummaries", ctrl.NewControllerManagedBy(mgr).
		Named("incidentsummary").
		Watches(&v1alpha1.IncidentSummary{}, watch(func(_, _ *v1alpha1.IncidentSummary) bool { return true })).
		Watches(&v1alpha1.Incident{}, watch(differs)).
		Watches(&v1alpha1.WebhookIntegration{}, watch(differsInFolding)).
		WithOptions(requests.Options(mgr, "summary", "summary", concurrency, requests.NameOf)),
		newReconciler(mgr.GetCache(), live, clock))
}

// watch returns a handler that enqueues the summary of a namespace when an object comes or goes, or differs from what it was.
func watch[T requests.Object](differs func(before, after T) bool) handler.EventHandler {
	return requests.OnChange(func(_ context.Context, before, after T, _ bool, queue requests.Queue) {
		var none T
		if before == none || after == none || differs(before, after) {
			namespace := cmp.Or(after, before).GetNamespace()
			requests.Add(queue, types.NamespacedName{Namespace: namespace, Name: v1alpha1.SummaryName})
		}
	})
}

// Reconcile counts a namespace, and writes its summary if that tells something else.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	namespace, now := request.Namespace, r.clock.APITime()
	if wait := r.turn(namespace, now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	read, counted, err := r.gather(ctx, request.NamespacedName)
	switch {
	case err != nil:
	case counted != nil:
		err = r.write(ctx, read, counted, now)
	case read.UID != "":
		err = r.remove(ctx, read)
	default:
		r.due.Delete(namespace)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // the cache does not show the newest one yet
		return ctrl.Result{RequeueAfter: countInterval}, nil
	case err != nil:
		r.due.Store(namespace, now.Add(retryInterval))
	}
	return ctrl.Result{}, err
}

// turn returns how long a namespace has to wait until it is counted; 0 for now. After the clock was set back, it does not wait
// for a time that was near before.
func (r *reconciler) turn(namespace string, now time.Time) time.Duration {
	last, _ := r.due.Load(namespace)
	due, _ := last.(time.Time)
	if wait := due.Sub(now); wait > 0 && wait <= retryInterval {
		return wait
	}
	r.due.Store(namespace, now.Add(countInterval))
	return 0
}

// contents is what a summary tells of its namespace.
type contents struct {
	incidents []v1alpha1.Incident // those that are not Resolved; they must not be modified
	notFolded []string            // the integrations whose alerts do not become Incidents, with the reason
}

// gather returns the summary of a namespace, without a UID if there is none, and what it is to tell; nil if the namespace is to
// have none. One that somebody else has created stays: where a rollout waits for it, its integrations may come later.
func (r *reconciler) gather(ctx context.Context, key types.NamespacedName) (*v1alpha1.IncidentSummary, *contents, error) {
	summary := &v1alpha1.IncidentSummary{}
	if err := r.cache.Get(ctx, key, summary); client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("reading the IncidentSummary: %w", err)
	}
	summary.Namespace, summary.Name = key.Namespace, key.Name
	var incidents v1alpha1.IncidentList
	if err := r.cache.List(ctx, &incidents, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing the Incidents: %w", err)
	}
	var all v1alpha1.WebhookIntegrationList
	if err := r.cache.List(ctx, &all, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing the WebhookIntegrations: %w", err)
	}
	isOwn := summary.UID == "" || summary.Labels[v1alpha1.ManagedByLabel] == v1alpha1.FieldManager
	if len(incidents.Items)+len(all.Items) == 0 && isOwn {
		return summary, nil, nil
	}
	c := &contents{incidents: incidents.Items}
	for i := range all.Items {
		if why := integrations.WhyNotFolded(&all.Items[i]); why != "" {
			c.notFolded = append(c.notFolded, all.Items[i].Name+" ("+why+")")
		}
	}
	slices.Sort(c.notFolded)
	return summary, c, nil
}

// write has the summary of a namespace tell these contents. It creates it if there is none, but not in a namespace that is being
// deleted.
func (r *reconciler) write(ctx context.Context, read *v1alpha1.IncidentSummary, c *contents, now time.Time) error {
	if read.UID == "" {
		if err := r.writes.Wait(ctx); err != nil {
			return fmt.Errorf("waiting to create the IncidentSummary: %w", err)
		}
		read.Labels = map[string]string{v1alpha1.ManagedByLabel: v1alpha1.FieldManager}
		switch err := r.live.Create(ctx, read, client.FieldOwner(v1alpha1.FieldManager)); {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return nil
		case err != nil:
			return fmt.Errorf("creating the IncidentSummary: %w", err)
		}
	}
	updated := read.DeepCopy()
	describe(updated, c, now)
	if changed, err := requests.Changed(read, updated); err != nil || !changed {
		return err
	}
	if err := r.writes.Wait(ctx); err != nil {
		return fmt.Errorf("waiting to write the status: %w", err)
	}
	// A leader that was suspended would mix its counts with those of the next one.
	patch := client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
	if err := r.live.Status().Patch(ctx, updated, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// remove deletes the summary that was read.
func (r *reconciler) remove(ctx context.Context, read *v1alpha1.IncidentSummary) error {
	if err := r.writes.Wait(ctx); err != nil {
		return fmt.Errorf("waiting to delete the IncidentSummary: %w", err)
	}
	preconditions := &client.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion}
	if err := r.live.Delete(ctx, read, preconditions); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the IncidentSummary: %w", err)
	}
	return nil
}
