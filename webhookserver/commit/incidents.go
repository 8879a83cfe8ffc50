package commit

import (
	"hash/maphash"
	"sync"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=incidents,verbs=get;list;watch

// Incidents knows which Incidents are not Resolved, as far as the informer of this replica has heard, and whether a namespace may
// have more. It keeps hashes of the names, which are hashes already: 50,000 of them take about 1 MiB.
type Incidents struct {
	// Complete says whether the index has all Incidents that existed at the start. Default: it has.
	Complete func() bool

	capacity v1alpha1.Capacity
	seed     maphash.Seed

	mu         sync.Mutex
	namespaces map[string]map[uint64]struct{}
	total      int64
}

// NewIncidents makes an index with a limit of Incidents, of which a namespace may have a share.
func NewIncidents(limit int, share float64) *Incidents {
	return &Incidents{
		Complete:   func() bool { return true },
		capacity:   v1alpha1.Capacity{Limit: int64(limit), Share: share},
		seed:       maphash.MakeSeed(),
		namespaces: map[string]map[uint64]struct{}{},
	}
}

// Set adds an Incident to the index.
func (x *Incidents) Set(incident *v1alpha1.Incident) {
	x.mu.Lock()
	defer x.mu.Unlock()
	names := x.namespaces[incident.Namespace]
	if names == nil {
		names = map[uint64]struct{}{}
		x.namespaces[incident.Namespace] = names
	}
	x.total -= int64(len(names))
	names[maphash.String(x.seed, incident.Name)] = struct{}{}
	x.total += int64(len(names))
}

// Remove removes an Incident from the index.
func (x *Incidents) Remove(incident *v1alpha1.Incident) {
	x.mu.Lock()
	defer x.mu.Unlock()
	names := x.namespaces[incident.Namespace]
	x.total -= int64(len(names))
	delete(names, maphash.String(x.seed, incident.Name))
	x.total += int64(len(names))
	if len(names) == 0 {
		delete(x.namespaces, incident.Namespace)
	}
}

// Has says whether the Incident exists.
func (x *Incidents) Has(namespace, name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.namespaces[namespace][maphash.String(x.seed, name)]
	return ok
}

// IsFull says whether no Incident may be added to the namespace.
func (x *Incidents) IsFull(namespace string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	own, count := int64(len(x.namespaces[namespace])), len(x.namespaces)
	if own == 0 {
		count++
	}
	return !x.capacity.Allows(own, x.total, count)
}

// ratio returns how much of the limit is used.
func (x *Incidents) ratio() float64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return float64(x.total) / float64(x.capacity.Limit)
}

// namespaceRatios returns how much of its share each namespace uses, for those that use at least reportedRatio of it.
func (x *Incidents) namespaceRatios() map[string]float64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	ratios := map[string]float64{}
	for namespace, names := range x.namespaces {
		if ratio := float64(len(names)) / float64(x.capacity.Own()); ratio >= reportedRatio {
			ratios[namespace] = ratio
		}
	}
	return ratios
}
