package forward

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// schedule says which Incidents a poster posts next. The open ones come first, since they expire. The others follow when the
// round has reached all that are open: thousands of them may have to be read one after another.
type schedule struct {
	changed  *incidentQueue         // the Incidents that changed
	round    []types.NamespacedName // the open ones that the round has not reached
	notOpen  *incidentQueue         // those that are not open
	suspects *incidentQueue         // those that are posted alone, and were only rejected together with others
	rejected *incidentQueue         // those that were rejected alone

	incidents *incidents
	record    *record
}

func newSchedule(incidents *incidents, record *record) *schedule {
	return &schedule{
		changed: newIncidentQueue(), notOpen: newIncidentQueue(), suspects: newIncidentQueue(), rejected: newIncidentQueue(),
		incidents: incidents, record: record,
	}
}

// batch is the posts of one request, and those that follow it alone.
type batch struct {
	posts, alone []*post
	size         int // of the posts
}

func (b *batch) fits(incidents, bytes int) bool { return len(b.posts) < incidents && b.size < bytes }

// beginRound begins a round over the Incidents that are open, and has those posted again that were resolved after a time, or of
// which this poster has posted alerts that it has to end. It reports false while the last one is under way.
func (s *schedule) beginRound(resolvedAfter time.Time) bool {
	if len(s.round) > 0 {
		return false
	}
	open, ended := s.incidents.active(resolvedAfter)
	slices.SortFunc(open, func(a, b types.NamespacedName) int { // each comes at about the same time of every round
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	s.round = open
	posted, rejected := s.record.unfinished()
	for _, key := range slices.Concat(ended, posted) {
		if !s.incidents.isUnresolved(key) {
			s.notOpen.add(key, time.Time{})
		}
	}
	for _, key := range rejected {
		s.isolate(key, time.Time{})
	}
	return true
}

// fill takes as many Incidents as fit in one request, and some that are to be posted alone. prepare returns the post about one;
// nil if there is none.
func (s *schedule) fill(ctx context.Context, b *batch, prepare func(types.NamespacedName, time.Time) *post) {
	take := func(key types.NamespacedName, received time.Time) {
		if s.isolate(key, received) {
			return
		}
		if p := prepare(key, received); p != nil {
			b.posts, b.size = append(b.posts, p), b.size+p.size
		}
	}
	s.takeOpen(ctx, b, take)
	if len(s.round) == 0 {
		s.takeEnded(ctx, b, take)
	}
	for i := range maxAlone {
		key, received, ok := s.nextAlone(i == maxAlone-1)
		if !ok {
			break
		}
		if p := prepare(key, received); p != nil {
			b.alone = append(b.alone, p)
		}
	}
}

// isolate has an Incident posted alone if it is rejected, and reports whether it is.
func (s *schedule) isolate(key types.NamespacedName, received time.Time) bool {
	switch rejected, alone := s.record.isRejected(key); {
	case !rejected:
		return false
	case alone:
		s.rejected.add(key, received)
	default:
		s.suspects.add(key, received)
	}
	return true
}

// nextAlone takes the next Incident to be posted alone. Suspects come first: they may be rejected only because of others. The
// last of a turn is one of the rejected; otherwise new suspects without end would keep these from being posted.
func (s *schedule) nextAlone(last bool) (key types.NamespacedName, received time.Time, ok bool) {
	queues := []*incidentQueue{s.suspects, s.rejected}
	if last {
		slices.Reverse(queues)
	}
	for _, queue := range queues {
		if key, received, ok = queue.next(); ok {
			break
		}
	}
	return key, received, ok
}

// takeOpen takes the open Incidents that changed, and then those of the round. Those that changed and are not open are left to
// takeEnded.
func (s *schedule) takeOpen(ctx context.Context, b *batch, take func(types.NamespacedName, time.Time)) {
	for ctx.Err() == nil && b.fits(changedIncidents, changedBytes) {
		key, received, ok := s.changed.next()
		if !ok {
			break
		}
		if s.incidents.isUnresolved(key) {
			take(key, received)
		} else {
			s.notOpen.add(key, received)
		}
	}
	for ctx.Err() == nil && b.fits(batchIncidents, batchBytes) && len(s.round) > 0 {
		key := s.round[0]
		s.round = s.round[1:]
		take(key, time.Time{})
	}
}

// takeEnded takes those that are not open, for a while.
func (s *schedule) takeEnded(ctx context.Context, b *batch, take func(types.NamespacedName, time.Time)) {
	for began := time.Now(); ctx.Err() == nil && b.fits(batchIncidents, batchBytes) && time.Since(began) < endedTime; {
		key, received, ok := s.notOpen.next()
		if !ok {
			return
		}
		if !s.incidents.mayRead(key) {
			s.notOpen.add(key, received)
			return
		}
		take(key, received)
	}
}

// putBack has Incidents posted again whose request failed.
func (s *schedule) putBack(posts []*post) {
	for _, p := range posts {
		s.changed.add(p.key, p.received)
	}
}

// wait waits until a time or for an Incident that changes, unless some have not been posted. Those that have to be read first
// wait a moment for their reads.
func (s *schedule) wait(ctx context.Context, until time.Time) {
	if len(s.round) > 0 || !s.changed.isEmpty() {
		return
	}
	if !s.notOpen.isEmpty() {
		until = fold.Earliest(until, time.Now().Add(endedTime))
	}
	sleep(ctx, time.Until(until), s.changed.signal)
}

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

// add puts an Incident in the queue. If it is there already, the first time that is not zero counts.
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
