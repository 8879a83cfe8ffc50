package capacity

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// bound is how much each namespace uses of a limit of AlertEvents, with those that can drain, and with all that wait.
//
//   - AlertEvents that can drain count towards the limit. One cannot drain if it is terminating or unreadable, if it has no
//     integration, or if the folds of its integration are blocked. So however many namespaces have AlertEvents that stay, the
//     others go on;
//   - all AlertEvents that wait count towards maxStuckFactor times the limit, to protect etcd.
//
// An AlertEvent that is settled for all its Incidents waits for nothing, but may stay for its idempotency key. It counts towards
// neither: package release bounds those, and they must not use up the place of alerts.
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

// eventUsage is a number of AlertEvents and their size in bytes.
type eventUsage [2]int64

// stuckReasons are the reasons of AlertEvents that are stuck by themselves, most important first.
var stuckReasons = [...]string{queue.StuckUnreadable, queue.StuckNotCached, queue.StuckTerminating}

type countedEvent struct {
	created     int64 // in seconds
	integration string
	usage       eventUsage
	stuck       string
	isSettled   bool     // for all its Incidents
	waiting     []uint64 // Incidents that wait for it
}

// countedIntegration counts the AlertEvents of an integration that wait. Those without an integration have one that does not
// exist.
type countedIntegration struct {
	usage   eventUsage               // of those that are not stuck by themselves
	stuck   [len(stuckReasons)]int64 // the others, by reason
	exists  bool
	blocked string // why its folds wait
}

func (i *countedIntegration) draining() eventUsage {
	if i.exists && i.blocked == "" {
		return i.usage
	}
	return eventUsage{}
}

// SetEvent counts an AlertEvent, or counts it anew.
func (c *Counts) SetEvent(event *v1alpha1.AlertEvent, _ bool) {
	mark, _ := queue.MarkOf(event)
	counted := countedEvent{
		created:     event.CreationTimestamp.Unix(),
		integration: event.Spec.IntegrationName,
		usage:       eventUsage{1, c.cached.StoredSize(event)},
		stuck:       queue.Stuck(event),
		waiting:     c.waitingFor(event, &mark),
	}
	counted.isSettled = mark.All && counted.stuck == ""
	c.replaceEvent(event, counted)
}

// RemoveEvent no longer counts an AlertEvent.
func (c *Counts) RemoveEvent(event *v1alpha1.AlertEvent) { c.replaceEvent(event, countedEvent{}) }

func (c *Counts) replaceEvent(event *v1alpha1.AlertEvent, counted countedEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := client.ObjectKeyFromObject(event)
	c.countEvent(name, c.events[name], -1)
	c.countEvent(name, counted, 1)
	if c.events[name] = counted; counted.usage == (eventUsage{}) {
		delete(c.events, name)
	}
}

func (c *Counts) countEvent(name types.NamespacedName, event countedEvent, sign int64) {
	if event.isSettled {
		return
	}
	for i := range c.bounds {
		c.bounds[i].all.Add(name.Namespace, sign*event.usage[i])
	}
	c.wait(name.Namespace, event.waiting, int(sign))
	owner := types.NamespacedName{Namespace: name.Namespace, Name: event.integration}
	c.changeIntegration(owner, func(integration *countedIntegration) {
		if at := slices.Index(stuckReasons[:], event.stuck); at >= 0 {
			integration.stuck[at] += sign
			return
		}
		for i := range integration.usage {
			integration.usage[i] += sign * event.usage[i]
		}
	})
}

// SetIntegration takes note of an integration, whose AlertEvents drain unless it is blocked.
func (c *Counts) SetIntegration(w *v1alpha1.WebhookIntegration, _ bool) {
	c.setIntegration(w, true, integrations.Blocked(w))
}

// RemoveIntegration takes note of a deleted integration, whose AlertEvents no longer drain.
func (c *Counts) RemoveIntegration(w *v1alpha1.WebhookIntegration) { c.setIntegration(w, false, "") }

func (c *Counts) setIntegration(w *v1alpha1.WebhookIntegration, exists bool, blocked string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changeIntegration(client.ObjectKeyFromObject(w), func(i *countedIntegration) { i.exists, i.blocked = exists, blocked })
}

// changeIntegration changes the counts of an integration, and with them the part that can drain. It forgets a deleted
// integration without AlertEvents.
func (c *Counts) changeIntegration(name types.NamespacedName, change func(*countedIntegration)) {
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

// Stuck returns the most important reason for which AlertEvents of an integration are stuck by themselves; empty if none is.
func (c *Counts) Stuck(integration types.NamespacedName) (reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, events := range c.integrations[integration].stuck {
		if events > 0 {
			return stuckReasons[i]
		}
	}
	return ""
}

// waits reports whether an AlertEvent waits for a fold. One that is terminating or unreadable would make the backlog look old for
// as long as it stays, and tocsin_alertevents_stuck tells of it.
func (e *countedEvent) waits() bool {
	return !e.isSettled && (e.stuck == "" || e.stuck == queue.StuckNotCached)
}

// pending returns the number of AlertEvents but canaries, and the age of the oldest one that waits for a fold; 0 if none does.
func (c *Counts) pending() (events int, oldest time.Duration) {
	now := c.clock.Now()
	for name, event := range c.events {
		if strings.HasPrefix(name.Name, v1alpha1.CanaryName) {
			continue
		}
		events++
		if event.waits() {
			oldest = max(oldest, now.Sub(time.Unix(event.created, 0)))
		}
	}
	return events, oldest
}
