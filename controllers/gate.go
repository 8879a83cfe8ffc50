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
// durable can wait, what is not is lost.
type writeGate struct {
	limit int
	crowd func() int // how many requests wait to be stored

	mu      sync.Mutex
	active  int
	waiting []turn // by their due times
}

// turn is a fold's claim to a place.
type turn struct {
	due   time.Time
	comes chan struct{} // closed when the place is the fold's
}

func newWriteGate(limit int, crowd func() int) *writeGate {
	return &writeGate{limit: limit, crowd: crowd}
}

// enter waits for leave to write; after nil, leave must follow. Urgent folds go before those that came less than
// maxYield earlier, and never before older ones: however many urgent folds there are, the others come to write.
func (g *writeGate) enter(ctx context.Context, urgent bool) error {
	own := turn{due: time.Now(), comes: make(chan struct{})}
	if !urgent {
		own.due = own.due.Add(maxYield)
	}
	g.mu.Lock()
	i, _ := slices.BinarySearchFunc(g.waiting, own, func(other, own turn) int {
		return cmp.Or(other.due.Compare(own.due), -1) // behind those that are due at the same time
	})
	g.waiting = slices.Insert(g.waiting, i, own)
	g.admit()
	g.mu.Unlock()
	select {
	case <-own.comes:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, own); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
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
	if len(g.waiting) == 0 {
		return
	}
	places := max(1, g.limit/(1+g.crowd()))
	for g.active < places && len(g.waiting) > 0 {
		g.active++
		close(g.waiting[0].comes)
		g.waiting = slices.Delete(g.waiting, 0, 1)
	}
}
