package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// writeGate lets only so many folds write at a time, and the fewer the more requests wait to be stored: what is
// durable can wait, what is not is lost.
type writeGate struct {
	limit int
	crowd func() int // how many requests wait to be stored

	mu     sync.Mutex
	active int
	// Channels that are closed when the place is their waiter's. First come first served, the urgent ones before
	// the others.
	urgent, waiting []chan struct{}
}

func newWriteGate(limit int, crowd func() int) *writeGate {
	return &writeGate{limit: limit, crowd: crowd}
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

// leave gives back the place that was used for so long. While requests wait, the place rests before the next
// one has it: beside a dozen, folds take a quarter of the time of one writer.
func (g *writeGate) leave(used time.Duration) {
	rest := min(used*time.Duration(g.crowd())/crowdPerRest, maxRests*used, maxRest)
	if rest > 0 {
		time.AfterFunc(rest, g.free)
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
	places := max(1, g.limit/(1+g.crowd()))
	for _, queue := range []*[]chan struct{}{&g.urgent, &g.waiting} {
		for g.active < places && len(*queue) > 0 {
			g.active++
			close((*queue)[0])
			*queue = (*queue)[1:]
		}
	}
}
