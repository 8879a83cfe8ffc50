// Package fair divides what many use: a queue in which they take turns, and limits of which each has a share. Whoever uses it is
// told from the others by a key, such as a namespace. However much one key asks for, the others get theirs.
package fair

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// slowItem is how long an item may be at work before it gives its place up.
const slowItem = time.Second

// Queue is the queue of a controller in which keys take turns: however many items one of them has waiting, the first item of
// another one is at most second in line. It hands out items for a number of places. An item that takes longer than slowItem gives
// its place up, so the controller needs MaxAtWork workers; then items of any keys may hang, and the others go on.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	order *order[T]
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = &Queue[reconcile.Request]{}

// NewQueue returns a function for controller.Options.NewQueue. The zero value of T stands for no item.
func NewQueue[T comparable](
	keyOf func(T) string, places int,
) func(string, workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
	return func(name string, limiter workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
		order := &order[T]{keyOf: keyOf, turns: NewTurns[T](places), urgent: map[T]bool{}, atWork: map[T]*work[T]{}}
		queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: name, Queue: order})
		delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Name: name, Queue: queue})
		q := &Queue[T]{
			TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
				workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: delaying}),
			order: order,
		}
		order.wake = func() { q.TypedRateLimitingInterface.Add(order.none) }
		return q
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

// Get implements workqueue.TypedInterface. A worker that was only woken asks again.
func (q *Queue[T]) Get() (item T, shutdown bool) {
	for {
		item, shutdown = q.TypedRateLimitingInterface.Get()
		if shutdown || item != q.order.none {
			return item, shutdown
		}
		q.TypedRateLimitingInterface.Done(item)
	}
}

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

type order[T comparable] struct {
	keyOf func(T) string
	wake  func() // has a worker ask for an item that waits
	none  T      // what wakes a worker

	mu     sync.Mutex
	turns  Turns[T]
	urgent map[T]bool     // items that wait or are to be added
	atWork map[T]*work[T] // items at work
	woken  bool           // none is to be handed out
}

type work[T comparable] struct {
	turn   *Turn[T]
	slow   *time.Timer // fires when it takes long
	urgent bool
}

func (o *order[T]) setUrgent(item T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.urgent[item] = true
}

func (o *order[T]) priority(item T) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.atWork[item]; w != nil && w.urgent {
		return urgentPriority
	}
	return handler.LowPriority
}

// Touch implements workqueue.Queue: a waiting item is added once more.
func (o *order[T]) Touch(item T) { o.Push(item) }

func (o *order[T]) Push(item T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if item == o.none {
		o.woken = true
		return
	}
	o.turns.Add(o.keyOf(item), item, o.urgent[item])
}

// Len implements workqueue.Queue: 0 when none of the items that wait may be handed out. As each worker asks again when it
// is done, and one is woken for a place that is given up, nothing is forgotten.
func (o *order[T]) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.woken {
		return 1
	}
	return o.turns.Available()
}

func (o *order[T]) Pop() T {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.woken {
		o.woken = false
		return o.none
	}
	item, turn, ok := o.turns.Next() // Len said that there is one
	if !ok {
		return o.none
	}
	o.atWork[item] = &work[T]{turn: turn, slow: time.AfterFunc(slowItem, func() { o.yield(turn) }), urgent: o.urgent[item]}
	delete(o.urgent, item)
	return item
}

func (o *order[T]) yield(turn *Turn[T]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if turn.Yield(); o.turns.Available() > 0 {
		go o.wake() // which takes the queue's lock, and then this one
	}
}

func (o *order[T]) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turns.Places = 0
}

func (o *order[T]) done(item T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.atWork[item]; w != nil {
		delete(o.atWork, item)
		w.slow.Stop()
		w.turn.Done()
	}
}
