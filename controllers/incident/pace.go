package incident

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// writeConcurrency is how many folds write at a time. While requests wait to be stored, it is divided by
	// one more than they are: ingest has priority.
	writeConcurrency = 16

	// backlogPerPause is how many waiting requests make a fold's place pause for as long as the fold wrote. It pauses at
	// most maxPauseFactor times as long, and at most maxPause.
	backlogPerPause = 2
	maxPauseFactor  = 3
	maxPause        = time.Second

	// slowWrite is how long a write may take before it gives its place up: that of an admission webhook which hangs, in most cases.
	slowWrite = 250 * time.Millisecond
)

// writeGate lets only so many folds write at a time, and the fewer the more requests wait to be stored: ingest has
// priority over folding, since stored alerts can wait and others are lost. Namespaces take turns. A write that hangs counts for
// its own namespace only, so the folds of the others wait no longer than slowWrite and a pause for it.
type writeGate struct {
	limit  int
	ingest Ingest

	mu    sync.Mutex
	turns fair.Turns[*claim]
}

// claim is a fold that waits to write.
type claim struct {
	turn    *fair.Turn[*claim] // once it is granted
	granted chan struct{}
}

// Ingest stores alerts in this process. It is a *webhookserver.Server outside of tests.
type Ingest interface {
	// IngestBacklog returns how many requests wait to be stored; the more, the fewer folds write at a time.
	IngestBacklog() int
}

func newWriteGate(limit int, ingest Ingest) *writeGate {
	return &writeGate{limit: limit, ingest: ingest, turns: fair.NewTurns[*claim](limit)}
}

// enter waits until the fold may write, and returns the function to call when it has.
func (g *writeGate) enter(ctx context.Context, namespace string, urgent bool) (leave func(), err error) {
	claim := &claim{granted: make(chan struct{})}
	g.mu.Lock()
	g.turns.Add(namespace, claim, urgent)
	g.grant()
	g.mu.Unlock()
	select {
	case <-claim.granted:
		entered := time.Now()
		slow := time.AfterFunc(slowWrite, func() { g.free(claim.turn.Yield, slowWrite) })
		return func() {
			slow.Stop()
			g.free(claim.turn.Done, time.Since(entered))
		}, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.turns.Remove(namespace, claim) { // it was granted at the very same moment
		claim.turn.Done()
		g.grant()
	}
	return nil, fmt.Errorf("waiting to write: %w", ctx.Err())
}

// free frees a place that was used for so long. While requests wait, the place pauses before the next fold has it: beside eight,
// folds take a quarter of the time of one writer.
func (g *writeGate) free(end func(), used time.Duration) {
	pause := min(used*time.Duration(g.ingest.IngestBacklog())/backlogPerPause, maxPauseFactor*used, maxPause)
	next := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		end()
		g.grant()
	}
	if pause > 0 {
		time.AfterFunc(pause, next)
		return
	}
	next()
}

// grant gives the free places to the folds whose turn it is.
func (g *writeGate) grant() {
	g.turns.Places = max(1, g.limit/(1+g.ingest.IngestBacklog()))
	for next, turn, ok := g.turns.Next(); ok; next, turn, ok = g.turns.Next() {
		next.turn = turn
		close(next.granted)
	}
}

const (
	// writeInterval is the least time between two writes of an Incident that change no state.
	writeInterval = time.Second

	// maxRememberedWrites bounds the Incidents whose last writes are remembered, and rememberWrite for how long they are. A watch
	// lags less than that, or a write conflicts, and then that is remembered.
	maxRememberedWrites = 20_000
	rememberWrite       = time.Minute
)

// writeMemory remembers when this process last wrote an Incident, and which version came of it. It spares writes and conflicts;
// forgetting costs nothing else. If the cache is behind, the Incident is read from the quorum, once in a writeInterval.
type writeMemory struct {
	writes *cache.LRUExpireCache // of lastWrite by the Incident's name
}

type lastWrite struct {
	time            time.Time
	read            time.Time // when the Incident was last read from the quorum, because the cache was behind, or a write failed
	resourceVersion string
	resolved        bool // the cache will lack the Incident
	outdated        bool // the write failed: the Incident has a newer version, or is gone
}

func (m *writeMemory) wrote(incident *v1alpha1.Incident, now time.Time) {
	m.writes.Add(client.ObjectKeyFromObject(incident), lastWrite{
		time: now, resourceVersion: incident.ResourceVersion, resolved: incident.Status.State == v1alpha1.IncidentResolved,
	}, rememberWrite)
}

// conflicted notes that this version of an Incident is not the newest.
func (m *writeMemory) conflicted(read *v1alpha1.Incident, now time.Time) {
	key := client.ObjectKeyFromObject(read)
	last, _ := m.last(key)
	m.writes.Add(key, lastWrite{
		time: last.time, read: now, outdated: true,
		resourceVersion: read.ResourceVersion, resolved: read.Status.State == v1alpha1.IncidentResolved,
	}, rememberWrite)
}

// forget drops the last write of an Incident that is gone.
func (m *writeMemory) forget(key types.NamespacedName) { m.writes.Remove(key) }

// last returns the last write of an Incident, ok false when none is remembered.
func (m *writeMemory) last(key types.NamespacedName) (last lastWrite, ok bool) {
	value, _ := m.writes.Get(key)
	last, ok = value.(lastWrite)
	return last, ok
}

// cacheIsBehind reports whether the Incident as the cache has it is older than the last write.
func (m *writeMemory) cacheIsBehind(key types.NamespacedName, incident *v1alpha1.Incident) bool {
	last, ok := m.last(key)
	switch {
	case !ok:
		return false
	case incident == nil:
		return !last.resolved
	case last.outdated && last.resourceVersion == incident.ResourceVersion:
		return true
	default:
		return queue.NewerVersion(last.resourceVersion, incident.ResourceVersion)
	}
}

// readDelay returns how long an Incident for which the cache is behind is not to be read from the quorum. If it is 0, the caller
// reads it now, which is noted.
func (m *writeMemory) readDelay(key types.NamespacedName, now time.Time) time.Duration {
	last, _ := m.last(key)
	if left := writeInterval - now.Sub(fold.Latest(last.time, last.read)); left > 0 {
		return left
	}
	last.read = now
	m.writes.Add(key, last, rememberWrite)
	return 0
}

// writeDelay returns how long the Incident is not to be written for anything but a change of state.
func (m *writeMemory) writeDelay(key types.NamespacedName, now time.Time) time.Duration {
	last, _ := m.last(key)
	return max(0, writeInterval-now.Sub(last.time))
}
