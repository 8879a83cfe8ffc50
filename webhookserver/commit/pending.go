package commit

import (
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
// replica have heard, and says whether a namespace may add more. There are two bounds, and fair.Limit divides
// each between the namespaces:
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

	eventLimit fair.Limit
	byteLimit  fair.Limit

	mu         sync.Mutex
	events     map[types.NamespacedName]pendingEvent
	namespaces map[string]*pendingNamespace
	busy       int   // how many of namespaces have AlertEvents
	all        usage // of all namespaces, whole
	draining   usage // of all namespaces, each with its share at most
}

// usage is a number of AlertEvents and their size.
type usage struct{ events, bytes int64 }

func (u *usage) add(other usage, sign int64) {
	u.events += sign * other.events
	u.bytes += sign * other.bytes
}

// pendingEvent is an AlertEvent as it was counted. Later versions of it may look different.
type pendingEvent struct {
	integration string
	size        usage
	stuck       string
}

// pendingNamespace counts the AlertEvents of a namespace.
type pendingNamespace struct {
	all          usage
	draining     usage                          // the part of all that can drain
	stuck        map[string]int64               // AlertEvents that are stuck by themselves, by reason
	integrations map[string]*pendingIntegration // by name, "" for AlertEvents without one
}

// pendingIntegration counts the AlertEvents of an integration that are not stuck by themselves.
type pendingIntegration struct {
	usage
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
		eventLimit: fair.Limit{All: int64(limit), Share: share},
		byteLimit:  fair.Limit{All: maxPendingBytes, Share: share},
		events:     map[types.NamespacedName]pendingEvent{},
		namespaces: map[string]*pendingNamespace{},
	}
}

// IsFull says whether no AlertEvent may be added to the namespace. It ends by itself as alerts are folded.
func (p *PendingEvents) IsFull(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var own usage
	count := p.busy
	if pending := p.namespaces[namespace]; pending != nil {
		own = pending.all
	}
	if own.events == 0 {
		count++
	}
	allowed := func(total usage, factor int64) bool {
		events, size := p.eventLimit, p.byteLimit
		events.All *= factor
		size.All *= factor
		return events.Allows(own.events, total.events, count) && size.Allows(own.bytes, total.bytes, count)
	}
	return !allowed(p.draining, 1) || !allowed(p.all, maxStuckFactor)
}

// report sets the gauges of the AlertEvents.
func (p *PendingEvents) report(set setGauge) {
	p.mu.Lock()
	defer p.mu.Unlock()
	events := max(float64(p.draining.events), float64(p.all.events)/maxStuckFactor)
	bytes := max(float64(p.draining.bytes), float64(p.all.bytes)/maxStuckFactor)
	set(backlogRatio, max(events/float64(p.eventLimit.All), bytes/float64(p.byteLimit.All)))
	stuck := map[string]int64{
		clustercache.StuckTerminating: 0, clustercache.StuckUnreadable: 0, v1alpha1.ReasonQuotaExceeded: 0,
		v1alpha1.ReasonForbidden: 0, v1alpha1.ReasonNamespaceTerminating: 0, v1alpha1.ReasonIncidentLimit: 0,
	}
	for namespace, own := range p.namespaces {
		ratio := max(float64(own.all.events)/float64(p.eventLimit.Own()), float64(own.all.bytes)/float64(p.byteLimit.Own()))
		if ratio >= reportedRatio {
			set(namespaceBacklogRatio, ratio, namespace)
		}
		for reason, events := range own.stuck {
			stuck[reason] += events
		}
		for _, integration := range own.integrations {
			if integration.blocked != "" {
				stuck[integration.blocked] += integration.events
			}
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
		size:        usage{events: 1, bytes: p.storedSize(event)},
		stuck:       clustercache.Stuck(event),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name := client.ObjectKeyFromObject(event)
	before := p.events[name]
	if before == counted {
		return
	}
	p.events[name] = counted
	p.update(name.Namespace, func(own *pendingNamespace) {
		own.count(before, -1)
		own.count(counted, 1)
	})
}

// Remove no longer counts an AlertEvent.
func (p *PendingEvents) Remove(event *v1alpha1.AlertEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := client.ObjectKeyFromObject(event)
	before := p.events[name]
	delete(p.events, name)
	p.update(name.Namespace, func(own *pendingNamespace) { own.count(before, -1) })
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
	p.update(w.Namespace, func(own *pendingNamespace) {
		own.change(w.Name, func(i *pendingIntegration) { i.exists, i.blocked = exists, blocked })
	})
}

// update changes the counts of a namespace and brings the totals up to date.
func (p *PendingEvents) update(namespace string, change func(*pendingNamespace)) {
	own := p.namespaces[namespace]
	if own == nil {
		own = &pendingNamespace{stuck: map[string]int64{}, integrations: map[string]*pendingIntegration{}}
		p.namespaces[namespace] = own
	}
	p.addToTotals(own, -1)
	change(own)
	p.addToTotals(own, 1)
	if own.all.events == 0 && len(own.integrations) == 0 {
		delete(p.namespaces, namespace)
	}
}

func (p *PendingEvents) addToTotals(own *pendingNamespace, sign int64) {
	p.all.add(own.all, sign)
	p.draining.add(usage{
		events: min(own.draining.events, p.eventLimit.Own()),
		bytes:  min(own.draining.bytes, p.byteLimit.Own()),
	}, sign)
	if own.all.events > 0 {
		p.busy += int(sign)
	}
}

// count adds an AlertEvent or subtracts it. The zero event counts nothing.
func (n *pendingNamespace) count(event pendingEvent, sign int64) {
	n.all.add(event.size, sign)
	if event.stuck != "" {
		n.stuck[event.stuck] += sign
		return
	}
	n.change(event.integration, func(i *pendingIntegration) { i.add(event.size, sign) })
}

// change changes the counts of an integration, and with them the part that can drain. It forgets a deleted integration
// without AlertEvents.
func (n *pendingNamespace) change(name string, change func(*pendingIntegration)) {
	integration := n.integrations[name]
	if integration == nil {
		integration = &pendingIntegration{}
		n.integrations[name] = integration
	}
	n.draining.add(integration.draining(), -1)
	change(integration)
	n.draining.add(integration.draining(), 1)
	if !integration.exists && integration.events == 0 {
		delete(n.integrations, name)
	}
}

// storedSize returns the size in bytes of the AlertEvent as the API server stores it, never less.
func (p *PendingEvents) storedSize(event *v1alpha1.AlertEvent) int64 {
	return int64(Size(event.Spec.Alerts)) + p.Cached.Removed(event)
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
