package commit

import (
	"slices"
	"time"
)

// gathering is a queue's wait for senders to come back. Guarded by the Committer's mutex.
type gathering struct {
	timer  *time.Timer // ends the wait; nil while nothing is gathered
	first  int         // submissions in the queue when the wait began
	target int         // submissions in the queue that end the wait
	skips  int         // writes without a wait before the next one
}

// gather lets the senders that a shared write has just answered come back before the queue's next write begins. Senders in
// a storm post their next alert as soon as they have a response. Without the wait, half of them are always in one
// write and half in the next, and each AlertEvent costs the API server the same for half as many alerts.
func (c *Committer) gather(q *queue, written int, took time.Duration) {
	g, alerts, bytes := &q.gathering, 0, 0
	filled := slices.ContainsFunc(q.entries, func(e *entry) bool {
		alerts, bytes = alerts+len(e.Alerts), bytes+e.size
		return alerts > maxBatchAlerts || bytes > maxBatchBytes
	})
	switch {
	case written < minGathered, filled, c.waiting > len(q.entries), c.closed, g.timer != nil:
		return
	case g.skips > 0:
		g.skips--
		return
	}
	q.pending++
	g.first = len(q.entries)
	g.target = g.first + (written*gatherPercent+99)/100 // rounded up: of a few senders, all
	g.timer = time.AfterFunc(min(took, maxGather), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if came := len(q.entries) - g.first; 2*came < g.target-g.first {
			g.skips = gatherSkips
		}
		g.timer = nil
		c.resume(q)
	})
}
