package commit

import (
	"maps"
	"sync"

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

// PendingEvents counts the AlertEvents of each namespace and their approximate size, as far as the informers of this
// replica have heard, and says whether a namespace may add more. There are two bounds of each, and fair.Limit divides
// them between the namespaces:
//
//   - AlertEvents that can drain count towards the limit. A namespace counts there with at most its share, and with
//     nothing that cannot drain: AlertEvents that are terminating or unreadable, those of an
//     integration whose folds are blocked, and those of no integration. So however many namespaces have
//     AlertEvents that stay, the others go on;
//   - all AlertEvents count towards maxStuckFactor times the limit, to protect etcd.
//
// All of it can be seen on the objects, so that every replica comes to the same answer.
type PendingEvents struct {
	// Cached knows what the cache lacks of AlertEvents. Optional; set before the first AlertEvent is counted.
	Cached *clustercache.Events

	mu           sync.Mutex
	bounds       [2]bound // of the number and of the size, as usage has them
	events       map[types.NamespacedName]pendingEvent
	stuck        map[string]int64 // AlertEvents that are stuck by themselves, by reason
	integrations map[types.NamespacedName]pendingIntegration
}

// bound is how much each namespace uses of a limit, with its AlertEvents that can drain, and with all.
type bound struct{ draining, all fair.Budget[string] }

func newBound(limit int64, share float64) bound {
	return bound{
		draining: fair.Budget[string]{Limit: fair.Limit{All: limit, Share: share}, Capped: true},
		all:      fair.Budget[string]{Limit: fair.Limit{All: maxStuckFactor * limit, Share: 1}},
	}
}

// used returns the part of the limit that is used.
func (b *bound) used() float64 { return max(b.draining.Fraction(), b.all.Fraction()) }

// usedBy returns the part of its share that a namespace uses.
func (b *bound) usedBy(namespace string) float64 {
	return float64(b.all.Used(namespace)) / float64(b.draining.Own())
}

func (b *bound) isFull(namespace string) bool {
	return b.usedBy(namespace) >= 1 || !b.draining.Allows(namespace) || !b.all.Allows(namespace)
}

// usage is a number of AlertEvents and their size in bytes.
type usage [2]int64

// pendingEvent is an AlertEvent as it was counted. Later versions of it may look different.
type pendingEvent struct {
	integration string
	usage       usage
	stuck       string
}

// pendingIntegration counts the AlertEvents of an integration that are not stuck by themselves. Those without an integration
// have one that does not exist.
type pendingIntegration struct {
	usage   usage
	exists  bool
	blocked string // why its folds wait
}

// draining returns the part of an integration's AlertEvents that can drain.
func (i *pendingIntegration) draining() usage {
	if i.exists && i.blocked == "" {
		return i.usage
	}
	return usage{}
}

// NewPendingEvents makes a counter with a limit of AlertEvents, of which a namespace may have a share.
func NewPendingEvents(limit int, share float64) *PendingEvents {
	return &PendingEvents{
		bounds: [2]bound{newBound(int64(limit), share), newBound(maxPendingBytes, share)},
		events: map[types.NamespacedName]pendingEvent{},
		stuck: map[string]int64{
			clustercache.StuckTerminating: 0, clustercache.StuckUnreadable: 0, v1alpha1.ReasonQuotaExceeded: 0,
			v1alpha1.ReasonForbidden: 0, v1alpha1.ReasonNamespaceTerminating: 0, v1alpha1.ReasonIncidentLimit: 0,
		},
		integrations: map[types.NamespacedName]pendingIntegration{},
	}
}

// IsFull says whether no AlertEvent may be added to the namespace. It ends by itself as alerts are folded.
func (p *PendingEvents) IsFull(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bounds[0].isFull(namespace) || p.bounds[1].isFull(namespace)
}

// report sets the gauges of the AlertEvents.
func (p *PendingEvents) report(set setGauge) {
	p.mu.Lock()
	defer p.mu.Unlock()
	number, size := &p.bounds[0], &p.bounds[1]
	set(backlogRatio, max(number.used(), size.used()))
	for namespace := range number.all.Keys() {
		if ratio := max(number.usedBy(namespace), size.usedBy(namespace)); ratio >= reportedRatio {
			set(namespaceBacklogRatio, ratio, namespace)
		}
	}
	stuck := maps.Clone(p.stuck)
	for _, integration := range p.integrations {
		if integration.blocked != "" {
			stuck[integration.blocked] += integration.usage[0]
		}
	}
	for reason, events := range stuck {
		set(stuckEvents, float64(events), reason)
	}
}

// Set counts an AlertEvent, or counts it anew.
func (p *PendingEvents) Set(event *v1alpha1.AlertEvent) {
	counted := pendingEvent{
		integration: event.Spec.IntegrationName,
		usage:       usage{1, int64(Size(event.Spec.Alerts)) + p.Cached.Removed(event)}, // as the API server stores it
		stuck:       clustercache.Stuck(event),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name := client.ObjectKeyFromObject(event)
	p.count(name, -1)
	p.events[name] = counted
	p.count(name, 1)
}

// Remove no longer counts an AlertEvent.
func (p *PendingEvents) Remove(event *v1alpha1.AlertEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := client.ObjectKeyFromObject(event)
	p.count(name, -1)
	delete(p.events, name)
}

// count adds an AlertEvent or subtracts it, if it is known.
func (p *PendingEvents) count(name types.NamespacedName, sign int64) {
	event, known := p.events[name]
	if !known {
		return
	}
	for i := range p.bounds {
		p.bounds[i].all.Add(name.Namespace, sign*event.usage[i])
	}
	if event.stuck != "" {
		p.stuck[event.stuck] += sign
		return
	}
	p.change(types.NamespacedName{Namespace: name.Namespace, Name: event.integration}, func(integration *pendingIntegration) {
		for i := range integration.usage {
			integration.usage[i] += sign * event.usage[i]
		}
	})
}

// SetIntegration takes note of an integration, whose AlertEvents drain unless it is blocked.
func (p *PendingEvents) SetIntegration(w *v1alpha1.WebhookIntegration) {
	p.setIntegration(w, true, integrations.Blocked(w))
}

// RemoveIntegration takes note of a deleted integration, whose AlertEvents no longer drain.
func (p *PendingEvents) RemoveIntegration(w *v1alpha1.WebhookIntegration) {
	p.setIntegration(w, false, "")
}

func (p *PendingEvents) setIntegration(w *v1alpha1.WebhookIntegration, exists bool, blocked string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change(client.ObjectKeyFromObject(w), func(i *pendingIntegration) { i.exists, i.blocked = exists, blocked })
}

// change changes the counts of an integration, and with them the part that can drain. It forgets a deleted integration
// without AlertEvents.
func (p *PendingEvents) change(name types.NamespacedName, change func(*pendingIntegration)) {
	integration := p.integrations[name]
	before := integration.draining()
	change(&integration)
	for i, now := range integration.draining() {
		p.bounds[i].draining.Add(name.Namespace, now-before[i])
	}
	if p.integrations[name] = integration; integration == (pendingIntegration{}) {
		delete(p.integrations, name)
	}
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
