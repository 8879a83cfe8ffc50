package forward

import (
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/internal/fair"
)

// queue holds Incidents that a sender has to post. It keeps names only; the sender reads the Incident when its turn has come, so
// it never posts an old state after a newer one.
//
// Namespaces take turns, so a storm in one of them delays the others by one Incident each.
type queue struct {
	signal signal // something was added

	mu       sync.Mutex
	turns    fair.Turns[incidentKey]
	received map[incidentKey]time.Time // the alert that caused it; zero if that is not to be measured
}

func newQueue() *queue {
	return &queue{signal: newSignal(), turns: fair.Turns[incidentKey]{PerKey: 1}, received: map[incidentKey]time.Time{}}
}

// add puts an Incident in the queue. If it is there already, the earlier time counts.
func (q *queue) add(key incidentKey, received time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turns.Add(key.namespace, key, false)
	if q.received[key].IsZero() {
		q.received[key] = received
	}
	q.signal.give()
}

// next takes the next Incident.
func (q *queue) next() (key incidentKey, received time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, ok = q.turns.Next()
	q.turns.Done(key.namespace)
	received = q.received[key]
	delete(q.received, key)
	return key, received, ok
}

// signal wakes one goroutine that sleeps, or that is going to.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) give() {
	select {
	case s <- struct{}{}:
	default:
	}
}
