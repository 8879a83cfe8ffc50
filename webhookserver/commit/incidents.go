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

	mu        sync.Mutex
	incidents map[uint64]presence
	events    map[types.NamespacedName][]uint64 // AlertEvents, and the Incidents that wait for them
	budget    fair.Budget[string]               // of Incidents by namespace
}

// presence says why an Incident counts.
type presence struct {
	exists  bool
	waiting int // AlertEvents and reservations with firing alerts of it
}

func (p presence) count() int64 {
	if p == (presence{}) {
		return 0
	}
	return 1
}

// NewIncidents makes an index with a limit of Incidents, of which a namespace may have a share.
func NewIncidents(limit int, share float64) *Incidents {
	return &Incidents{
		seed:      maphash.MakeSeed(),
		incidents: map[uint64]presence{},
		events:    map[types.NamespacedName][]uint64{},
		budget:    fair.Budget[string]{Limit: fair.Limit{All: int64(limit), Share: share}, Capped: true},
	}
}

// Set adds an Incident to the index.
func (x *Incidents) Set(incident *v1alpha1.Incident) { x.setExists(incident, true) }

// Remove removes an Incident from the index.
func (x *Incidents) Remove(incident *v1alpha1.Incident) { x.setExists(incident, false) }

func (x *Incidents) setExists(incident *v1alpha1.Incident, exists bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.change(incident.Namespace, x.hash(incident.Namespace, incident.Name), func(p *presence) { p.exists = exists })
}

// SetEvent has the Incidents of an AlertEvent's firing alerts count, but for those into which they are folded. One that is being
// deleted is folded, or a user has given it up.
func (x *Incidents) SetEvent(event *v1alpha1.AlertEvent) {
	mark, _ := marks.Of(event)
	var waiting []uint64
	if !event.DeletionTimestamp.IsZero() {
		mark.All = true
	}
	for i := range event.Spec.Alerts {
		alert := &event.Spec.Alerts[i]
		if name := event.IncidentNameFor(alert); alert.Status == v1alpha1.AlertFiring && !mark.Settles(name) {
			waiting = append(waiting, x.hash(event.Namespace, name))
		}
	}
	x.replaceEvent(event, waiting)
}

// RemoveEvent forgets an AlertEvent.
func (x *Incidents) RemoveEvent(event *v1alpha1.AlertEvent) { x.replaceEvent(event, nil) }

func (x *Incidents) replaceEvent(event *v1alpha1.AlertEvent, waiting []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := client.ObjectKeyFromObject(event)
	x.wait(key.Namespace, x.events[key], -1)
	x.wait(key.Namespace, waiting, 1)
	if x.events[key] = waiting; len(waiting) == 0 {
		delete(x.events, key)
	}
}

// Has says whether the Incident exists.
func (x *Incidents) Has(namespace, name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.incidents[x.hash(namespace, name)].exists
}

// IsFull says whether no Incident may be added to the namespace.
func (x *Incidents) IsFull(namespace string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.budget.Allows(namespace)
}

// Reserve returns the alerts of a request that may be stored: those that do not fire, those whose Incident exists and, unless
// new ones are blocked, those whose Incident counts already or for which the namespace may have another one. The Incidents count
// until the write has ended, and the informer has shown the AlertEvent, whose alerts then count by themselves.
func (x *Incidents) Reserve(namespace string, alerts []v1alpha1.Alert, blocked bool) (storable []v1alpha1.Alert) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var reserved []uint64
	for i := range alerts {
		incident := x.hash(namespace, alerts[i].IncidentName)
		if known := x.incidents[incident]; alerts[i].Status == v1alpha1.AlertFiring && !known.exists {
			if blocked || known.count() == 0 && !x.budget.Allows(namespace) {
				continue
			}
			x.wait(namespace, []uint64{incident}, 1)
			reserved = append(reserved, incident)
		}
		storable = append(storable, alerts[i])
	}
	if len(reserved) > 0 {
		time.AfterFunc(Timeout+maxWatchDelay, func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.wait(namespace, reserved, -1)
		})
	}
	return storable
}

func (x *Incidents) hash(namespace, name string) uint64 {
	return maphash.Comparable(x.seed, types.NamespacedName{Namespace: namespace, Name: name})
}

// wait changes how many AlertEvents and reservations each of the Incidents waits for.
func (x *Incidents) wait(namespace string, incidents []uint64, more int) {
	for _, incident := range incidents {
		x.change(namespace, incident, func(p *presence) { p.waiting += more })
	}
}

func (x *Incidents) change(namespace string, incident uint64, change func(*presence)) {
	before := x.incidents[incident]
	now := before
	change(&now)
	if x.incidents[incident] = now; now.count() == 0 {
		delete(x.incidents, incident)
	}
	x.budget.Add(namespace, now.count()-before.count())
}

func (x *Incidents) report(set setGauge) {
	x.mu.Lock()
	defer x.mu.Unlock()
	set(incidentsRatio, x.budget.Fraction())
	for namespace := range x.budget.Keys() {
		if ratio := float64(x.budget.Used(namespace)) / float64(x.budget.Own()); ratio >= reportedRatio {
			set(namespaceIncidentsRatio, ratio, namespace)
		}
	}
}
