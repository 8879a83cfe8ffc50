package forward

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tocsin-dev/tocsin/internal/fair"
)

// incidentQueue holds Incidents that are to be posted. It keeps names only; the Incident is read when its turn has come, so an
// old state is never posted after a newer one.
//
// Namespaces take turns, so a storm in one of them delays the others by one Incident each.
type incidentQueue struct {
	signal signal // something was added

	mu       sync.Mutex
	turns    fair.Turns[types.NamespacedName]
	received map[types.NamespacedName]time.Time // the alert that caused it; zero if that is not to be measured
}

func newIncidentQueue() *incidentQueue {
	return &incidentQueue{
		signal: newSignal(), turns: fair.NewTurns[types.NamespacedName](1), received: map[types.NamespacedName]time.Time{},
	}
}

// add puts an Incident in the queue. If it is there already, the earlier time counts.
func (q *incidentQueue) add(key types.NamespacedName, received time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turns.Add(key.Namespace, key, false)
	if q.received[key].IsZero() {
		q.received[key] = received
	}
	q.signal.give()
}

func (q *incidentQueue) next() (key types.NamespacedName, received time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, turn, ok := q.turns.Next()
	if ok {
		turn.Done()
	}
	received = q.received[key]
	delete(q.received, key)
	return key, received, ok
}

func (q *incidentQueue) isEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turns.IsEmpty()
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

// sleep waits for a time, for ctx, or for a signal.
func sleep(ctx context.Context, d time.Duration, signal signal) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-signal:
	}
}

func newBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: minBackoff, Factor: 2, Jitter: 0.2, Steps: 10, Cap: maxBackoff}
}
