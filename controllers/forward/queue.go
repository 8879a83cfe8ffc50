package forward

import (
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/internal/fair"
)

// incidentKey names an Incident, or an integration.
type incidentKey struct{ namespace, name string }

// queue holds the Incidents that a sender has to post: those that changed, and those that the sweep has not reached. It
// keeps names only; the sender reads the Incident when its turn has come, so it never posts an old state after a newer one.
//
// Namespaces take turns, so a storm in one of them delays the others by one Incident each.
type queue struct {
	signal signal // the sender has something new to do

	mu      sync.Mutex
	turns   fair.Turns[incidentKey]   // of the changed ones
	changed map[incidentKey]time.Time // when the alert that caused it was received; zero if that is not to be measured
	sweep   []incidentKey
}

func newQueue() *queue {
	return &queue{signal: newSignal(), turns: fair.Turns[incidentKey]{PerKey: 1}, changed: map[incidentKey]time.Time{}}
}

// add puts a changed Incident in the queue. If it is there already, the earlier time counts.
func (q *queue) add(key incidentKey, received time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turns.Add(key.namespace, key, false)
	if q.changed[key].IsZero() {
		q.changed[key] = received
	}
	q.signal.give()
}

// nextChanged takes the next Incident that changed.
func (q *queue) nextChanged() (key incidentKey, received time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, ok = q.turns.Next()
	q.turns.Done(key.namespace)
	received = q.changed[key]
	delete(q.changed, key)
	return key, received, ok
}

// nextSwept takes the next Incident of the sweep.
func (q *queue) nextSwept() (key incidentKey, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.sweep) == 0 {
		return incidentKey{}, false
	}
	key, q.sweep = q.sweep[0], q.sweep[1:]
	return key, true
}

// startSweep begins a sweep over the Incidents. It reports false while the last one is under way.
func (q *queue) startSweep(keys []incidentKey) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.sweep) > 0 {
		return false
	}
	q.sweep = keys
	return true
}
