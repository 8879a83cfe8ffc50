package incident

import (
	"cmp"
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// onEvent enqueues the Incidents of an AlertEvent
//   - when it comes: all of them,
//   - when it gets a mark: those that the mark names, whose ledgers may drop it now,
//   - when it is gone: those that are Open, whose ledgers may drop it too.
//
// Alerts that fire for an open Incident, and do not make it more severe, come after the others. All AlertEvents that are there at
// the start come first: they have waited longest.
func (r *reconciler) onEvent() handler.EventHandler {
	return requests.OnChange(func(ctx context.Context, before, after *v1alpha1.AlertEvent, initial bool, folds requests.Queue) {
		if after != nil {
			r.releases.NoteMark(ctx, after)
		}
		switch {
		case after == nil:
			r.releases.Forget(queue.RefOf(before))
			for name := range replica.IncidentNames(before) {
				key := types.NamespacedName{Namespace: before.Namespace, Name: name}
				if r.cachedOpen(ctx, key) != nil {
					requests.Add(folds, key)
				}
			}
		case before != nil && !queue.IsStub(before):
			r.enqueueMarked(before, after, folds)
		default:
			if err := r.Memory.Cached.Unreadable(after); err != nil {
				r.reportUnreadable(ctx, after, err)
			}
			for name, firing := range replica.IncidentNames(after) {
				key := types.NamespacedName{Namespace: after.Namespace, Name: name}
				if firing && !initial && r.repeats(ctx, after, key) {
					requests.Add(folds, key)
				} else {
					requests.AddFirst(folds, key)
				}
			}
		}
	})
}

// enqueueMarked enqueues the Incidents for which a new mark says that an AlertEvent is settled.
func (r *reconciler) enqueueMarked(before, after *v1alpha1.AlertEvent, folds requests.Queue) {
	if before.Annotations[v1alpha1.SettledAnnotation] == after.Annotations[v1alpha1.SettledAnnotation] {
		return
	}
	if mark, ok := queue.MarkOf(after); ok {
		for name := range replica.IncidentNames(after) {
			if mark.Settles(name) {
				requests.Add(folds, types.NamespacedName{Namespace: after.Namespace, Name: name})
			}
		}
	}
}

// reportUnreadable reports an AlertEvent whose alerts cannot be decoded. It stays, for its author to mend.
func (r *reconciler) reportUnreadable(ctx context.Context, event *v1alpha1.AlertEvent, cause error) {
	log.FromContext(ctx).V(1).Info("AlertEvent cannot be decoded", "namespace", event.Namespace, "alertevent", event.Name,
		"cause", cause.Error())
	r.recorder.Eventf(event, nil, corev1.EventTypeWarning, "Unreadable", "Fold",
		"Cannot be decoded; left unprocessed: %s", plaintext.ShortMessage(cause.Error()))
}

// cachedOpen returns an Incident as the cache has it, which must not be modified; nil if it is not Open.
func (r *reconciler) cachedOpen(ctx context.Context, key types.NamespacedName) *v1alpha1.Incident {
	incident := &v1alpha1.Incident{}
	err := r.cache.Get(ctx, key, incident, client.UnsafeDisableDeepCopy)
	if err != nil || incident.Status.State != v1alpha1.IncidentOpen {
		return nil
	}
	return incident
}

// repeats reports whether an Incident is Open, and no alert of an AlertEvent makes it more severe.
func (r *reconciler) repeats(ctx context.Context, event *v1alpha1.AlertEvent, key types.NamespacedName) bool {
	incident := r.cachedOpen(ctx, key)
	return incident != nil && !raises(event, incident)
}

// raises reports whether an alert of an AlertEvent says that the Incident is more severe than it is.
func raises(event *v1alpha1.AlertEvent, incident *v1alpha1.Incident) bool {
	for i := range event.Alerts {
		alert := &event.Alerts[i]
		if alert.Severity != "" && fold.IsMoreSevere(alert.Severity, incident.Status.Alert.Severity) &&
			event.IncidentNameFor(alert) == incident.Name {
			return true
		}
	}
	return false
}

// onIncident enqueues an Incident when it changes, and when the cache shows it no longer, unless there is nothing to do.
func (r *reconciler) onIncident() handler.EventHandler {
	return requests.OnChange(func(ctx context.Context, before, after *v1alpha1.Incident, _ bool, folds requests.Queue) {
		if after != nil || r.noteGone(ctx, before) {
			requests.Add(folds, client.ObjectKeyFromObject(cmp.Or(after, before)))
		}
	})
}

// onIntegration enqueues the Incidents of a WebhookIntegration when it comes, goes or changes: their deadlines may be other ones.
func (r *reconciler) onIntegration() handler.EventHandler {
	return requests.OnChange(func(
		_ context.Context, before, after *v1alpha1.WebhookIntegration, initial bool, folds requests.Queue,
	) {
		if initial || before != nil && after != nil && before.Generation == after.Generation &&
			integrations.IsWhole(before) == integrations.IsWhole(after) &&
			maps.Equal(before.Labels, after.Labels) { // by which others select it
			return // at the start, the Incidents come by themselves
		}
		integration := client.ObjectKeyFromObject(cmp.Or(after, before))
		if after == nil {
			r.retentions.Add(integration, fold.RetentionOf(before), retentionMemory)
		}
		for _, name := range r.counts.OfIntegration(integration.Namespace, integration.Name) {
			requests.Add(folds, types.NamespacedName{Namespace: integration.Namespace, Name: name})
		}
		if before == nil || after == nil || fold.RetentionOf(before) != fold.RetentionOf(after) {
			r.sweeper.Revisit(integration.Namespace) // which reads all of them
		}
	})
}

// watchBlocked has Incidents enqueued that can be created again.
func (r *reconciler) watchBlocked(_ context.Context, folds requests.Queue) error {
	r.wake = func(incident types.NamespacedName) { requests.AddFirst(folds, incident) }
	return nil
}

// watchForwarding enqueues the Incidents that the Forwarder wants folded.
func (r *reconciler) watchForwarding(ctx context.Context, folds requests.Queue) error {
	if r.Forwarder != nil {
		go r.Forwarder.RequestFolds(ctx, func(incident types.NamespacedName) {
			folds.Add(reconcile.Request{NamespacedName: incident})
		})
	}
	return nil
}
