package webhookserver

import (
	"fmt"
	"hash/maphash"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=incidents,verbs=get;list;watch

// incidentIndex knows which Incidents there are, as far as the informer of this replica has heard, and
// whether a namespace may have more. It keeps hashes of the names, which are hashes already: 50,000 of them
// take about 1 MiB.
type incidentIndex struct {
	capacity v1alpha1.Capacity
	seed     maphash.Seed

	mu         sync.Mutex
	namespaces map[string]map[uint64]struct{}
	total      int64
}

func newIncidentIndex(capacity v1alpha1.Capacity) *incidentIndex {
	return &incidentIndex{capacity: capacity, seed: maphash.MakeSeed(), namespaces: map[string]map[uint64]struct{}{}}
}

// handler feeds the index from an informer.
func (x *incidentIndex) handler() toolscache.ResourceEventHandler {
	set := func(obj any) {
		if incident, ok := obj.(*v1alpha1.Incident); ok {
			x.set(incident.Namespace, incident.Name)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: set,
		DeleteFunc: func(obj any) {
			if incident, ok := undeleted(obj).(*v1alpha1.Incident); ok {
				x.drop(incident.Namespace, incident.Name)
			}
		},
	}
}

func (x *incidentIndex) set(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	names := x.namespaces[namespace]
	if names == nil {
		names = map[uint64]struct{}{}
		x.namespaces[namespace] = names
	}
	hash := maphash.String(x.seed, name)
	if _, ok := names[hash]; !ok {
		names[hash] = struct{}{}
		x.total++
	}
}

func (x *incidentIndex) drop(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	names := x.namespaces[namespace]
	hash := maphash.String(x.seed, name)
	if _, ok := names[hash]; ok {
		delete(names, hash)
		x.total--
	}
	if len(names) == 0 {
		delete(x.namespaces, namespace)
	}
}

func (x *incidentIndex) has(namespace, name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.namespaces[namespace][maphash.String(x.seed, name)]
	return ok
}

// refuses says whether the namespace may have no further Incident.
func (x *incidentIndex) refuses(namespace string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	own, count := int64(len(x.namespaces[namespace])), len(x.namespaces)
	if own == 0 {
		count++
	}
	return !x.capacity.Allows(own, x.total, count)
}

// ratio is how much of the limit is used.
func (x *incidentIndex) ratio() float64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return float64(x.total) / float64(x.capacity.Limit)
}

// fullest returns how full the share of each namespace is that has used half of its share or more.
func (x *incidentIndex) fullest() map[string]float64 {
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

// split takes from the alerts those that need a new Incident, when the namespace may have none: because of
// the limit, or because the leader says that the API server rejects new ones. They would wait in the queue,
// where the sender knows nothing of it. Alerts of Incidents that exist, resolves and acknowledgements stay.
func (h *handler) split(x *exchange, alerts []v1alpha1.Alert) (stored []v1alpha1.Alert, refused int) {
	namespace := x.integration.Namespace
	if x.integration.Blocked() == "" && !h.incidents.refuses(namespace) {
		return alerts, 0
	}
	for i := range alerts {
		if alerts[i].Status == v1alpha1.AlertFiring && !h.incidents.has(namespace, alerts[i].IncidentName) {
			refused++
			continue
		}
		stored = append(stored, alerts[i])
	}
	return stored, refused
}

// storePart stores what split has left of a request and returns the problem that tells of the rest. The part
// has no idempotency key: the request comes again under it, and then it may be stored whole.
func (h *handler) storePart(x *exchange, alerts []v1alpha1.Alert, refused int) *problem {
	if len(alerts) == 0 {
		return &problemIncidentLimit
	}
	x.key = ""
	receipt, p := h.store(x, alerts)
	if p != nil {
		return p
	}
	observeAlerts(x.integration, receipt.Alerts)
	return problemIncidentLimit.saying(fmt.Sprintf("Of %d alerts, %d need a new incident, and the namespace may have no more; "+
		"they were not stored. The others were. Try again later.", len(alerts)+refused, refused))
}

// Refusal returns why requests of a namespace are refused: v1alpha1.ReasonQueueFull when all are,
// v1alpha1.ReasonIncidentLimit when those are that need a new Incident, empty when none are.
func (s *Server) Refusal(namespace string) string {
	switch {
	case s.handler.pending.refuses(namespace):
		return v1alpha1.ReasonQueueFull
	case s.handler.incidents.refuses(namespace):
		return v1alpha1.ReasonIncidentLimit
	}
	return ""
}
