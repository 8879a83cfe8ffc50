package webhookserver

import (
	"cmp"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=create;get;list;watch

// pendingCounter knows how many AlertEvents each namespace has and about how large they are together, as far
// as the informers of this replica have heard, and says whether a namespace may add more. There are two
// bounds, and v1alpha1.Capacity divides each between the namespaces:
//
//   - what can drain counts towards the limit. A namespace counts there with at most its share, and with
//     nothing that cannot drain: AlertEvents that are terminating, unreadable or quarantined, those of an
//     integration whose folds are blocked, and those of no integration. So however many namespaces have
//     AlertEvents that stay, the others go on;
//   - everything counts towards maxStuckFactor times the limit, for etcd's sake.
//
// All of it can be seen on the objects, so that every replica comes to the same answer.
type pendingCounter struct {
	maxEvents int
	share     float64

	mu         sync.Mutex
	events     map[types.NamespacedName]countedEvent
	namespaces map[string]*namespaceQueue
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

// countedEvent is what an AlertEvent was counted as. Later versions of it may look different.
type countedEvent struct {
	integration string
	size        usage
	stuck       string
}

// namespaceQueue is what a namespace has in the queue.
type namespaceQueue struct {
	all          usage
	draining     usage                        // what of it can drain
	counted      usage                        // what of that counts in pendingCounter.draining
	stuck        map[string]int64             // AlertEvents that are stuck by themselves, by reason
	integrations map[string]*integrationQueue // by name, "" for AlertEvents without one
}

// integrationQueue is what an integration has in the queue and is not stuck by itself.
type integrationQueue struct {
	usage
	exists  bool
	blocked string // why its folds wait
}

func newPendingCounter(maxEvents int, share float64) *pendingCounter {
	return &pendingCounter{
		maxEvents:  maxEvents,
		share:      share,
		events:     map[types.NamespacedName]countedEvent{},
		namespaces: map[string]*namespaceQueue{},
	}
}

func (p *pendingCounter) eventCapacity() v1alpha1.Capacity {
	return v1alpha1.Capacity{Limit: int64(p.maxEvents), Share: p.share}
}

func (p *pendingCounter) byteCapacity() v1alpha1.Capacity {
	return v1alpha1.Capacity{Limit: maxPendingBytes, Share: p.share}
}

// refuses says whether no AlertEvent of the namespace may be added. It ends by itself as alerts are folded.
func (p *pendingCounter) refuses(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isFull(namespace)
}

func (p *pendingCounter) isFull(namespace string) bool {
	var own usage
	count := p.busy
	if queue := p.namespaces[namespace]; queue != nil {
		own = queue.all
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

// ratio is how full the queue is, of its bounds the one that is nearest: from 1 on, namespaces that hold much
// of it are refused.
func (p *pendingCounter) ratio() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := float64(p.maxEvents)
	return max(
		float64(p.draining.events)/limit, float64(p.draining.bytes)/maxPendingBytes,
		float64(p.all.events)/(maxStuckFactor*limit), float64(p.all.bytes)/(maxStuckFactor*maxPendingBytes),
	)
}

// fullest returns how full the share of each namespace is that has used half of its share or more.
func (p *pendingCounter) fullest() map[string]float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ratios := map[string]float64{}
	for namespace, queue := range p.namespaces {
		ratio := max(
			float64(queue.all.events)/float64(p.eventCapacity().Own()),
			float64(queue.all.bytes)/float64(p.byteCapacity().Own()),
		)
		if ratio >= reportedRatio {
			ratios[namespace] = ratio
		}
	}
	return ratios
}

// stuck counts the AlertEvents that cannot drain by reason.
func (p *pendingCounter) stuck() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := map[string]int64{}
	for _, reason := range stuckReasons {
		counts[reason] = 0
	}
	for _, queue := range p.namespaces {
		for reason, events := range queue.stuck {
			counts[reason] += events
		}
		for _, integration := range queue.integrations {
			if integration.blocked != "" {
				counts[integration.blocked] += integration.events
			}
		}
	}
	return counts
}

// stuckReasons are the reasons that stuck tells of.
var stuckReasons = []string{
	v1alpha1.StuckTerminating, v1alpha1.StuckUnreadable, v1alpha1.StuckQuarantined,
	v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonForbidden, v1alpha1.ReasonNamespaceTerminating, v1alpha1.ReasonIncidentLimit,
}

// handler feeds the counter from the informer of the AlertEvents.
func (p *pendingCounter) handler() toolscache.ResourceEventHandler {
	set := func(obj any) {
		if event, ok := obj.(*v1alpha1.AlertEvent); ok {
			p.set(event)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if event, ok := undeleted(obj).(*v1alpha1.AlertEvent); ok {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.drop(nameOf(event))
			}
		},
	}
}

// integrations feeds the counter from the informer of the WebhookIntegrations.
func (p *pendingCounter) integrations() toolscache.ResourceEventHandler {
	set := func(obj any) {
		if integration, ok := obj.(*v1alpha1.WebhookIntegration); ok {
			p.setIntegration(nameOf(integration), true, integration.Blocked())
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if integration, ok := undeleted(obj).(*v1alpha1.WebhookIntegration); ok {
				p.setIntegration(nameOf(integration), false, "")
			}
		},
	}
}

// undeleted is the object that an informer reports as deleted.
func undeleted(obj any) any {
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return obj
}

// set counts an AlertEvent, or counts it anew.
func (p *pendingCounter) set(event *v1alpha1.AlertEvent) {
	counted := countedEvent{
		integration: event.Spec.IntegrationName,
		size:        usage{events: 1, bytes: storedSize(event)},
		stuck:       event.Stuck(),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name := nameOf(event)
	if p.events[name] == counted {
		return
	}
	p.drop(name)
	p.events[name] = counted
	p.count(name.Namespace, counted, 1)
}

func (p *pendingCounter) drop(name types.NamespacedName) {
	if counted, ok := p.events[name]; ok {
		delete(p.events, name)
		p.count(name.Namespace, counted, -1)
	}
}

// count adds an AlertEvent to its namespace and to the totals, or takes it away.
func (p *pendingCounter) count(namespace string, event countedEvent, sign int64) {
	queue := p.queue(namespace)
	p.all.add(event.size, sign)
	if queue.all.events == 0 {
		p.busy++
	}
	queue.all.add(event.size, sign)
	if queue.all.events == 0 {
		p.busy--
	}
	if event.stuck != "" {
		queue.stuck[event.stuck] += sign
		p.tidy(namespace, queue)
		return
	}
	p.change(namespace, event.integration, func(integration *integrationQueue) { integration.add(event.size, sign) })
}

func (p *pendingCounter) setIntegration(name types.NamespacedName, exists bool, blocked string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change(name.Namespace, name.Name, func(integration *integrationQueue) {
		integration.exists, integration.blocked = exists, blocked
	})
}

// change changes what an integration has in the queue, and with it what can drain.
func (p *pendingCounter) change(namespace, name string, how func(*integrationQueue)) {
	queue := p.queue(namespace)
	integration := queue.integrations[name]
	if integration == nil {
		integration = &integrationQueue{}
		queue.integrations[name] = integration
	}
	queue.draining.add(integration.draining(), -1)
	how(integration)
	queue.draining.add(integration.draining(), 1)
	if !integration.exists && integration.events == 0 {
		delete(queue.integrations, name)
	}
	p.tidy(namespace, queue)
}

// draining is what of the integration's AlertEvents can drain.
func (q *integrationQueue) draining() usage {
	if !q.exists || q.blocked != "" {
		return usage{}
	}
	return q.usage
}

func (p *pendingCounter) queue(namespace string) *namespaceQueue {
	queue := p.namespaces[namespace]
	if queue == nil {
		queue = &namespaceQueue{stuck: map[string]int64{}, integrations: map[string]*integrationQueue{}}
		p.namespaces[namespace] = queue
	}
	return queue
}

// tidy brings the total up to date with the namespace, and forgets a namespace that has nothing.
func (p *pendingCounter) tidy(namespace string, queue *namespaceQueue) {
	counted := usage{
		events: min(queue.draining.events, p.eventCapacity().Own()),
		bytes:  min(queue.draining.bytes, p.byteCapacity().Own()),
	}
	p.draining.add(queue.counted, -1)
	p.draining.add(counted, 1)
	queue.counted = counted
	if queue.all.events == 0 && len(queue.integrations) == 0 {
		delete(p.namespaces, namespace)
	}
}

func nameOf(object interface {
	GetNamespace() string
	GetName() string
}) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// storedSize is the size in bytes of the AlertEvent as the API server stores it, never less.
func storedSize(event *v1alpha1.AlertEvent) int64 {
	return cmp.Or(int64(alertsSize(event.Spec.Alerts)), int64(len(event.Spec.PackedAlerts))) + event.CondensedBytes()
}

// alertsSize is the size in bytes of the alerts as the API server stores them, never less.
func alertsSize(alerts []v1alpha1.Alert) int {
	const overhead = 1 << 9 // id, incidentName and status with their field names
	size := 0
	for i := range alerts {
		size += overhead + 6*len(alerts[i].DedupKey) + alerts[i].EncodedSize()
	}
	return size
}
