package controllers

import "slices"

// rotation has namespaces take turns. Of those with items waiting, the next one has the fewest items at work
// and, among equals, the one that has waited longest for its turn. Of one namespace's items, the urgent ones go first, but
// for one turn in ordinaryShare: no stream of urgent items keeps the others out. It is not safe for concurrent use.
type rotation[T comparable] struct {
	workers int // how many items of one namespace may be at work

	namespaces map[string]*namespaceItems[T]
	ring       []*namespaceItems[T] // those with items waiting, next turn first
}

// namespaceItems are the items of one namespace.
type namespaceItems[T comparable] struct {
	urgent, ordinary fifo[T] // that wait
	atWork           int
	turns            int
}

func (n *namespaceItems[T]) waiting() int { return n.urgent.len() + n.ordinary.len() }

// add adds an item that waits.
func (r *rotation[T]) add(namespace string, item T, urgent bool) {
	n := r.namespaces[namespace]
	if n == nil {
		n = &namespaceItems[T]{}
		if r.namespaces == nil {
			r.namespaces = map[string]*namespaceItems[T]{}
		}
		r.namespaces[namespace] = n
	}
	if n.waiting() == 0 {
		r.ring = append(r.ring, n)
	}
	if urgent {
		n.urgent.push(item)
	} else {
		n.ordinary.push(item)
	}
}

// promote makes an ordinary item that waits urgent.
func (r *rotation[T]) promote(namespace string, item T) {
	if n := r.namespaces[namespace]; n != nil && n.ordinary.remove(item) {
		n.urgent.push(item)
	}
}

// remove takes an item out, and reports whether it was waiting.
func (r *rotation[T]) remove(namespace string, item T) bool {
	n := r.namespaces[namespace]
	if n == nil || !n.urgent.remove(item) && !n.ordinary.remove(item) {
		return false
	}
	if n.waiting() == 0 {
		r.ring = slices.DeleteFunc(r.ring, func(other *namespaceItems[T]) bool { return other == n })
		r.tidy(namespace, n)
	}
	return true
}

// available returns how many items wait whose namespaces may have another one at work.
func (r *rotation[T]) available() int {
	available := 0
	for _, n := range r.ring {
		if n.atWork < r.workers {
			available += n.waiting()
		}
	}
	return available
}

// next takes out the item whose turn it is, and counts it as at work until done is called. ok is false without any.
func (r *rotation[T]) next() (item T, ok bool) {
	at := -1
	for i, n := range r.ring {
		if n.atWork < r.workers && (at < 0 || n.atWork < r.ring[at].atWork) {
			at = i
		}
	}
	if at < 0 {
		return item, false
	}
	n := r.ring[at]
	r.ring = slices.Delete(r.ring, at, at+1)
	n.turns++
	from := &n.urgent
	if n.urgent.len() == 0 || n.ordinary.len() > 0 && n.turns%ordinaryShare == 0 {
		from = &n.ordinary
	}
	item = from.first()
	from.remove(item)
	n.atWork++
	if n.waiting() > 0 {
		r.ring = append(r.ring, n)
	}
	return item, true
}

// done notes that an item of the namespace is at work no longer.
func (r *rotation[T]) done(namespace string) {
	if n := r.namespaces[namespace]; n != nil {
		n.atWork--
		r.tidy(namespace, n)
	}
}

// tidy forgets a namespace with nothing waiting and nothing at work.
func (r *rotation[T]) tidy(namespace string, n *namespaceItems[T]) {
	if n.waiting() == 0 && n.atWork <= 0 {
		delete(r.namespaces, namespace)
	}
}

// fifo is a queue from whose middle items can be removed.
type fifo[T comparable] struct {
	order   []numbered[T]
	numbers map[T]uint64 // of the entries that count
	last    uint64
}

type numbered[T comparable] struct {
	item   T
	number uint64
}

func (q *fifo[T]) len() int { return len(q.numbers) }

func (q *fifo[T]) has(item T) bool {
	_, ok := q.numbers[item]
	return ok
}

func (q *fifo[T]) push(item T) {
	if q.numbers == nil {
		q.numbers = map[T]uint64{}
	}
	q.last++
	q.numbers[item] = q.last
	q.order = append(q.order, numbered[T]{item, q.last})
}

// remove takes an item out, and reports whether it was in. Its entry stays until its turn comes.
func (q *fifo[T]) remove(item T) bool {
	had := q.has(item)
	delete(q.numbers, item)
	if len(q.numbers) == 0 {
		q.order = nil
	}
	return had
}

// first returns the first item; there must be one.
func (q *fifo[T]) first() T {
	for q.numbers[q.order[0].item] != q.order[0].number {
		q.order[0] = numbered[T]{}
		q.order = q.order[1:]
	}
	return q.order[0].item
}
