package incident

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

const (
	// maintenanceInterval is how often the leader looks whether maintenance windows open or end.
	maintenanceInterval = time.Second

	// timeStep is how far the API server's time, as a replica knows it, may be set back by the next answer: folds that are enqueued
	// when a window opens or ends happen after that.
	timeStep = time.Second
)

// windowWatch knows the integrations with maintenance windows, and when the next of these opens or ends.
type windowWatch struct {
	mu    sync.Mutex
	plans map[types.NamespacedName]*watchedPlan
}

// watchedPlan is the plan of an integration. The same windows are open from a time until another one, zero: for ever.
type watchedPlan struct {
	plan        *maintenance.Plan
	from, until time.Time
}

// watchMaintenance enqueues the Incidents of an integration when one of its maintenance windows opens or ends.
func (r *reconciler) watchMaintenance(ctx context.Context, objects cache.Informers, queue requests.Queue) error {
	w := &windowWatch{plans: map[types.NamespacedName]*watchedPlan{}}
	_, err := informers.Feed(ctx, objects, &v1alpha1.WebhookIntegration{},
		func(integration *v1alpha1.WebhookIntegration, _ bool) {
			w.set(client.ObjectKeyFromObject(integration), r.plans.Of(integration), r.Health.APITime().Add(-timeStep))
		},
		func(integration *v1alpha1.WebhookIntegration) {
			w.set(client.ObjectKeyFromObject(integration), nil, time.Time{})
		})
	if err != nil {
		return err
	}
	go wait.UntilWithContext(ctx, func(context.Context) {
		for _, integration := range w.changed(r.Health.APITime().Add(-timeStep)) {
			for _, name := range r.counts.OfIntegration(integration.Namespace, integration.Name) {
				requests.Add(queue, types.NamespacedName{Namespace: integration.Namespace, Name: name}, true)
			}
		}
	}, maintenanceInterval)
	return nil
}

// set notes the plan of an integration, nil if it has none. A new plan has its Incidents enqueued, see foldPolicies.
func (w *windowWatch) set(integration types.NamespacedName, plan *maintenance.Plan, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch known := w.plans[integration]; {
	case plan == nil:
		delete(w.plans, integration)
	case known == nil || known.plan != plan:
		w.plans[integration] = &watchedPlan{plan, now, plan.Next(now)}
	}
}

// changed returns the integrations of which other windows are open now than at the last call. A clock that was set back counts.
func (w *windowWatch) changed(now time.Time) (changed []types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for integration, p := range w.plans {
		if now.Before(p.from) || !p.until.IsZero() && !now.Before(p.until) {
			p.from, p.until = now, p.plan.Next(now)
			changed = append(changed, integration)
		}
	}
	return changed
}
