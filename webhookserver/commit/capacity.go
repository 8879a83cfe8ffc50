package commit

import (
	"hash/maphash"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/packing"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=create;get;list;watch

// Capacity limits what the namespaces may store in the cluster. It counts the AlertEvents of each namespace, their approximate
// size, and its Incidents (incidents.go), as the informers of this replica tell: every replica comes to the same answer.
//
// There are two bounds of the number of AlertEvents and of their size, and fair.Limit divides them between the namespaces:
//
//   - AlertEvents that can drain count towards the limit. A namespace counts there with at most its share. An AlertEvent cannot
//     drain if it is terminating or unreadable, if it has no integration, or if the folds of its integration are blocked. So
//     however many namespaces have AlertEvents that stay, the others go on;
//   - all AlertEvents count towards maxStuckFactor times the limit, to protect etcd. A namespace counts there with at most its
//     share as well: if people create more, that does not protect etcd, but would shut out the others.
type Capacity struct {
	// Cached knows what the cache lacks of AlertEvents. Optional; set before the first AlertEvent is counted.
	Cached *clustercache.Events

	seed maphash.Seed // of the hashes of Incidents

	mu           sync.Mutex
	bounds       [2]bound // of the number and of the size, as usage has them
	events       map[types.NamespacedName]countedEvent
	stuck        map[string]int64 // AlertEvents that are stuck by themselves, by reason
	integrations map[types.NamespacedName]countedIntegration
	incidents    map[uint64]presence
	budget       fair.Budget[string] // of Incidents
}

// bound is how much each namespace uses of a limit, with its AlertEvents that can drain, and with all.
type bound struct{ draining, all fair.Budget[string] }

func newBound(limit int64, share float64) bound {
	return bound{
		draining: fair.Budget[string]{Limit: fair.Limit{All: limit, Share: share}, Capped: true},
		all:      fair.Budget[string]{Limit: fair.Limit{All: maxStuckFactor * limit, Share: share / maxStuckFactor}, Capped: true},
	}
}

// usedBy returns the part of its share that a namespace uses.
func (b *bound) usedBy(namespace string) float64 {
	return float64(b.all.Used(namespace)) / float64(b.all.Own())
}

func (b *bound) isFull(namespace string) bool {
	return !b.draining.Allows(namespace) || !b.all.Allows(namespace)
}

// usage is a number of AlertEvents and their size in bytes.
type usage [2]int64

// countedEvent is an AlertEvent as it was counted. Later versions of it may look different.
type countedEvent struct {
	integration string
	usage       usage
	stuck       string
	waiting     []uint64 // Incidents that wait for it
}

// countedIntegration counts the AlertEvents of an integration that are not stuck by themselves. Those without an integration
// have one that does not exist.
type countedIntegration struct {
	usage   usage
	exists  bool
	blocked string // why its folds wait
}

// draining returns the part of an integration's AlertEvents that can drain.
func (i *countedIntegration) draining() usage {
	if i.exists && i.blocked == "" {
		return i.usage
	}
	return usage{}
}

// NewCapacity makes a Capacity for so many AlertEvents and Incidents. A namespace may have a share of each.
func NewCapacity(events, incidents int, share float64) *Capacity {
	return &Capacity{
		seed:   maphash.MakeSeed(),
		bounds: [2]bound{newBound(int64(events), share), newBound(maxPendingBytes, share)},
		events: map[types.NamespacedName]countedEvent{},
		stuck: map[string]int64{
			clustercache.StuckTerminating: 0, clustercache.StuckUnreadable: 0, v1alpha1.ReasonQuotaExceeded: 0,
			v1alpha1.ReasonForbidden: 0, v1alpha1.ReasonNamespaceTerminating: 0, v1alpha1.ReasonIncidentLimit: 0,
		},
		integrations: map[types.NamespacedName]countedIntegration{},
		incidents:    map[uint64]presence{},
		budget:       fair.Budget[string]{Limit: fair.Limit{All: int64(incidents), Share: share}, Capped: true},
	}
}

// Refusal returns why requests of a namespace are refused: v1alpha1.ReasonQueueFull when all are, which ends by itself as
// alerts are folded, v1alpha1.ReasonIncidentLimit when those are that need a new Incident, empty when none are.
func (c *Capacity) Refusal(namespace string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.bounds[0].isFull(namespace), c.bounds[1].isFull(namespace):
		return v1alpha1.ReasonQueueFull
	case !c.budget.Allows(namespace):
		return v1alpha1.ReasonIncidentLimit
	}
	return ""
}

// SetEvent counts an AlertEvent, or counts it anew.
func (c *Capacity) SetEvent(event *v1alpha1.AlertEvent, _ bool) {
	c.replace(event, countedEvent{
		integration: event.Spec.IntegrationName,
		usage:       usage{1, int64(Size(event.Spec.Alerts)) + c.Cached.Removed(event)}, // as the API server stores it
		stuck:       clustercache.Stuck(event),
		waiting:     c.waitingFor(event),
	})
}

// RemoveEvent no longer counts an AlertEvent.
func (c *Capacity) RemoveEvent(event *v1alpha1.AlertEvent) { c.replace(event, countedEvent{}) }

func (c *Capacity) replace(event *v1alpha1.AlertEvent, counted countedEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := client.ObjectKeyFromObject(event)
	c.count(name, c.events[name], -1)
	c.count(name, counted, 1)
	if c.events[name] = counted; counted.usage == (usage{}) {
		delete(c.events, name)
	}
}

// count adds an AlertEvent or subtracts it.
func (c *Capacity) count(name types.NamespacedName, event countedEvent, sign int64) {
	for i := range c.bounds {
		c.bounds[i].all.Add(name.Namespace, sign*event.usage[i])
	}
	c.wait(name.Namespace, event.waiting, int(sign))
	if event.stuck != "" {
		c.stuck[event.stuck] += sign
		return
	}
	owner := types.NamespacedName{Namespace: name.Namespace, Name: event.integration}
	c.changeIntegration(owner, func(integration *countedIntegration) {
		for i := range integration.usage {
			integration.usage[i] += sign * event.usage[i]
		}
	})
}

// SetIntegration takes note of an integration, whose AlertEvents drain unless it is blocked.
func (c *Capacity) SetIntegration(w *v1alpha1.WebhookIntegration) {
	c.setIntegration(w, true, integrations.Blocked(w))
}

// RemoveIntegration takes note of a deleted integration, whose AlertEvents no longer drain.
func (c *Capacity) RemoveIntegration(w *v1alpha1.WebhookIntegration) { c.setIntegration(w, false, "") }

func (c *Capacity) setIntegration(w *v1alpha1.WebhookIntegration, exists bool, blocked string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changeIntegration(client.ObjectKeyFromObject(w), func(i *countedIntegration) { i.exists, i.blocked = exists, blocked })
}

// changeIntegration changes the counts of an integration, and with them the part that can drain. It forgets a deleted
// integration without AlertEvents.
func (c *Capacity) changeIntegration(name types.NamespacedName, change func(*countedIntegration)) {
	integration := c.integrations[name]
	before := integration.draining()
	change(&integration)
	for i, now := range integration.draining() {
		c.bounds[i].draining.Add(name.Namespace, now-before[i])
	}
	if c.integrations[name] = integration; integration == (countedIntegration{}) {
		delete(c.integrations, name)
	}
}

// Describe implements prometheus.Collector.
func (*Capacity) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range capacityGauges {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *Capacity) Collect(metrics chan<- prometheus.Metric) {
	for _, metric := range c.gauges() { // when the mutex is free again
		metrics <- metric
	}
}

func (c *Capacity) gauges() (gauges []prometheus.Metric) {
	set := func(gauge *prometheus.Desc, value float64, labels ...string) {
		gauges = append(gauges, prometheus.MustNewConstMetric(gauge, prometheus.GaugeValue, value, labels...))
	}
	ofNamespace := func(gauge *prometheus.Desc, namespace string, ratio float64) {
		if ratio >= reportedRatio {
			set(gauge, ratio, namespace)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	number, size := &c.bounds[0], &c.bounds[1]
	set(backlogRatio, max(number.draining.Fraction(), number.all.Fraction(), size.draining.Fraction(), size.all.Fraction()))
	for namespace := range number.all.Keys() {
		ofNamespace(namespaceBacklogRatio, namespace, max(number.usedBy(namespace), size.usedBy(namespace)))
	}
	set(incidentsRatio, c.budget.Fraction())
	for namespace := range c.budget.Keys() {
		ofNamespace(namespaceIncidentsRatio, namespace, float64(c.budget.Used(namespace))/float64(c.budget.Own()))
	}
	stuck := maps.Clone(c.stuck)
	for _, integration := range c.integrations {
		if integration.blocked != "" {
			stuck[integration.blocked] += integration.usage[0]
		}
	}
	for reason, events := range stuck {
		set(stuckEvents, float64(events), reason)
	}
	return gauges
}

// Size returns the size in bytes of the alerts as the API server stores them, never less.
func Size(alerts []v1alpha1.Alert) int {
	const overhead = 1 << 9 // id, incidentName and status with their field names
	size := 0
	for i := range alerts {
		size += overhead + 6*len(alerts[i].DedupKey) + alertcontent.Size(&alerts[i].AlertContent)
	}
	return size
}

// Fits reports whether alerts can be stored in one AlertEvent.
func Fits(alerts []v1alpha1.Alert) bool {
	switch size := Size(alerts); {
	case size <= MaxBytes:
		return true
	case size > maxGroupBytes || len(alerts) < 2: // a single alert is not packed
		return false
	}
	spec := v1alpha1.AlertEventSpec{Alerts: alerts}
	return packing.Pack(&spec) == nil && len(spec.PackedAlerts) <= MaxBytes
}
