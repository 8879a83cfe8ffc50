package fair

import "slices"

// ordinaryPart is the part of a key's turns, one in so many, that ordinary items have while urgent ones wait.
const ordinaryPart = 4

// Turns is a queue in which keys take turns at a number of places. Of those with items waiting, the next one has the fewest
// items at work and, among equals, the one that has had nothing for longest: a key with nothing at work waits for one turn of
// each other key at most. Of one key's items, the urgent ones go first, but for one turn in ordinaryPart: no stream of urgent
// items keeps the others out.
//
// One key has four of five places, rounded up, of those that there are now. An item that hangs gives its place up (Turn.Yield).
// It then counts for its own key only, which may have as many at work, hanging ones included, as the Limit of NewTurns allows.
// While items of a key hang, one turn in ordinaryPart goes to such keys if others wait with as many at work. So however many
// items of however many keys hang, a key with nothing at work gets one of the next two places. It is not safe for concurrent
// use.
type Turns[T comparable] struct {
	Places int // how many there are now, at most as many as NewTurns was given
	PerKey int // how many items of one key may be at work; 0: as many as its share of the places

	limit  Limit // of the items at work
	atWork int   // with and without a place
	taken  int   // places
	busy   int   // keys with items at work
	turns  int

	lines map[string]*line[T]
	ring  []*line[T] // those with items waiting, next turn first
}

// NewTurns returns turns at so many places. Items at work are at most MaxAtWork(places), and one for each key beyond that.
func NewTurns[T comparable](places int) Turns[T] {
	all := 2 * places
	return Turns[T]{
		Places: places, lines: map[string]*line[T]{},
		limit: Limit{All: int64(all), Share: (float64(ownPlaces(places)) + 0.5) / float64(all)}, // half of one for rounding
	}
}

// ownPlaces returns how many of these places one key may have.
func ownPlaces(all int) int { return all - all/5 }

// MaxAtWork returns how many items may be at work at so many places if all of them hang.
func MaxAtWork(places int) int { return 3 * places }

type line[T comparable] struct {
	key              string
	waiting          map[T]*entry[T]
	urgent, ordinary []*entry[T] // first come, first served
	atWork, taken    int
	turns            int
	hangs            bool // the last item that ended, or gave its place up, did the latter
}

type entry[T comparable] struct {
	item   T
	urgent bool
	left   bool // it does not wait here any more
}

// Turn is the turn of an item that is at work.
type Turn[T comparable] struct {
	of          *Turns[T]
	line        *line[T]
	gaveUp, end bool
}

// Yield gives the item's place up, since it takes long. It does nothing if the item has none.
func (t *Turn[T]) Yield() {
	if !t.gaveUp {
		t.gaveUp, t.line.hangs = true, true
		t.leave()
	}
}

func (t *Turn[T]) leave() {
	t.of.taken--
	t.line.taken--
}

// Done notes that the item is at work no longer. Of equals, the other keys come before its own. A second call does nothing.
func (t *Turn[T]) Done() {
	if t.end {
		return
	}
	all, l := t.of, t.line
	if !t.gaveUp {
		l.hangs = false
		t.leave()
	}
	t.gaveUp, t.end = true, true
	all.atWork--
	if l.atWork--; l.atWork == 0 {
		all.busy--
	}
	for i, other := range slices.Backward(all.ring) { // it was near the end when it had its turn
		if other == l {
			all.ring = append(slices.Delete(all.ring, i, i+1), l)
			break
		}
	}
	all.tidy(l)
}

// Add adds an item that waits. One that waits already becomes urgent if it is added so.
func (t *Turns[T]) Add(key string, item T, urgent bool) {
	l := t.lines[key]
	if l == nil {
		l = &line[T]{key: key, waiting: map[T]*entry[T]{}}
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
	p := &entry[T]{item: item, urgent: urgent}
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
		t.tidy(l)
	}
	return true
}

// IsEmpty reports whether nothing waits and nothing is at work.
func (t *Turns[T]) IsEmpty() bool { return len(t.lines) == 0 }

func (t *Turns[T]) othersWait(key string) bool {
	return slices.ContainsFunc(t.ring, func(l *line[T]) bool { return l.key != key })
}

// AtWork returns how many items are at work, with and without a place.
func (t *Turns[T]) AtWork() int { return t.atWork }

// Available returns how many items wait whose keys may have another one at work; 0 while no place is free.
func (t *Turns[T]) Available() int {
	available := 0
	for _, l := range t.ring {
		if t.allows(l.taken, l.atWork) {
			available += len(l.waiting)
		}
	}
	return available
}

// Next takes out the item whose turn it is, which has a place until its turn ends. ok is false without any.
func (t *Turns[T]) Next() (item T, turn *Turn[T], ok bool) {
	at, hanging := -1, t.turns%ordinaryPart == ordinaryPart-1
	for i, l := range t.ring {
		if (at < 0 || l.isBefore(t.ring[at], hanging)) && t.allows(l.taken, l.atWork) {
			if at = i; l.atWork == 0 && (hanging || !l.hangs) {
				break
			}
		}
	}
	if at < 0 {
		return item, nil, false
	}
	l := t.ring[at]
	copy(t.ring[1:at+1], t.ring[:at])
	t.ring[0] = nil
	t.ring = t.ring[1:]
	item = l.next()
	if len(l.waiting) > 0 {
		t.ring = append(t.ring, l)
	}
	if l.atWork == 0 {
		t.busy++
	}
	l.atWork++
	l.taken++
	t.atWork++
	t.taken++
	t.turns++
	return item, &Turn[T]{of: t, line: l}, true
}

// isBefore reports whether the next turn is the line's rather than that of one which comes before it in the ring. hanging says
// that lines that hang have this turn like any other.
func (l *line[T]) isBefore(other *line[T], hanging bool) bool {
	return l.atWork < other.atWork || l.atWork == other.atWork && other.hangs && !l.hangs && !hanging
}

// MayWork reports whether the key may have another item at work, and a place is free.
func (t *Turns[T]) MayWork(key string) bool {
	if l := t.lines[key]; l != nil {
		return t.allows(l.taken, l.atWork)
	}
	return t.allows(0, 0)
}

// allows reports whether a key may have another item at work that has so many, and so many places.
func (t *Turns[T]) allows(taken, atWork int) bool {
	keys := t.busy
	if atWork == 0 {
		keys++
	}
	return (t.PerKey == 0 || atWork < t.PerKey) && t.taken < t.Places && taken < ownPlaces(t.Places) &&
		t.limit.Allows(int64(atWork), int64(t.atWork), keys)
}

func (t *Turns[T]) tidy(l *line[T]) {
	if len(l.waiting) == 0 && l.atWork == 0 {
		delete(t.lines, l.key)
	}
}

// next takes out the item whose turn it is; there must be one.
func (l *line[T]) next() T {
	l.urgent, l.ordinary = present(l.urgent), present(l.ordinary)
	l.turns++
	from := l.urgent
	if len(l.urgent) == 0 || len(l.ordinary) > 0 && l.turns%ordinaryPart == 0 {
		from = l.ordinary
	}
	first := from[0]
	l.leave(first)
	return first.item
}

func (l *line[T]) leave(p *entry[T]) {
	p.left = true
	if delete(l.waiting, p.item); len(l.waiting) == 0 {
		l.urgent, l.ordinary = nil, nil
	}
}

// present drops the places at the head of a queue whose items have left.
func present[T comparable](queue []*entry[T]) []*entry[T] {
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
