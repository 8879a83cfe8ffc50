package fair

import "slices"

// ordinaryPart is the part of a key's turns, one in so many, that ordinary items have while urgent ones wait.
const ordinaryPart = 4

// Turns is a queue in which keys take turns. Of those with items waiting, the next one has the fewest items at work and, among
// equals, the one that has had nothing for longest: a key with nothing at work waits for one turn of each other key at most.
// Of one key's items, the urgent ones go first, but for one turn in ordinaryPart: no stream of urgent items keeps the others
// out. It is not safe for concurrent use.
type Turns[T comparable] struct {
	PerKey int // how many items of one key may be at work

	lines map[string]*line[T]
	ring  []*line[T] // those with items waiting, next turn first
}

// line is the items of one key.
type line[T comparable] struct {
	waiting          map[T]*place[T]
	urgent, ordinary []*place[T] // first come, first served
	atWork           int
	turns            int
}

type place[T comparable] struct {
	item   T
	urgent bool
	left   bool // it does not wait here any more
}

// Add adds an item that waits. One that waits already becomes urgent if it is added so.
func (t *Turns[T]) Add(key string, item T, urgent bool) {
	l := t.lines[key]
	if l == nil {
		l = &line[T]{waiting: map[T]*place[T]{}}
		if t.lines == nil {
			t.lines = map[string]*line[T]{}
		}
		t.lines[key] = l
	}
	if len(l.waiting) == 0 {
		t.ring = append(t.ring, l)
	}
	if before := l.waiting[item]; before != nil {
		if before.urgent || !urgent {
			return
		}
		before.left = true
	}
	p := &place[T]{item: item, urgent: urgent}
	l.waiting[item] = p
	if urgent {
		l.urgent = append(l.urgent, p)
	} else {
		l.ordinary = append(l.ordinary, p)
	}
}

// Remove takes an item out, and reports whether it was waiting.
func (t *Turns[T]) Remove(key string, item T) bool {
	l := t.lines[key]
	if l == nil || l.waiting[item] == nil {
		return false
	}
	l.leave(l.waiting[item])
	if len(l.waiting) == 0 {
		t.ring = slices.DeleteFunc(t.ring, func(other *line[T]) bool { return other == l })
		t.tidy(key, l)
	}
	return true
}

// IsEmpty reports whether nothing waits and nothing is at work.
func (t *Turns[T]) IsEmpty() bool { return len(t.lines) == 0 }

// Available returns how many items wait whose keys may have another one at work.
func (t *Turns[T]) Available() int {
	available := 0
	for _, l := range t.ring {
		if l.atWork < t.PerKey {
			available += len(l.waiting)
		}
	}
	return available
}

// Next takes out the item whose turn it is, and counts it as at work until Done is called. ok is false without any.
func (t *Turns[T]) Next() (item T, ok bool) {
	at := -1
	for i, l := range t.ring {
		if l.atWork < t.PerKey && (at < 0 || l.atWork < t.ring[at].atWork) {
			if at = i; l.atWork == 0 {
				break
			}
		}
	}
	if at < 0 {
		return item, false
	}
	l := t.ring[at]
	copy(t.ring[1:at+1], t.ring[:at])
	t.ring[0] = nil
	t.ring = t.ring[1:]
	item = l.next()
	if len(l.waiting) > 0 {
		t.ring = append(t.ring, l)
	}
	return item, true
}

// MayWork reports whether the key may have another item at work.
func (t *Turns[T]) MayWork(key string) bool {
	l := t.lines[key]
	return l == nil || l.atWork < t.PerKey
}

// Done notes that an item of the key is at work no longer. Of equals, the others come before it.
func (t *Turns[T]) Done(key string) {
	l := t.lines[key]
	if l == nil {
		return
	}
	l.atWork--
	for i, other := range slices.Backward(t.ring) { // it was near the end when it had its turn
		if other == l {
			t.ring = append(slices.Delete(t.ring, i, i+1), l)
			break
		}
	}
	t.tidy(key, l)
}

// tidy forgets a key with nothing waiting and nothing at work.
func (t *Turns[T]) tidy(key string, l *line[T]) {
	if len(l.waiting) == 0 && l.atWork <= 0 {
		delete(t.lines, key)
	}
}

// next takes out the item whose turn it is; there must be one.
func (l *line[T]) next() T {
	l.urgent, l.ordinary = present(l.urgent), present(l.ordinary)
	l.turns++
	l.atWork++
	from := l.urgent
	if len(l.urgent) == 0 || len(l.ordinary) > 0 && l.turns%ordinaryPart == 0 {
		from = l.ordinary
	}
	first := from[0]
	l.leave(first)
	return first.item
}

func (l *line[T]) leave(p *place[T]) {
	p.left = true
	if delete(l.waiting, p.item); len(l.waiting) == 0 {
		l.urgent, l.ordinary = nil, nil
	}
}

// present drops the places at the head of a queue whose items have left.
func present[T comparable](queue []*place[T]) []*place[T] {
	for len(queue) > 0 && queue[0].left {
		queue[0] = nil
		queue = queue[1:]
	}
	return queue
}

// InTurns returns the first item of each key, then the second of each, and so on.
func InTurns[T any](items []T, keyOf func(T) string) []T {
	seen := map[string]int{}
	var rounds [][]T
	for _, item := range items {
		key := keyOf(item)
		if seen[key] == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[seen[key]] = append(rounds[seen[key]], item)
		seen[key]++
	}
	return slices.Concat(rounds...)
}
