package controllers

import (
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// fairQueue is the queue of a controller in which namespaces take turns: however much one of them has waiting, what
// another one adds comes next but one. No namespace has all workers either, so that one of them is free for whoever
// comes, even if all that a namespace has at work hangs.
type fairQueue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	turns *turns[T]
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = &fairQueue[reconcile.Request]{}

// newFairQueue returns what controller.Options.NewQueue wants. A namespace has at most so many of the controller's workers.
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

// AddWithOpts implements priorityqueue.PriorityQueue. A priority below 0 puts what is added behind the others of its
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

// Done implements workqueue.TypedInterface. The worker that calls it asks for its next item at once, so it is this one
// that takes what its namespace was kept from.
func (q *fairQueue[T]) Done(item T) {
	q.turns.done(item)
	q.TypedRateLimitingInterface.Done(item)
}

// ShutDown implements workqueue.TypedInterface: what waits is dropped.
func (q *fairQueue[T]) ShutDown() {
	q.turns.close()
	q.TypedRateLimitingInterface.ShutDown()
}

// turns is the order of a fairQueue. Of the namespaces with something waiting, the one has its turn that has the fewest
// items at work, and of those the one that has waited longest for a turn.
type turns[T comparable] struct {
	namespaceOf func(T) string
	workers     int // that one namespace may have

	mu         sync.Mutex
	namespaces map[string]*namespaceTurns[T]
	ring       []*namespaceTurns[T] // those with something waiting, next turn first
	last       map[T]struct{}       // items that are to be behind the others of their namespace
	closed     bool
}

// namespaceTurns is what one namespace has waiting and at work.
type namespaceTurns[T comparable] struct {
	name         string
	items, later fifo[T]
	atWork       int
}

func (n *namespaceTurns[T]) waiting() int { return n.items.len() + n.later.len() }

func newTurns[T comparable](namespaceOf func(T) string, workers int) *turns[T] {
	return &turns[T]{
		namespaceOf: namespaceOf, workers: max(1, workers),
		namespaces: map[string]*namespaceTurns[T]{}, last: map[T]struct{}{},
	}
}

// putLast has an item that is added next, and is not waiting yet, put behind the others.
func (t *turns[T]) putLast(item T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.namespaces[t.namespaceOf(item)]; n == nil || !n.items.has(item) {
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
	n := t.namespaces[t.namespaceOf(item)]
	if _, last := t.last[item]; n == nil || last || !n.later.remove(item) {
		return
	}
	n.items.push(item)
}

// Push implements workqueue.Queue.
func (t *turns[T]) Push(item T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := t.namespaceOf(item)
	n := t.namespaces[name]
	if n == nil {
		n = &namespaceTurns[T]{name: name, items: newFIFO[T](), later: newFIFO[T]()}
		t.namespaces[name] = n
	}
	if n.waiting() == 0 {
		t.ring = append(t.ring, n)
	}
	if _, last := t.last[item]; last {
		n.later.push(item)
		return
	}
	n.items.push(item)
}

// Len implements workqueue.Queue: 0 when none of what waits may be handed out. As each worker asks again when it is done,
// nothing is forgotten.
func (t *turns[T]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := 0
	if t.closed {
		return 0
	}
	for _, n := range t.ring {
		if n.atWork < t.workers {
			waiting += n.waiting()
		}
	}
	return waiting
}

// Pop implements workqueue.Queue.
func (t *turns[T]) Pop() (item T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := -1
	for i, n := range t.ring {
		if n.atWork < t.workers && (at < 0 || n.atWork < t.ring[at].atWork) {
			at = i
		}
	}
	if at < 0 {
		return item // Len said so
	}
	n := t.ring[at]
	t.ring = slices.Delete(t.ring, at, at+1)
	if n.items.len() > 0 {
		item = n.items.pop()
	} else {
		item = n.later.pop()
	}
	delete(t.last, item)
	n.atWork++
	if n.waiting() > 0 {
		t.ring = append(t.ring, n)
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
	name := t.namespaceOf(item)
	n := t.namespaces[name]
	if n == nil {
		return
	}
	if n.atWork--; n.atWork <= 0 && n.waiting() == 0 {
		delete(t.namespaces, name)
	}
}

// fifo is a queue from whose middle items can be removed.
type fifo[T comparable] struct {
	order   []entryOf[T]
	numbers map[T]uint64 // of the entries that count
	next    uint64
}

type entryOf[T comparable] struct {
	item   T
	number uint64
}

func newFIFO[T comparable]() fifo[T] { return fifo[T]{numbers: map[T]uint64{}} }

func (q *fifo[T]) len() int { return len(q.numbers) }

func (q *fifo[T]) has(item T) bool {
	_, ok := q.numbers[item]
	return ok
}

func (q *fifo[T]) push(item T) {
	q.next++
	q.numbers[item] = q.next
	q.order = append(q.order, entryOf[T]{item, q.next})
}

// remove takes an item out. Its entry stays until its turn comes.
func (q *fifo[T]) remove(item T) bool {
	had := q.has(item)
	delete(q.numbers, item)
	if len(q.numbers) == 0 {
		q.order = nil
	}
	return had
}

// pop takes out the first item; there must be one.
func (q *fifo[T]) pop() T {
	for {
		first := q.order[0]
		q.order[0] = entryOf[T]{}
		q.order = q.order[1:]
		if q.numbers[first.item] == first.number {
			delete(q.numbers, first.item)
			return first.item
		}
	}
}
