package forward

import (
	"sync"
	"time"
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
	changed map[string]*waiting // by namespace
	turns   []string            // the namespaces in changed
	sweep   []incidentKey
}

// waiting are the changed Incidents of a namespace, in the order in which they changed. received is the time at which the
// alert that caused the change was received; zero if the time to Alertmanager is not to be measured.
type waiting struct {
	names    []string
	received map[string]time.Time
}

func newQueue() *queue {
	return &queue{signal: newSignal(), changed: map[string]*waiting{}}
}

// add puts a changed Incident in the queue. If it is there already, the earlier time counts.
func (q *queue) add(key incidentKey, received time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.changed[key.namespace]
	if w == nil {
		w = &waiting{received: map[string]time.Time{}}
		q.changed[key.namespace] = w
		q.turns = append(q.turns, key.namespace)
	}
	if first, ok := w.received[key.name]; !ok {
		w.names = append(w.names, key.name)
		w.received[key.name] = received
	} else if first.IsZero() {
		w.received[key.name] = received
	}
	q.signal.give()
}

// nextChanged takes the next Incident that changed.
func (q *queue) nextChanged() (key incidentKey, received time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) == 0 {
		return incidentKey{}, time.Time{}, false
	}
	namespace := q.turns[0]
	w := q.changed[namespace]
	name := w.names[0]
	received = w.received[name]
	delete(w.received, name)
	w.names, q.turns = w.names[1:], q.turns[1:]
	if len(w.names) > 0 {
		q.turns = append(q.turns, namespace)
	} else {
		delete(q.changed, namespace)
	}
	return incidentKey{namespace, name}, received, true
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
