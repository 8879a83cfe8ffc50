package commit

import (
	"slices"
	"time"
)

// gathering is a queue's wait for senders to come back. Guarded by the Committer's mutex.
type gathering struct {
	first  int           // submissions in the queue when the wait began
	target int           // submissions in the queue that end the wait
	done   chan struct{} // closed at the target; nil while nothing is gathered
	skips  int           // writes without a wait before the next one
}

// arrived ends the wait if so many submissions in the queue are enough.
func (g *gathering) arrived(waiting int) {
	if g.done != nil && waiting >= g.target {
		close(g.done)
		g.done = nil
	}
}

// gather lets the senders that a shared write has just answered come back before the queue's next write begins. Senders in
// a storm post their next alert as soon as they have a response. Without the wait, half of them are always in one
// write and half in the next, and each AlertEvent costs the API server the same for half as many alerts.
//
// It does not wait when another queue needs the writer, nor when all writers are busy.
func (c *Committer) gather(written *batch, took time.Duration) {
	q := written.queue
	done := c.beginGathering(q, len(written.entries))
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(min(took, maxGather)):
		c.mu.Lock()
		defer c.mu.Unlock()
		q.gathering.done = nil
		if came := len(q.entries) - q.gathering.first; 2*came < q.gathering.target-q.gathering.first {
			q.gathering.skips = gatherSkips
		}
	}
}

// beginGathering returns a channel that is closed when enough submissions wait in the queue, nil if there is nothing to wait
// for.
func (c *Committer) beginGathering(q *queue, written int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := &q.gathering
	othersWait := c.waiting > len(q.entries)
	c.writing -= written // they have their responses: folds may write meanwhile
	alerts, bytes := 0, 0
	filled := slices.ContainsFunc(q.entries, func(e *entry) bool {
		alerts, bytes = alerts+len(e.Alerts), bytes+e.size
		return alerts > maxBatchAlerts || bytes > maxBatchBytes
	})
	switch {
	case written < minGathered, othersWait, filled, c.closed, c.free == 0, g.done != nil:
		return nil
	case g.skips > 0:
		g.skips--
		return nil
	}
	awaited := (written*gatherPercent + 99) / 100 // rounded up: of a few senders, all
	g.done, g.first, g.target = make(chan struct{}), len(q.entries), len(q.entries)+awaited
	return g.done
}
