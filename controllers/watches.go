package controllers

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// requestQueue is the queue of a controller.
type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// foldEvents brings the Incidents of an AlertEvent to the fold when it comes, and when it goes: then there
// is room in a ledger, and an expired Incident may be free to go. What else happens to an AlertEvent, such
// as a new annotation, means nothing.
//
// Unlike other objects that are there at the start, AlertEvents do not wait behind newer ones: somebody
// has been told that their alerts are accepted.
func foldEvents(
	releases *releaser, bisection *bisection, unreadable func(context.Context, *v1alpha1.AlertEvent, error),
) handler.EventHandler {
	enqueue := func(object client.Object, queue requestQueue) {
		event, ok := object.(*v1alpha1.AlertEvent)
		if !ok {
			return
		}
		for name := range incidentNames(event) {
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: event.Namespace, Name: name}})
		}
	}
	gone := func(object client.Object, queue requestQueue) {
		if event, ok := object.(*v1alpha1.AlertEvent); ok {
			releases.forget(refOf(event))
			bisection.forget(event)
		}
		enqueue(object, queue)
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue requestQueue) {
			if created, ok := e.Object.(*v1alpha1.AlertEvent); ok {
				if err := created.Spec.CheckPacked(); err != nil {
					unreadable(ctx, created, err)
				}
			}
			enqueue(e.Object, queue)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue requestQueue) { gone(e.Object, queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue requestQueue) {
			// The watch may show a deletion and a creation of the same name as one update.
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				gone(e.ObjectOld, queue)
				enqueue(e.ObjectNew, queue)
			}
		},
	}
}

// forgetIncidents forgets what was written of an Incident that is deleted: no cache will show it.
func forgetIncidents(writes *writeMemory) handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ requestQueue) {
			writes.forget(client.ObjectKeyFromObject(e.Object))
		},
	}
}

// foldPolicies brings the Incidents of a WebhookIntegration to the fold when it comes, goes or changes:
// their deadlines may be other ones. They come after those that have alerts.
func foldPolicies(reader client.Reader) handler.EventHandler {
	enqueue := func(ctx context.Context, object client.Object, queue requestQueue) {
		var incidents v1alpha1.IncidentList
		err := reader.List(ctx, &incidents, client.InNamespace(object.GetNamespace()),
			client.MatchingFields{integrationNameIndex: object.GetName()}, client.UnsafeDisableDeepCopy)
		if err != nil {
			log.FromContext(ctx).Error(err, "reading the Incidents of an integration",
				"namespace", object.GetNamespace(), "integration", object.GetName())
			return
		}
		for i := range incidents.Items {
			addLast(queue, client.ObjectKeyFromObject(&incidents.Items[i]))
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue requestQueue) {
			if !e.IsInInitialList { // the Incidents are in theirs
				enqueue(ctx, e.Object, queue)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue requestQueue) { enqueue(ctx, e.Object, queue) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue requestQueue) {
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				enqueue(ctx, e.ObjectNew, queue)
			}
		},
	}
}

// addLast adds a request behind all others.
func addLast(queue requestQueue, key types.NamespacedName) {
	request := reconcile.Request{NamespacedName: key}
	if ordered, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		priority := handler.LowPriority
		ordered.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
		return
	}
	queue.Add(request)
}

// watchIntegrations brings an integration up when it changes, and with it those that list one of the
// tokens it lists or listed: they may gain or lose them.
func watchIntegrations(reader client.Reader) handler.EventHandler {
	enqueue := func(ctx context.Context, object client.Object, queue requestQueue) {
		integration, ok := object.(*v1alpha1.WebhookIntegration)
		if !ok {
			return
		}
		queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(integration)})
		sharers, err := listSharers(ctx, reader, integration)
		if err != nil {
			log.FromContext(ctx).Error(err, "looking for integrations with the same tokens",
				"namespace", integration.Namespace, "integration", integration.Name)
			return
		}
		for i := range sharers {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&sharers[i])})
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue requestQueue) { enqueue(ctx, e.Object, queue) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue requestQueue) { enqueue(ctx, e.Object, queue) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue requestQueue) {
			if e.ObjectOld.GetGeneration() == e.ObjectNew.GetGeneration() && e.ObjectOld.GetUID() == e.ObjectNew.GetUID() {
				queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)})
				return
			}
			enqueue(ctx, e.ObjectOld, queue)
			enqueue(ctx, e.ObjectNew, queue)
		},
	}
}

// watchReceived notes when alerts of an integration were received, and brings the integration up when that
// is to be written.
func watchReceived(received *receivedTimes, clock Clock) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue requestQueue) {
			event, ok := e.Object.(*v1alpha1.AlertEvent)
			if !ok || event.Spec.IntegrationName == "" {
				return
			}
			key := types.NamespacedName{Namespace: event.Namespace, Name: event.Spec.IntegrationName}
			if received.note(key, receivedBy(event, clock.Now())) {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
		},
	}
}
