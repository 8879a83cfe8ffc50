package maintenance

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	// interval is how often the leader looks whether MaintenanceWindows have changed, open or end.
	interval = time.Second

	// timeStep is how far the API server's time, as a replica knows it, may be set back by the next answer: folds that are enqueued
	// when a window opens or ends happen after that.
	timeStep = time.Second

	messageOpen = "These maintenance windows are open, and new Incidents that match them are not posted: "

	// maxOpenNames is how many open windows a message names. A namespace may have hundreds.
	maxOpenNames = 10
)

// Muting has the windows of a cache mute Incidents. It implements controllers.Feature and forward.Mutings.
type Muting struct {
	*maintenance.Windows

	cache  client.Reader
	clock  replica.APIClock
	counts *capacity.Counts
}

// NewMuting returns a Muting that follows a cache, as the counts do.
func NewMuting(objects cache.Cache, clock replica.APIClock, counts *capacity.Counts) (*Muting, error) {
	m := &Muting{maintenance.NewWindows(), objects, clock, counts}
	return m, m.Follow(objects)
}

// Of implements forward.Mutings.
func (m *Muting) Of(integration *v1alpha1.WebhookIntegration) fold.Muting {
	return m.Windows.Of(integration)
}

// AddTo implements incident.Feature.
func (m *Muting) AddTo(_ context.Context, policy *fold.Policy, integration *v1alpha1.WebhookIntegration) error {
	policy.Muting = m.Of(integration)
	return nil
}

// Describe implements forward.Mutings. It adds the open windows.
func (m *Muting) Describe(condition *metav1.Condition, integration *v1alpha1.WebhookIntegration, now time.Time) {
	var names []string
	for _, opening := range m.Windows.Of(integration).Open(now) {
		names = append(names, opening.Window)
	}
	if len(names) == 0 {
		return
	}
	if condition.Reason == v1alpha1.ReasonForwarding {
		condition.Reason = v1alpha1.ReasonMaintenance
	}
	condition.Message += " " + messageOpen + plaintext.Few(names, maxOpenNames) + "."
}

// windowWatch knows the windows that are in force, by namespace, and when the next of them opens or ends.
type windowWatch map[string]watchedPlan

// watchedPlan are the windows of a namespace. The same ones are open from a time until another one, zero: for ever.
type watchedPlan struct {
	plan        maintenance.Plan
	from, until time.Time
}

// Source implements incident.Feature. It enqueues the Incidents of an integration when a window that is for it is changed, opens
// or ends.
func (m *Muting) Source(cache.Cache) source.Source {
	return requests.Source("maintenance", func(ctx context.Context, queue requests.Queue) error {
		w := windowWatch{}
		go wait.UntilWithContext(ctx, func(ctx context.Context) {
			now, gone := m.All()
			for namespace, windows := range w.changed(now, gone, m.clock.APITime().Add(-timeStep)) {
				for _, integration := range m.integrationsOf(ctx, namespace, windows) {
					for _, name := range m.counts.OfIntegration(namespace, integration) {
						requests.AddFirst(queue, types.NamespacedName{Namespace: namespace, Name: name})
					}
				}
			}
		}, interval)
		return nil
	})
}

// integrationsOf returns the names of the integrations that one of the windows is for.
func (m *Muting) integrationsOf(ctx context.Context, namespace string, windows maintenance.Plan) (names []string) {
	var list v1alpha1.WebhookIntegrationList
	if err := m.cache.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the replica or the term ends
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
