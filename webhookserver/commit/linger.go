package commit

import (
	"slices"
	"time"
)

// linger is a queue's wait for senders to come back. Guarded by the Committer's mutex.
type linger struct {
	timer  *time.Timer // ends the wait; nil while the queue does not linger
	first  int         // submissions in the queue when the wait began
	target int         // submissions in the queue that end the wait
	skips  int         // writes without a wait before the next one
}

// lingerAfter lets the senders that a shared write has just answered come back before the queue's next write begins. Senders in
// a storm post their next alert as soon as they have a response. Without the wait, half of them are always in one
// write and half in the next, and each AlertEvent costs the API server the same for half as many alerts.
func (c *Committer) lingerAfter(q *integrationQueue, written int, took time.Duration) {
	l, alerts, bytes := &q.linger, 0, 0
	filled := slices.ContainsFunc(q.entries, func(e *entry) bool {
		alerts, bytes = alerts+len(e.Alerts), bytes+e.size
		return alerts > maxBatchAlerts || bytes > maxBatchBytes
	})
	switch {
	case written < minLingering, filled, c.waiting > len(q.entries), c.closed, l.timer != nil:
		return
	case l.skips > 0:
		l.skips--
		return
	}
	q.pauses++
	l.first = len(q.entries)
	l.target = l.first + (written*lingerPercent+99)/100 // rounded up: of a few senders, all
	l.timer = time.AfterFunc(min(took, maxLinger), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if came := len(q.entries) - l.first; 2*came < l.target-l.first {
			l.skips = lingerSkips
		}
		l.timer = nil
		c.resume(q)
	})
}
