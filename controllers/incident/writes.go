package incident

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

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

func newWriteMemory(clock replica.Clock) *writeMemory {
	return &writeMemory{cache.NewLRUExpireCacheWithClock(maxRememberedWrites, clock)}
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
	if value, found := m.writes.Get(key); found {
		last, ok = value.(lastWrite)
	}
	return last, ok
}

// behind reports whether the Incident as the cache has it is older than the last write.
func (m *writeMemory) behind(key types.NamespacedName, incident *v1alpha1.Incident) bool {
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

// mayRead returns how long an Incident for which the cache is behind is not to be read from the quorum; 0 if it is read now.
func (m *writeMemory) mayRead(key types.NamespacedName, now time.Time) time.Duration {
	last, _ := m.last(key)
	if left := writeInterval - now.Sub(fold.Latest(last.time, last.read)); left > 0 {
		return left
	}
	last.read = now
	m.writes.Add(key, last, rememberWrite)
	return 0
}

// wait returns how long the Incident is not to be written for anything but a change of state.
func (m *writeMemory) wait(key types.NamespacedName, now time.Time) time.Duration {
	last, ok := m.last(key)
	if !ok {
		return 0
	}
	return max(0, writeInterval-now.Sub(last.time))
}
