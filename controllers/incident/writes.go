package incident

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
)

const (
	// writeInterval is the least time between two writes of an Incident that change no state.
	writeInterval = time.Second

	// cachePatience is how long a fold waits for the cache to show the last write of this process. Nothing
	// depends on it but the number of conflicts.
	cachePatience = 2 * time.Second

	// maxRememberedWrites bounds the last writes that are remembered: more than are made within cachePatience.
	maxRememberedWrites = 20_000
)

// writeMemory remembers for cachePatience when this process last wrote an Incident, and which version came of it. It
// spares writes and conflicts; forgetting costs nothing else.
type writeMemory struct {
	writes *cache.LRUExpireCache // of lastWrite by the Incident's name
}

type lastWrite struct {
	time            time.Time
	resourceVersion string
	resolved        bool // the cache will lack the Incident
}

func newWriteMemory(clock replica.Clock) *writeMemory {
	return &writeMemory{cache.NewLRUExpireCacheWithClock(maxRememberedWrites, clock)}
}

func (m *writeMemory) wrote(incident *v1alpha1.Incident, now time.Time) {
	last := lastWrite{now, incident.ResourceVersion, incident.Status.State == v1alpha1.IncidentResolved}
	m.writes.Add(client.ObjectKeyFromObject(incident), last, cachePatience)
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
	if ok && incident == nil {
		return !last.resolved
	}
	return ok && fold.NewerVersion(last.resourceVersion, incident.ResourceVersion)
}

// wait returns how long the Incident is not to be written for anything but a change of state.
func (m *writeMemory) wait(key types.NamespacedName, now time.Time) time.Duration {
	last, ok := m.last(key)
	if !ok {
		return 0
	}
	return max(0, writeInterval-now.Sub(last.time))
}
