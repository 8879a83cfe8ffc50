package incident

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/internal/fair"
)

const (
	// writeConcurrency is how many folds write at a time. While requests wait to be stored, it is divided by
	// one more than they are: ingest has priority.
	writeConcurrency = 16

	// backlogPerPause is how many waiting requests make a fold's place pause for as long as the fold wrote. It pauses at
	// most maxPauseFactor times as long, and at most maxPause.
	backlogPerPause = 2
	maxPauseFactor  = 3
	maxPause        = time.Second

	// slowWrite is how long a write may take before it gives its place up: that of an admission webhook which hangs, in most cases.
	slowWrite = 250 * time.Millisecond
)

// writeGate lets only so many folds write at a time, and the fewer the more requests wait to be stored: ingest has
// priority over folding, since stored alerts can wait and others are lost. Namespaces take turns. A write that hangs counts for
// its own namespace only, so the folds of the others wait no longer than slowWrite and a pause for it.
type writeGate struct {
	limit  int
	ingest Ingest

	mu    sync.Mutex
	turns fair.Turns[*claim]
}

// claim is a fold that waits to write.
type claim struct {
	turn    *fair.Turn[*claim] // once it is granted
	granted chan struct{}
}

// Ingest stores alerts in this process. It is a *webhookserver.Server outside of tests.
type Ingest interface {
	// IngestBacklog returns how many requests wait to be stored; the more, the fewer folds write at a time.
	IngestBacklog() int
}

func newWriteGate(limit int, ingest Ingest) *writeGate {
	return &writeGate{limit: limit, ingest: ingest, turns: fair.NewTurns[*claim](limit)}
}

// enter waits until the fold may write, and returns the function to call when it has.
func (g *writeGate) enter(ctx context.Context, namespace string, urgent bool) (leave func(), err error) {
	claim := &claim{granted: make(chan struct{})}
	g.mu.Lock()
	g.turns.Add(namespace, claim, urgent)
	g.grant()
	g.mu.Unlock()
	select {
	case <-claim.granted:
		entered := time.Now()
		slow := time.AfterFunc(slowWrite, func() { g.free(claim.turn.Yield, slowWrite) })
		return func() {
			slow.Stop()
			g.free(claim.turn.Done, time.Since(entered))
		}, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.turns.Remove(namespace, claim) { // it was granted at the very same moment
		claim.turn.Done()
		g.grant()
	}
	return nil, fmt.Errorf("waiting to write: %w", ctx.Err())
}

// free frees a place that was used for so long. While requests wait, the place pauses before the next fold has it: beside eight,
// folds take a quarter of the time of one writer.
func (g *writeGate) free(end func(), used time.Duration) {
	pause := min(used*time.Duration(g.ingest.IngestBacklog())/backlogPerPause, maxPauseFactor*used, maxPause)
	next := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		end()
		g.grant()
	}
	if pause > 0 {
		time.AfterFunc(pause, next)
		return
	}
	next()
}

// grant gives the free places to the folds whose turn it is.
func (g *writeGate) grant() {
	g.turns.Places = max(1, g.limit/(1+g.ingest.IngestBacklog()))
	for next, turn, ok := g.turns.Next(); ok; next, turn, ok = g.turns.Next() {
		next.turn = turn
		close(next.granted)
	}
}
