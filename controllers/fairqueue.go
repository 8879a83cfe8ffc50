package controllers

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// fairQueue is the queue of a controller in which namespaces take turns: however much one of them has waiting, an item of
// another one comes next but one. No namespace has all workers either, so that one of them is free for the others, even
// if all items of a namespace hang.
type fairQueue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	turns *turns[T]
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = &fairQueue[reconcile.Request]{}

// newFairQueue returns a function for controller.Options.NewQueue. A namespace has at most so many of the controller's workers.
func newFairQueue[T comparable](
	namespaceOf func(T) string, workers int,
) func(string, workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
	return func(name string, limiter workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
		turns := newTurns(namespaceOf, workers)
		queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: name, Queue: turns})
		delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Name: name, Queue: queue})
		return &fairQueue[T]{
			TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
				workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: delaying}),
			turns: turns,
		}
	}
}

// AddWithOpts implements priorityqueue.PriorityQueue. An item with a priority below 0 is not urgent, unless it is added
// without one as well.
func (q *fairQueue[T]) AddWithOpts(opts priorityqueue.AddOpts, items ...T) {
	for _, item := range items {
		if opts.Priority == nil || *opts.Priority >= urgent {
			q.turns.setUrgent(item)
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
func (q *fairQueue[T]) Add(item T) { q.AddWithOpts(priorityqueue.AddOpts{}, item) }

// GetWithPriority implements priorityqueue.PriorityQueue. The controller adds the item again with this priority unless the
// reconciler returns another one.
func (q *fairQueue[T]) GetWithPriority() (item T, priority int, shutdown bool) {
	item, shutdown = q.Get()
	return item, q.turns.priority(item), shutdown
}

// Done implements workqueue.TypedInterface. The worker that calls it asks for its next item at once, so an
// item that waits for its namespace to have fewer at work is not forgotten.
func (q *fairQueue[T]) Done(item T) {
	q.turns.done(item)
	q.TypedRateLimitingInterface.Done(item)
}

// ShutDown implements workqueue.TypedInterface: waiting items are dropped.
func (q *fairQueue[T]) ShutDown() {
	q.turns.close()
	q.TypedRateLimitingInterface.ShutDown()
}

// turns is the order of a fairQueue.
type turns[T comparable] struct {
	namespaceOf func(T) string

	mu     sync.Mutex
	items  rotation[T]
	urgent map[T]bool // items that wait or are to be added
	atWork map[T]bool // items at work that were urgent
	closed bool
}

func newTurns[T comparable](namespaceOf func(T) string, workers int) *turns[T] {
	return &turns[T]{
		namespaceOf: namespaceOf, items: rotation[T]{workers: max(1, workers)}, urgent: map[T]bool{}, atWork: map[T]bool{},
	}
}

// setUrgent makes an item urgent that waits or is added next.
func (t *turns[T]) setUrgent(item T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.urgent[item] = true
}

// priority returns the priority that an item at work had.
func (t *turns[T]) priority(item T) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.atWork[item] {
		return urgent
	}
	return handler.LowPriority
}

// Touch implements workqueue.Queue: a waiting item is added once more.
func (t *turns[T]) Touch(item T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.urgent[item] {
		t.items.promote(t.namespaceOf(item), item)
	}
}

// Push implements workqueue.Queue.
func (t *turns[T]) Push(item T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.items.add(t.namespaceOf(item), item, t.urgent[item])
}

// Len implements workqueue.Queue: 0 when none of the items that wait may be handed out. As each worker asks again when it
// is done, nothing is forgotten.
func (t *turns[T]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0
	}
	return t.items.available()
}

// Pop implements workqueue.Queue.
func (t *turns[T]) Pop() (item T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	item, _ = t.items.next() // Len said that there is one
	if t.urgent[item] {
		delete(t.urgent, item)
		t.atWork[item] = true
	}
	return item
}

// close has nothing more handed out.
func (t *turns[T]) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// done notes that a worker is through with an item.
func (t *turns[T]) done(item T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.atWork, item)
	t.items.done(t.namespaceOf(item))
}
