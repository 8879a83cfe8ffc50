package incident

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

const (
	// maintenanceInterval is how often the leader looks whether MaintenanceWindows have changed, open or end.
	maintenanceInterval = time.Second

	// timeStep is how far the API server's time, as a replica knows it, may be set back by the next answer: folds that are enqueued
	// when a window opens or ends happen after that.
	timeStep = time.Second
)

// windowWatch knows the windows that are in force, by namespace, and when the next of them opens or ends.
type windowWatch map[string]watchedPlan

// watchedPlan are the windows of a namespace. The same ones are open from a time until another one, zero: for ever.
type watchedPlan struct {
	plan        maintenance.Plan
	from, until time.Time
}

// watchMaintenance enqueues the Incidents of an integration when a window that is for it is changed, opens or ends.
func (r *reconciler) watchMaintenance(ctx context.Context, queue requests.Queue) error {
	w := windowWatch{}
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		now, gone := r.Windows.All()
		for namespace, windows := range w.changed(now, gone, r.Health.APITime().Add(-timeStep)) {
			for _, integration := range r.covered(ctx, namespace, windows) {
				for _, name := range r.counts.OfIntegration(namespace, integration) {
					requests.AddFirst(queue, types.NamespacedName{Namespace: namespace, Name: name})
				}
			}
		}
	}, maintenanceInterval)
	return nil
}

// covered returns the names of the integrations that one of the windows is for.
func (r *reconciler) covered(ctx context.Context, namespace string, windows maintenance.Plan) (names []string) {
	var list v1alpha1.WebhookIntegrationList
	if err := r.cache.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the term has ended
	}
	for i := range list.Items {
		if windows.Of(&list.Items[i]) != nil {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// changed returns, by namespace, the windows that are changed, added or removed since the last call, or all of the namespace if
// one has opened or ended since then. A clock that was set back counts, and so does a window that is gone already.
func (w windowWatch) changed(now, gone map[string]maintenance.Plan, at time.Time) map[string]maintenance.Plan {
	changed := map[string]maintenance.Plan{}
	for namespace := range sets.KeySet(w).Union(sets.KeySet(now)).Union(sets.KeySet(gone)) {
		known, plan := w[namespace], now[namespace]
		differing := difference(known.plan, plan)
		for _, window := range gone[namespace] {
			if !slices.Contains(known.plan, window) { // it came and went
				differing = append(differing, window)
			}
		}
		switch {
		case len(differing) > 0:
			changed[namespace] = append(differing, known.turned(at)...)
		case len(known.turned(at)) > 0:
			changed[namespace] = known.plan
		default:
			continue
		}
		w[namespace] = watchedPlan{plan, at, plan.Next(at)}
		if len(plan) == 0 {
			delete(w, namespace)
		}
	}
	return changed
}

// turned returns the windows if one of them has opened or ended by a time.
func (p watchedPlan) turned(at time.Time) maintenance.Plan {
	if at.Before(p.from) || !p.until.IsZero() && !at.Before(p.until) {
		return p.plan
	}
	return nil
}

// difference returns the windows that only one of two plans has.
func difference(a, b maintenance.Plan) maintenance.Plan {
	return sets.New(a...).SymmetricDifference(sets.New(b...)).UnsortedList()
}
