package controllers

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
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

// AddWithOpts implements priorityqueue.PriorityQueue. A priority below 0 puts an item behind the others of its
// namespace, until it is added again without one.
func (q *fairQueue[T]) AddWithOpts(opts priorityqueue.AddOpts, items ...T) {
	for _, item := range items {
		switch {
		case opts.RateLimited:
			q.AddRateLimited(item)
		case opts.After > 0:
			q.AddAfter(item, opts.After)
		case opts.Priority != nil && *opts.Priority < 0:
			q.turns.putLast(item)
			q.TypedRateLimitingInterface.Add(item)
		default:
			q.Add(item)
		}
	}
}

// Add implements workqueue.TypedInterface.
func (q *fairQueue[T]) Add(item T) {
	q.turns.putFirst(item)
	q.TypedRateLimitingInterface.Add(item)
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *fairQueue[T]) GetWithPriority() (item T, priority int, shutdown bool) {
	item, shutdown = q.Get()
	return item, 0, shutdown
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
	last   map[T]struct{} // items that are to be behind the others of their namespace
	closed bool
}

func newTurns[T comparable](namespaceOf func(T) string, workers int) *turns[T] {
	return &turns[T]{namespaceOf: namespaceOf, items: rotation[T]{workers: max(1, workers)}, last: map[T]struct{}{}}
}

// putLast has an item that is added next, and is not waiting yet, put behind the others.
func (t *turns[T]) putLast(item T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.items.namespaces[t.namespaceOf(item)]; n == nil || !n.ordinary.has(item) {
		t.last[item] = struct{}{}
	}
}

// putFirst takes putLast back.
func (t *turns[T]) putFirst(item T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, item)
}

// Touch implements workqueue.Queue: an item that waits behind the others is wanted sooner.
func (t *turns[T]) Touch(item T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, last := t.last[item]; !last {
		t.items.promote(t.namespaceOf(item), item)
	}
}

// Push implements workqueue.Queue.
func (t *turns[T]) Push(item T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, last := t.last[item]
	t.items.add(t.namespaceOf(item), item, last)
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
	delete(t.last, item)
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
	t.items.done(t.namespaceOf(item))
}
