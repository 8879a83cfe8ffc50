// Package requests is what the controllers have in common: how changes become requests, and how failed ones are retried.
package requests

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tocsin-dev/tocsin/internal/fair"
)

const (
	// timeout bounds one reconciliation.
	timeout = 30 * time.Second

	// minBackoff and maxBackoff bound the time until something that failed is tried again.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 30 * time.Second

	// leaderPause is how long a change waits that another leader may have made. Otherwise two leaders at once, who see different
	// things, would write over each other as fast as they can.
	leaderPause = time.Second
)

// Queue is the queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Source returns a source of requests that the log of the controller calls by its name.
func Source[request comparable](name string, start source.TypedFunc[request]) source.TypedSource[request] {
	return namedSource[request]{start, name}
}

type namedSource[request comparable] struct {
	source.TypedFunc[request]

	name string
}

// String implements fmt.Stringer. That of source.TypedFunc returns an address.
func (s namedSource[request]) String() string { return s.name }

// Options returns the options of a controller with this name that does so many reconciliations at a time, more only if some take
// long: namespaces take turns at so many places, see fair.Queue. Its logs name the object of a request, of this kind.
func Options[request comparable](
	mgr ctrl.Manager, name, kind string, places int, nameOf func(request) types.NamespacedName,
) controller.TypedOptions[request] {
	return controller.TypedOptions[request]{
		MaxConcurrentReconciles: fair.MaxAtWork(places),
		NewQueue:                NewQueue(places, nameOf),
		RateLimiter:             Backoff[request](),
		ReconciliationTimeout:   timeout,
		LogConstructor: func(of *request) logr.Logger {
			log := mgr.GetLogger().WithName(name)
			if of != nil {
				name := nameOf(*of)
				log = log.WithValues("namespace", name.Namespace, kind, name.Name)
			}
			return log
		},
	}
}

// Complete adds a controller to the manager, which the error calls what.
func Complete(what string, controller *builder.Builder, r reconcile.Reconciler) error {
	if err := controller.Complete(r); err != nil {
		return fmt.Errorf("adding %s: %w", what, err)
	}
	return nil
}

// NameOf returns the name of a request's object.
func NameOf(request reconcile.Request) types.NamespacedName { return request.NamespacedName }

// NewQueue makes the queue of a controller at which namespaces take turns at so many places.
func NewQueue[request comparable](
	places int, nameOf func(request) types.NamespacedName,
) func(string, workqueue.TypedRateLimiter[request]) workqueue.TypedRateLimitingInterface[request] {
	return fair.NewQueue(func(r request) string { return nameOf(r).Namespace }, places)
}

// Backoff retries failed requests with increasing delays, each for itself: one that failed repeatedly delays no other.
func Backoff[request comparable]() workqueue.TypedRateLimiter[request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[request](minBackoff, maxBackoff)
}

// Object is a pointer to an object, nil if there is none.
type Object interface {
	client.Object
	comparable
}

// OfObject returns a handler that enqueues an object when it changes: later if its spec is the same, since another leader may
// have changed it.
func OfObject[T Object]() handler.EventHandler {
	return OnChange(func(_ context.Context, before, after T, initial bool, queue Queue) {
		var none T
		key := client.ObjectKeyFromObject(cmp.Or(after, before))
		switch {
		case initial:
			Add(queue, key)
		case before != none && after != none && before.GetGeneration() == after.GetGeneration():
			AddLater(queue, key)
		default:
			AddFirst(queue, key)
		}
	})
}

// Add adds a request to a fair queue, behind those that are urgent. Without a priority, controller-runtime gives a low one to
// objects that are there at the start.
func Add(queue Queue, key types.NamespacedName) { add(queue, key, handler.LowPriority, 0) }

// AddLater adds a request for what another leader may have written, after a pause.
func AddLater(queue Queue, key types.NamespacedName) {
	add(queue, key, handler.LowPriority, leaderPause)
}

// AddFirst adds a request to a fair queue, before those that are not urgent.
func AddFirst(queue Queue, key types.NamespacedName) { add(queue, key, 0, 0) }

func add(queue Queue, key types.NamespacedName, priority int, after time.Duration) {
	request := reconcile.Request{NamespacedName: key}
	ordered, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request])
	if !ok {
		queue.AddAfter(request, after)
		return
	}
	ordered.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: after}, request)
}

// OnChange returns a handler that calls changed when an object is created, updated or deleted. before is nil when the object is
// created, after when it is deleted. initial says that the object was there when the watch began. An update that shows another
// object of the name is a deletion and a creation; one that shows the same version, as when an informer lists anew, is none.
func OnChange[T client.Object](
	changed func(ctx context.Context, before, after T, initial bool, queue Queue),
) handler.EventHandler {
	call := func(ctx context.Context, before, after client.Object, initial bool, queue Queue) {
		old, hadType := before.(T)
		now, hasType := after.(T)
		if hadType || hasType {
			changed(ctx, old, now, initial, queue)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue Queue) {
			call(ctx, nil, e.Object, e.IsInInitialList, queue)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue Queue) {
			switch before, after := e.ObjectOld, e.ObjectNew; {
			case before.GetUID() != after.GetUID():
				call(ctx, before, nil, false, queue)
				call(ctx, nil, after, false, queue)
			case before.GetResourceVersion() != after.GetResourceVersion():
				call(ctx, before, after, false, queue)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue Queue) {
			call(ctx, e.Object, nil, false, queue)
		},
	}
}

// PatchStatus writes the status of an object that was read, if it is another one now. It sends only the differences: others may
// write other fields meanwhile. An object that is gone is no error.
func PatchStatus(ctx context.Context, live client.StatusClient, read, updated client.Object) error {
	if changed, err := Changed(read, updated); err != nil || !changed {
		return err
	}
	if err := live.Status().Patch(ctx, updated, client.MergeFrom(read)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// Changed reports whether an object differs from what was read, as JSON has it.
func Changed(read, updated client.Object) (bool, error) {
	data, err := client.MergeFrom(read).Data(updated)
	if err != nil {
		return false, fmt.Errorf("comparing the status: %w", err)
	}
	return string(data) != "{}", nil
}
