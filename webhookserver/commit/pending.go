package commit

import (
	"cmp"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=create;get;list;watch

// PendingEvents counts the AlertEvents of each namespace and their approximate size, as far as the informers of this
// replica have heard, and says whether a namespace may add more. There are two bounds, and v1alpha1.Capacity divides
// each between the namespaces:
//
//   - AlertEvents that can drain count towards the limit. A namespace counts there with at most its share, and with
//     nothing that cannot drain: AlertEvents that are terminating, unreadable or quarantined, those of an
//     integration whose folds are blocked, and those of no integration. So however many namespaces have
//     AlertEvents that stay, the others go on;
//   - all AlertEvents count towards maxStuckFactor times the limit, to protect etcd.
//
// All of it can be seen on the objects, so that every replica comes to the same answer.
type PendingEvents struct {
	limit int64 // of AlertEvents
	share float64

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
	counted      usage                          // the part of draining that counts in PendingEvents.draining
	stuck        map[string]int64               // AlertEvents that are stuck by themselves, by reason
	integrations map[string]*pendingIntegration // by name, "" for AlertEvents without one
}

// pendingIntegration counts the AlertEvents of an integration that are not stuck by themselves.
type pendingIntegration struct {
	usage
	exists  bool
	blocked string // why its folds wait
}

// NewPendingEvents makes a counter with a limit of AlertEvents, of which a namespace may have a share.
func NewPendingEvents(limit int, share float64) *PendingEvents {
	return &PendingEvents{
		limit:      int64(limit),
		share:      share,
		events:     map[types.NamespacedName]pendingEvent{},
		namespaces: map[string]*pendingNamespace{},
	}
}

func (p *PendingEvents) eventCapacity() v1alpha1.Capacity {
	return v1alpha1.Capacity{Limit: p.limit, Share: p.share}
}

func (p *PendingEvents) byteCapacity() v1alpha1.Capacity {
	return v1alpha1.Capacity{Limit: maxPendingBytes, Share: p.share}
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
	events, size := p.eventCapacity(), p.byteCapacity()
	if !events.Allows(own.events, p.draining.events, count) || !size.Allows(own.bytes, p.draining.bytes, count) {
		return true
	}
	events.Limit *= maxStuckFactor
	size.Limit *= maxStuckFactor
	return !events.Allows(own.events, p.all.events, count) || !size.Allows(own.bytes, p.all.bytes, count)
}

// ratio returns how much of the bound is used that is the nearest: from 1 on, namespaces that hold much are refused.
func (p *PendingEvents) ratio() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := float64(p.limit)
	return max(
		float64(p.draining.events)/limit, float64(p.draining.bytes)/maxPendingBytes,
		float64(p.all.events)/(maxStuckFactor*limit), float64(p.all.bytes)/(maxStuckFactor*maxPendingBytes),
	)
}

// namespaceRatios returns how much of its share each namespace uses, for those that use at least reportedRatio of it.
func (p *PendingEvents) namespaceRatios() map[string]float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ratios := map[string]float64{}
	for namespace, pending := range p.namespaces {
		ratio := max(
			float64(pending.all.events)/float64(p.eventCapacity().Own()),
			float64(pending.all.bytes)/float64(p.byteCapacity().Own()),
		)
		if ratio >= reportedRatio {
			ratios[namespace] = ratio
		}
	}
	return ratios
}

// stuck counts the AlertEvents that cannot drain by reason.
func (p *PendingEvents) stuck() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := map[string]int64{
		v1alpha1.StuckTerminating: 0, v1alpha1.StuckUnreadable: 0, v1alpha1.StuckQuarantined: 0, v1alpha1.ReasonQuotaExceeded: 0,
		v1alpha1.ReasonForbidden: 0, v1alpha1.ReasonNamespaceTerminating: 0, v1alpha1.ReasonIncidentLimit: 0,
	}
	for _, pending := range p.namespaces {
		for reason, events := range pending.stuck {
			counts[reason] += events
		}
		for _, integration := range pending.integrations {
			if integration.blocked != "" {
				counts[integration.blocked] += integration.events
			}
		}
	}
	return counts
}

// Set counts an AlertEvent, or counts it anew.
func (p *PendingEvents) Set(event *v1alpha1.AlertEvent) {
	counted := pendingEvent{
		integration: event.Spec.IntegrationName,
		size:        usage{events: 1, bytes: storedSize(event)},
		stuck:       event.Stuck(),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name := client.ObjectKeyFromObject(event)
	if p.events[name] == counted {
		return
	}
	p.remove(name)
	p.events[name] = counted
	p.count(name.Namespace, counted, 1)
}

// Remove no longer counts an AlertEvent.
func (p *PendingEvents) Remove(event *v1alpha1.AlertEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(client.ObjectKeyFromObject(event))
}

func (p *PendingEvents) remove(name types.NamespacedName) {
	if counted, ok := p.events[name]; ok {
		delete(p.events, name)
		p.count(name.Namespace, counted, -1)
	}
}

// SetIntegration takes note of an integration, whose AlertEvents drain unless it is blocked.
func (p *PendingEvents) SetIntegration(w *v1alpha1.WebhookIntegration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.update(w.Namespace, w.Name, func(integration *pendingIntegration) {
		integration.exists, integration.blocked = true, w.Blocked()
	})
}

// RemoveIntegration takes note of a deleted integration, whose AlertEvents no longer drain.
func (p *PendingEvents) RemoveIntegration(w *v1alpha1.WebhookIntegration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.update(w.Namespace, w.Name, func(integration *pendingIntegration) {
		integration.exists, integration.blocked = false, ""
	})
}

// count adds an AlertEvent to its namespace and to the totals, or subtracts it.
func (p *PendingEvents) count(namespace string, event pendingEvent, sign int64) {
	pending := p.namespace(namespace)
	p.all.add(event.size, sign)
	if pending.all.events == 0 {
		p.busy++
	}
	pending.all.add(event.size, sign)
	if pending.all.events == 0 {
		p.busy--
	}
	if event.stuck != "" {
		pending.stuck[event.stuck] += sign
		p.settle(namespace, pending)
		return
	}
	p.update(namespace, event.integration, func(integration *pendingIntegration) { integration.add(event.size, sign) })
}

// update changes an integration, and with it the usage that can drain.
func (p *PendingEvents) update(namespace, name string, change func(*pendingIntegration)) {
	pending := p.namespace(namespace)
	integration := pending.integrations[name]
	if integration == nil {
		integration = &pendingIntegration{}
		pending.integrations[name] = integration
	}
	pending.draining.add(integration.draining(), -1)
	change(integration)
	pending.draining.add(integration.draining(), 1)
	if !integration.exists && integration.events == 0 {
		delete(pending.integrations, name)
	}
	p.settle(namespace, pending)
}

// draining returns the usage of the integration if its AlertEvents can drain.
func (i *pendingIntegration) draining() usage {
	if !i.exists || i.blocked != "" {
		return usage{}
	}
	return i.usage
}

func (p *PendingEvents) namespace(name string) *pendingNamespace {
	pending := p.namespaces[name]
	if pending == nil {
		pending = &pendingNamespace{stuck: map[string]int64{}, integrations: map[string]*pendingIntegration{}}
		p.namespaces[name] = pending
	}
	return pending
}

// settle brings the total up to date with the namespace, and forgets an empty namespace.
func (p *PendingEvents) settle(name string, pending *pendingNamespace) {
	counted := usage{
		events: min(pending.draining.events, p.eventCapacity().Own()),
		bytes:  min(pending.draining.bytes, p.byteCapacity().Own()),
	}
	p.draining.add(pending.counted, -1)
	p.draining.add(counted, 1)
	pending.counted = counted
	if pending.all.events == 0 && len(pending.integrations) == 0 {
		delete(p.namespaces, name)
	}
}

// storedSize returns the size in bytes of the AlertEvent as the API server stores it, never less.
func storedSize(event *v1alpha1.AlertEvent) int64 {
	return cmp.Or(int64(Size(event.Spec.Alerts)), int64(len(event.Spec.PackedAlerts))) + event.CondensedBytes()
}

// Size returns the size in bytes of the alerts as the API server stores them, never less.
func Size(alerts []v1alpha1.Alert) int {
	const overhead = 1 << 9 // id, incidentName and status with their field names
	size := 0
	for i := range alerts {
		size += overhead + 6*len(alerts[i].DedupKey) + alerts[i].EncodedSize()
	}
	return size
}
