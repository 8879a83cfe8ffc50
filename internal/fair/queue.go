// Package fair divides what many use: a queue in which they take turns, and limits of which each has a share. Whoever uses it is
// told from the others by a key, such as a namespace. However much one key asks for, the others get theirs.
package fair

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is the queue of a controller in which keys take turns: however much one of them has waiting, an item of another one
// comes next but one. No key has all workers either, so that one of them is free for the others, even if all items of a key
// hang.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	order *order[T]
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = &Queue[reconcile.Request]{}

// NewQueue returns a function for controller.Options.NewQueue. A key has at most so many of the controller's workers.
func NewQueue[T comparable](
	keyOf func(T) string, workers int,
) func(string, workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
	return func(name string, limiter workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
		order := &order[T]{
			keyOf: keyOf, turns: Turns[T]{PerKey: max(1, workers)}, urgent: map[T]bool{}, atWork: map[T]bool{},
		}
		queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: name, Queue: order})
		delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Name: name, Queue: queue})
		return &Queue[T]{
			TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
				workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: delaying}),
			order: order,
		}
	}
}

// AddWithOpts implements priorityqueue.PriorityQueue. An item with a priority below 0 is not urgent, unless it is added
// without one as well.
func (q *Queue[T]) AddWithOpts(opts priorityqueue.AddOpts, items ...T) {
	for _, item := range items {
		if opts.Priority == nil || *opts.Priority >= urgentPriority {
			q.order.setUrgent(item)
		}
		switch {
		case opts.RateLimited:
			q.AddRateLimited(item)
		case opts.After > 0:
			q.AddAfter(item, opts.After)
		default:
			q.TypedRateLimitingInterface.Add(item)
		}
	}
}

// Add implements workqueue.TypedInterface: the item is urgent.
func (q *Queue[T]) Add(item T) { q.AddWithOpts(priorityqueue.AddOpts{}, item) }

// GetWithPriority implements priorityqueue.PriorityQueue. The controller adds the item again with this priority unless the
// reconciler returns another one.
func (q *Queue[T]) GetWithPriority() (item T, priority int, shutdown bool) {
	item, shutdown = q.Get()
	return item, q.order.priority(item), shutdown
}

// Done implements workqueue.TypedInterface. The worker that calls it asks for its next item at once, so an item that waits
// for its key to have fewer at work is not forgotten.
func (q *Queue[T]) Done(item T) {
	q.order.done(item)
	q.TypedRateLimitingInterface.Done(item)
}

// ShutDown implements workqueue.TypedInterface: waiting items are dropped.
func (q *Queue[T]) ShutDown() {
	q.order.close()
	q.TypedRateLimitingInterface.ShutDown()
}

// urgentPriority is the priority of an item that is urgent, and handler.LowPriority that of others.
const urgentPriority = 0

// order is the order of a Queue.
type order[T comparable] struct {
	keyOf func(T) string

	mu     sync.Mutex
	turns  Turns[T]
	urgent map[T]bool // items that wait or are to be added
	atWork map[T]bool // items at work that were urgent
}

// setUrgent makes an item urgent that waits or is added next.
func (o *order[T]) setUrgent(item T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.urgent[item] = true
}

// priority returns the priority that an item at work had.
func (o *order[T]) priority(item T) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.atWork[item] {
		return urgentPriority
	}
	return handler.LowPriority
}

// Touch implements workqueue.Queue: a waiting item is added once more.
func (o *order[T]) Touch(item T) { o.Push(item) }

// Push implements workqueue.Queue.
func (o *order[T]) Push(item T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turns.Add(o.keyOf(item), item, o.urgent[item])
}

// Len implements workqueue.Queue: 0 when none of the items that wait may be handed out. As each worker asks again when it
// is done, nothing is forgotten.
func (o *order[T]) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.turns.Available()
}

// Pop implements workqueue.Queue.
func (o *order[T]) Pop() (item T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	item, _ = o.turns.Next() // Len said that there is one
	if o.urgent[item] {
		delete(o.urgent, item)
		o.atWork[item] = true
	}
	return item
}

// close has nothing more handed out.
func (o *order[T]) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turns.PerKey = 0
}

// done notes that a worker is through with an item.
func (o *order[T]) done(item T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.atWork, item)
	o.turns.Done(o.keyOf(item))
}
