package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// writeGate lets only so many folds write at a time, and the fewer the more requests wait to be stored: ingest has
// priority over folding, since stored alerts can wait and others are lost. Namespaces take turns.
type writeGate struct {
	limit   int
	backlog func() int // how many requests wait to be stored

	mu     sync.Mutex
	active int
	claims rotation[*claim]
}

// claim is a fold's claim to write.
type claim struct {
	due     time.Time
	granted chan struct{} // closed when the fold may write
}

func newWriteGate(limit int, backlog func() int) *writeGate {
	return &writeGate{limit: limit, backlog: backlog, claims: rotation[*claim]{
		workers:   limit,
		goesFirst: func(later, urgent *claim) bool { return !urgent.due.Before(later.due) },
	}}
}

// enter waits until the fold may write, and returns the function to call when it has. Of one namespace's folds, urgent
// ones go before those that came less than maxYield earlier, and never before older ones: however many urgent folds
// there are, the others come to write.
func (g *writeGate) enter(ctx context.Context, namespace string, urgent bool) (leave func(), err error) {
	own := &claim{due: time.Now(), granted: make(chan struct{})}
	if !urgent {
		own.due = own.due.Add(maxYield)
	}
	g.mu.Lock()
	g.claims.add(namespace, own, !urgent)
	g.grant()
	g.mu.Unlock()
	select {
	case <-own.granted:
		entered := time.Now()
		return func() { g.leave(namespace, time.Since(entered)) }, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	removed := g.claims.remove(namespace, own)
	g.mu.Unlock()
	if !removed { // it was granted at the very same moment
		g.release(namespace)
	}
	return nil, fmt.Errorf("waiting to write: %w", ctx.Err())
}

// leave frees the place that was used for so long. While requests wait, the place pauses before the next fold has it:
// beside a dozen, folds take a quarter of the time of one writer.
func (g *writeGate) leave(namespace string, used time.Duration) {
	pause := min(used*time.Duration(g.backlog())/backlogPerPause, maxPauseFactor*used, maxPause)
	if pause > 0 {
		time.AfterFunc(pause, func() { g.release(namespace) })
		return
	}
	g.release(namespace)
}

// release gives a namespace's place to the next one.
func (g *writeGate) release(namespace string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active--
	g.claims.done(namespace)
	g.grant()
}

// grant gives the free places to the folds whose turn it is.
func (g *writeGate) grant() {
	for places := max(1, g.limit/(1+g.backlog())); g.active < places; g.active++ {
		next, ok := g.claims.next()
		if !ok {
			return
		}
		close(next.granted)
	}
}
