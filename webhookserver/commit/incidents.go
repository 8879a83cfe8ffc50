package commit

import (
	"hash/maphash"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/marks"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=incidents,verbs=get;list;watch

// Incidents knows which Incidents are not Resolved, and which are absent although a firing alert of theirs is stored or being
// stored, as far as the informers of this replica have heard. It says whether a namespace may have more. The latter count like
// the former: an alert that is acknowledged and finds no place would wait in its AlertEvent, and nobody would see it.
//
// It keeps hashes of the names, which are hashes already: 50,000 of them take about 2 MiB.
type Incidents struct {
	seed maphash.Seed

	mu         sync.Mutex
	namespaces map[string]map[uint64]presence
	events     map[types.NamespacedName][]uint64 // AlertEvents, and the names that wait for them
	budget     fair.Budget[string]               // of Incidents, each namespace with its share at most
}

// presence says why an Incident counts.
type presence struct {
	exists  bool
	waiting int // AlertEvents and reservations with firing alerts of it
}

// NewIncidents makes an index with a limit of Incidents, of which a namespace may have a share.
func NewIncidents(limit int, share float64) *Incidents {
	return &Incidents{
		seed:       maphash.MakeSeed(),
		namespaces: map[string]map[uint64]presence{},
		events:     map[types.NamespacedName][]uint64{},
		budget:     fair.Budget[string]{Limit: fair.Limit{All: int64(limit), Share: share}},
	}
}

// Set adds an Incident to the index.
func (x *Incidents) Set(incident *v1alpha1.Incident) { x.setExists(incident, true) }

// Remove removes an Incident from the index.
func (x *Incidents) Remove(incident *v1alpha1.Incident) { x.setExists(incident, false) }

func (x *Incidents) setExists(incident *v1alpha1.Incident, exists bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.change(incident.Namespace, []uint64{x.hash(incident.Name)}, func(p *presence) { p.exists = exists })
}

// SetEvent has the Incidents of an AlertEvent's firing alerts count, but for those into which they are folded. One that is being
// deleted is folded, or a user has given it up.
func (x *Incidents) SetEvent(event *v1alpha1.AlertEvent) {
	mark, _ := marks.Of(event)
	var names []uint64
	if !event.DeletionTimestamp.IsZero() {
		mark.All = true
	}
	for i := range event.Spec.Alerts {
		alert := &event.Spec.Alerts[i]
		if name := event.IncidentNameFor(alert); alert.Status == v1alpha1.AlertFiring && !mark.Settles(name) {
			names = append(names, x.hash(name))
		}
	}
	x.replaceEvent(event, names)
}

// RemoveEvent forgets an AlertEvent.
func (x *Incidents) RemoveEvent(event *v1alpha1.AlertEvent) { x.replaceEvent(event, nil) }

func (x *Incidents) replaceEvent(event *v1alpha1.AlertEvent, names []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := client.ObjectKeyFromObject(event)
	x.change(key.Namespace, x.events[key], func(p *presence) { p.waiting-- })
	x.change(key.Namespace, names, func(p *presence) { p.waiting++ })
	if x.events[key] = names; len(names) == 0 {
		delete(x.events, key)
	}
}

// Has says whether the Incident exists.
func (x *Incidents) Has(namespace, name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.namespaces[namespace][x.hash(name)].exists
}

// IsFull says whether no Incident may be added to the namespace.
func (x *Incidents) IsFull(namespace string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.budget.Allows(namespace)
}

// Reservation has Incidents count whose alerts are being stored.
type Reservation struct {
	index     *Incidents
	namespace string
	names     []uint64
}

// Reserve returns an empty reservation for a request to the namespace.
func (x *Incidents) Reserve(namespace string) *Reservation {
	return &Reservation{index: x, namespace: namespace}
}

// Add says whether a firing alert of the Incident may be stored: it exists, it counts already, or the namespace may have
// another one.
func (r *Reservation) Add(name string) bool {
	x := r.index
	x.mu.Lock()
	defer x.mu.Unlock()
	hash := x.hash(name)
	switch known, counts := x.namespaces[r.namespace][hash]; {
	case known.exists:
		return true
	case !counts && !x.budget.Allows(r.namespace):
		return false
	}
	x.change(r.namespace, []uint64{hash}, func(p *presence) { p.waiting++ })
	r.names = append(r.names, hash)
	return true
}

// Release ends the reservation when the informer has shown the AlertEvent, whose alerts then count by themselves.
func (r *Reservation) Release() {
	if len(r.names) == 0 {
		return
	}
	time.AfterFunc(maxWatchDelay, func() {
		r.index.mu.Lock()
		defer r.index.mu.Unlock()
		r.index.change(r.namespace, r.names, func(p *presence) { p.waiting-- })
	})
}

func (x *Incidents) hash(name string) uint64 { return maphash.String(x.seed, name) }

func (x *Incidents) change(namespace string, names []uint64, change func(*presence)) {
	own := x.namespaces[namespace]
	if own == nil {
		own = map[uint64]presence{}
	}
	for _, name := range names {
		p := own[name]
		if change(&p); p == (presence{}) {
			delete(own, name)
		} else {
			own[name] = p
		}
	}
	x.budget.Set(namespace, min(int64(len(own)), x.budget.Own()))
	if len(own) == 0 {
		delete(x.namespaces, namespace)
	} else {
		x.namespaces[namespace] = own
	}
}

func (x *Incidents) report(set setGauge) {
	x.mu.Lock()
	defer x.mu.Unlock()
	set(incidentsRatio, float64(x.budget.Sum())/float64(x.budget.All))
	for namespace, names := range x.namespaces {
		if ratio := float64(len(names)) / float64(x.budget.Own()); ratio >= reportedRatio {
			set(namespaceIncidentsRatio, ratio, namespace)
		}
	}
}
