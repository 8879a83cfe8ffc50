package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// writeMemory remembers when this process last wrote an Incident, and which version came of it. It spares
// writes and conflicts; forgetting costs nothing else.
type writeMemory struct {
	mu      sync.Mutex
	writes  map[types.NamespacedName]lastWrite
	sweepAt int // the number of entries at which to look for old ones
}

type lastWrite struct {
	time            time.Time
	resourceVersion string
}

func newWriteMemory() *writeMemory {
	return &writeMemory{writes: map[types.NamespacedName]lastWrite{}, sweepAt: 1024}
}

// wrote notes a write. Entries too old to matter are dropped whenever their number has doubled.
func (m *writeMemory) wrote(key types.NamespacedName, resourceVersion string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes[key] = lastWrite{now, resourceVersion}
	if len(m.writes) < m.sweepAt {
		return
	}
	for key, write := range m.writes {
		if now.Sub(write.time) > cachePatience {
			delete(m.writes, key)
		}
	}
	m.sweepAt = max(1024, 2*len(m.writes))
}

// forget drops what is known of an Incident that is gone.
func (m *writeMemory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.writes, key)
}

// behind says whether the Incident as read is older than what was written a moment ago.
func (m *writeMemory) behind(key types.NamespacedName, incident *v1alpha1.Incident, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	write, ok := m.writes[key]
	if !ok || now.Sub(write.time) > cachePatience {
		return false
	}
	return incident == nil || fold.NewerVersion(write.resourceVersion, incident.ResourceVersion)
}

// wait is how long the Incident is not to be written for anything but a change of state.
func (m *writeMemory) wait(key types.NamespacedName, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	write, ok := m.writes[key]
	if !ok {
		return 0
	}
	return max(0, writeInterval-now.Sub(write.time))
}
