package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// writeGate lets only so many folds write at a time, and the fewer the more requests wait to be stored: what is
// durable can wait, what is not is lost. Namespaces take turns.
type writeGate struct {
	limit int
	crowd func() int // how many requests wait to be stored

	mu         sync.Mutex
	active     int
	namespaces map[string]*gateQueue // those with a fold that writes or waits to
	ring       []*gateQueue          // those with a fold that waits, next turn first
}

// gateQueue is what one namespace has at the gate.
type gateQueue struct {
	name    string
	active  int
	waiting []turn // by their due times
}

// turn is a fold's claim to a place.
type turn struct {
	due   time.Time
	comes chan struct{} // closed when the place is the fold's
}

func newWriteGate(limit int, crowd func() int) *writeGate {
	return &writeGate{limit: limit, crowd: crowd, namespaces: map[string]*gateQueue{}}
}

// enter waits until the fold may write, and returns what has to be called when it has. Of one namespace's folds, urgent ones go before those
// that came less than maxYield earlier, and never before older ones: however many urgent folds there are, the others come
// to write.
func (g *writeGate) enter(ctx context.Context, namespace string, urgent bool) (leave func(), err error) {
	own := turn{due: time.Now(), comes: make(chan struct{})}
	if !urgent {
		own.due = own.due.Add(maxYield)
	}
	g.mu.Lock()
	g.queue(namespace, own)
	g.admit()
	g.mu.Unlock()
	select {
	case <-own.comes:
		entered := time.Now()
		return func() { g.leave(namespace, time.Since(entered)) }, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.namespaces[namespace]
	if i := slices.Index(q.waiting, own); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		g.tidy(q)
	} else { // the place came at the very same moment
		g.giveBack(namespace)
	}
	return nil, fmt.Errorf("waiting to write: %w", ctx.Err())
}

// queue adds a claim to those of its namespace.
func (g *writeGate) queue(namespace string, own turn) {
	q := g.namespaces[namespace]
	if q == nil {
		q = &gateQueue{name: namespace}
		g.namespaces[namespace] = q
	}
	if len(q.waiting) == 0 {
		g.ring = append(g.ring, q)
	}
	i, _ := slices.BinarySearchFunc(q.waiting, own, func(other, own turn) int {
		return cmp.Or(other.due.Compare(own.due), -1) // behind those that are due at the same time
	})
	q.waiting = slices.Insert(q.waiting, i, own)
}

// tidy takes a namespace off the ring when it has nothing waiting, and forgets it when nothing of it writes either.
func (g *writeGate) tidy(q *gateQueue) {
	if len(q.waiting) > 0 {
		return
	}
	g.ring = slices.DeleteFunc(g.ring, func(other *gateQueue) bool { return other == q })
	if q.active == 0 {
		delete(g.namespaces, q.name)
	}
}

// leave gives back the place that was used for so long. While requests wait, the place rests before the next
// one has it: beside a dozen, folds take a quarter of the time of one writer.
func (g *writeGate) leave(namespace string, used time.Duration) {
	rest := min(used*time.Duration(g.crowd())/crowdPerRest, maxRests*used, maxRest)
	if rest > 0 {
		time.AfterFunc(rest, func() { g.free(namespace) })
		return
	}
	g.free(namespace)
}

func (g *writeGate) free(namespace string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.giveBack(namespace)
}

// giveBack gives a namespace's place to the next one.
func (g *writeGate) giveBack(namespace string) {
	g.active--
	q := g.namespaces[namespace]
	q.active--
	g.tidy(q)
	g.admit()
}

// admit gives the places that there are to those who wait: to the namespace with the fewest folds that write and, of
// those, to the one that has waited longest for its turn.
func (g *writeGate) admit() {
	if len(g.ring) == 0 {
		return
	}
	places := max(1, g.limit/(1+g.crowd()))
	for g.active < places && len(g.ring) > 0 {
		q := slices.MinFunc(g.ring, func(a, b *gateQueue) int { return cmp.Compare(a.active, b.active) })
		g.active++
		q.active++
		close(q.waiting[0].comes)
		q.waiting = slices.Delete(q.waiting, 0, 1)
		g.ring = slices.DeleteFunc(g.ring, func(other *gateQueue) bool { return other == q })
		if len(q.waiting) > 0 {
			g.ring = append(g.ring, q)
		}
	}
}
