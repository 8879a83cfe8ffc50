package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// writeGate lets only so many folds write at a time, and fewer of them while alerts wait to be stored: what
// is durable can wait, what is not is lost.
type writeGate struct {
	limit int
	busy  func() bool // whether alerts wait to be stored

	mu     sync.Mutex
	active int
	// Channels that are closed when the place is their waiter's. First come first served, the urgent ones before
	// the others.
	urgent, waiting []chan struct{}
}

func newWriteGate(limit int, busy func() bool) *writeGate {
	return &writeGate{limit: limit, busy: busy}
}

// enter waits for leave to write; after nil, leave must follow.
func (g *writeGate) enter(ctx context.Context, urgent bool) error {
	g.mu.Lock()
	queue, turn := &g.waiting, make(chan struct{})
	if urgent {
		queue = &g.urgent
	}
	*queue = append(*queue, turn)
	g.admit()
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(*queue, turn); i >= 0 {
		*queue = slices.Delete(*queue, i, i+1)
	} else { // the place came at the very same moment
		g.active--
		g.admit()
	}
	return fmt.Errorf("waiting to write: %w", ctx.Err())
}

// leave gives back the place that was used for so long. While ingest is busy the place rests before the next
// one has it, so that folds take a quarter of the time of one writer at most.
func (g *writeGate) leave(used time.Duration) {
	if g.busy() {
		time.AfterFunc(min(busyRests*used, maxBusyRest), g.free)
		return
	}
	g.free()
}

func (g *writeGate) free() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.active--
	g.admit()
}

// admit gives the places that there are to those who wait.
func (g *writeGate) admit() {
	if len(g.urgent)+len(g.waiting) == 0 {
		return
	}
	places := g.limit
	if g.busy() {
		places = min(g.limit, busyWriteConcurrency)
	}
	for _, queue := range []*[]chan struct{}{&g.urgent, &g.waiting} {
		for g.active < places && len(*queue) > 0 {
			g.active++
			close((*queue)[0])
			*queue = (*queue)[1:]
		}
	}
}
