package controllers

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/marks"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// requestQueue is the queue of a controller.
type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// urgent is the priority of a request that is not to wait behind those that change nothing.
const urgent = 0

// onChange returns a handler that calls changed when an object is created, updated or deleted. before is nil when the
// object is created, after when it is deleted. initial says that the object was there when the watch began.
func onChange[T client.Object](
	changed func(ctx context.Context, before, after T, initial bool, queue requestQueue),
) handler.EventHandler {
	call := func(ctx context.Context, before, after client.Object, initial bool, queue requestQueue) {
		old, hadType := before.(T)
		now, hasType := after.(T)
		if hadType || hasType {
			changed(ctx, old, now, initial, queue)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue requestQueue) {
			call(ctx, nil, e.Object, e.IsInInitialList, queue)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue requestQueue) {
			call(ctx, e.ObjectOld, e.ObjectNew, false, queue)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue requestQueue) {
			call(ctx, e.Object, nil, false, queue)
		},
	}
}

// isSame reports whether an update changed neither the UID nor the generation of an object.
func isSame(before, after client.Object) bool {
	return before.GetUID() == after.GetUID() && before.GetGeneration() == after.GetGeneration()
}

// foldEvents enqueues the Incidents of an AlertEvent when it comes, and those that are open when it goes: then there is space in
// a ledger. So it is when the AlertEvent is marked. Other changes of its metadata mean nothing.
//
// Alerts that repeat what an open Incident says are not urgent. All AlertEvents that are there at the start are: their
// senders have been told long ago that they are accepted.
func (r *incidentReconciler) foldEvents() handler.EventHandler {
	return onChange(func(ctx context.Context, before, after *v1alpha1.AlertEvent, initial bool, queue requestQueue) {
		if before != nil && after != nil && before.UID == after.UID {
			r.foldMarked(before, after, queue)
			return
		}
		// The watch may show a deletion and a creation of the same name as one update.
		if before != nil {
			r.releases.forget(refOf(before))
			for name := range incidentNames(before) {
				key := types.NamespacedName{Namespace: before.Namespace, Name: name}
				if r.isOpen(ctx, key) {
					add(queue, key, handler.LowPriority)
				}
			}
		}
		if after == nil {
			return
		}
		if err := r.memory.Cached.Unreadable(after); err != nil {
			r.reportUnreadable(ctx, after, err)
		}
		r.releases.see(after)
		for name, firing := range incidentNames(after) {
			key := types.NamespacedName{Namespace: after.Namespace, Name: name}
			priority := urgent
			if firing && !initial && r.isOpen(ctx, key) {
				priority = handler.LowPriority
			}
			add(queue, key, priority)
		}
	})
}

// foldMarked enqueues the Incidents for which a new mark says that an AlertEvent is settled.
func (r *incidentReconciler) foldMarked(before, after *v1alpha1.AlertEvent, queue requestQueue) {
	if before.Annotations[v1alpha1.SettledAnnotation] == after.Annotations[v1alpha1.SettledAnnotation] {
		return
	}
	r.releases.see(after)
	if mark, ok := marks.Of(after); ok {
		for name := range incidentNames(after) {
			if mark.Settles(name) {
				add(queue, types.NamespacedName{Namespace: after.Namespace, Name: name}, handler.LowPriority)
			}
		}
	}
}

// reportUnreadable reports an AlertEvent whose packed alerts cannot be decoded. It stays, for its author to mend.
func (r *incidentReconciler) reportUnreadable(ctx context.Context, event *v1alpha1.AlertEvent, cause error) {
	log.FromContext(ctx).Error(cause, "AlertEvent cannot be decoded", "namespace", event.Namespace, "alertevent", event.Name)
	r.recorder.Eventf(event, nil, corev1.EventTypeWarning, "Unreadable", "Fold",
		"Cannot be decoded; left unprocessed: %s", plaintext.ShortMessage(cause.Error()))
}

// isOpen reports whether the cache shows an Incident open.
func (r *incidentReconciler) isOpen(ctx context.Context, key types.NamespacedName) bool {
	var incident v1alpha1.Incident
	err := r.cache.Get(ctx, key, &incident, client.UnsafeDisableDeepCopy)
	return err == nil && incident.Status.State == v1alpha1.IncidentOpen
}

// watchIncidents enqueues an Incident when it changes, and when the cache shows it no longer, unless gone says that there is
// nothing to do.
func watchIncidents(
	objects cache.Informers, gone func(ctx context.Context, shown *v1alpha1.Incident) bool,
) source.Func {
	return func(ctx context.Context, queue requestQueue) error {
		_, err := informers.Feed(ctx, objects, &v1alpha1.Incident{},
			func(incident *v1alpha1.Incident, _ bool) {
				add(queue, client.ObjectKeyFromObject(incident), handler.LowPriority)
			},
			func(shown *v1alpha1.Incident) {
				if gone(ctx, shown) {
					add(queue, client.ObjectKeyFromObject(shown), handler.LowPriority)
				}
			})
		return err
	}
}

// foldPolicies enqueues the Incidents of a WebhookIntegration when it comes, goes or changes: their deadlines may be other
// ones.
func (r *incidentReconciler) foldPolicies() handler.EventHandler {
	return onChange(func(_ context.Context, before, after *v1alpha1.WebhookIntegration, initial bool, queue requestQueue) {
		if initial || before != nil && after != nil && isSame(before, after) {
			return // at the start, the Incidents come by themselves
		}
		integration := client.ObjectKeyFromObject(cmp.Or(after, before))
		for _, name := range r.counts.ofIntegration(integration.Namespace, integration.Name) {
			add(queue, types.NamespacedName{Namespace: integration.Namespace, Name: name}, handler.LowPriority)
		}
		r.resolved.look(integration)
	})
}

// add adds a request to a fair.Queue. Without a priority, controller-runtime gives a low one to objects that are there at
// the start.
func add(queue requestQueue, key types.NamespacedName, priority int) {
	request := reconcile.Request{NamespacedName: key}
	if ordered, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		ordered.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
		return
	}
	queue.Add(request)
}

// watchReceived notes when alerts of an integration were received, and enqueues the integration when that is to be
// written.
func watchReceived(received *receivedTimes, clock Clock) handler.EventHandler {
	return onChange(func(_ context.Context, before, after *v1alpha1.AlertEvent, _ bool, queue requestQueue) {
		if before != nil || after.Spec.IntegrationName == "" {
			return
		}
		key := types.NamespacedName{Namespace: after.Namespace, Name: after.Spec.IntegrationName}
		if received.note(key, receivedBy(after, clock.Now())) {
			queue.Add(reconcile.Request{NamespacedName: key})
		}
	})
}

// watchSilences enqueues the Incidents whose silence in Alertmanager changes.
func (r *incidentReconciler) watchSilences(ctx context.Context, queue requestQueue) error {
	if r.silences != nil {
		go r.silences.WatchSilences(ctx, func(incident types.NamespacedName) {
			queue.Add(reconcile.Request{NamespacedName: incident})
		})
	}
	return nil
}

// every calls check at each interval, and when there is a signal, until ctx ends.
func every(ctx context.Context, interval time.Duration, signal <-chan struct{}, check func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-signal:
		case <-ticker.C:
		}
		check()
	}
}
