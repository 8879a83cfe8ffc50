package incident

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/internal/fair"
)

const (
	// writeConcurrency is how many of those folds write at a time. While requests wait to be stored, it is divided by
	// one more than they are: ingest has priority.
	writeConcurrency = 16

	// backlogPerPause is how many waiting requests make a fold's place pause for as long as the fold wrote. It pauses at
	// most maxPauseFactor times as long, and at most maxPause.
	backlogPerPause = 2
	maxPauseFactor  = 3
	maxPause        = time.Second
)

// writeGate lets only so many folds write at a time, and the fewer the more requests wait to be stored: ingest has
// priority over folding, since stored alerts can wait and others are lost. Namespaces take turns, and one may have four of five
// places: its writes may hang.
type writeGate struct {
	limit   int
	backlog func() int // how many requests wait to be stored

	mu     sync.Mutex
	active int
	claims fair.Turns[chan struct{}] // one a fold that waits, closed when it may write
}

func newWriteGate(limit int, backlog func() int) *writeGate {
	return &writeGate{limit: limit, backlog: backlog, claims: fair.Turns[chan struct{}]{PerKey: limit - limit/5}}
}

// enter waits until the fold may write, and returns the function to call when it has.
func (g *writeGate) enter(ctx context.Context, namespace string, urgent bool) (leave func(), err error) {
	granted := make(chan struct{})
	g.mu.Lock()
	g.claims.Add(namespace, granted, urgent)
	g.grant()
	g.mu.Unlock()
	select {
	case <-granted:
		entered := time.Now()
		return func() { g.leave(namespace, time.Since(entered)) }, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	removed := g.claims.Remove(namespace, granted)
	g.mu.Unlock()
	if !removed { // it was granted at the very same moment
		g.release(namespace)
	}
	return nil, fmt.Errorf("waiting to write: %w", ctx.Err())
}

// leave frees the place that was used for so long. While requests wait, the place pauses before the next fold has it:
// beside eight, folds take a quarter of the time of one writer.
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
	g.claims.Done(namespace)
	g.grant()
}

// grant gives the free places to the folds whose turn it is.
func (g *writeGate) grant() {
	for places := max(1, g.limit/(1+g.backlog())); g.active < places; g.active++ {
		next, ok := g.claims.Next()
		if !ok {
			return
		}
		close(next)
	}
}
