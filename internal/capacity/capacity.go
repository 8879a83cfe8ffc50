// Package capacity counts what there is in the cluster by namespace: AlertEvents, Incidents that are not Resolved, and their
// bytes. Every replica counts them once, from one informer each. Ingest, the folds, the conditions of integrations and the
// metrics ask the same counts, so that none of them accepts what another one has no capacity for.
//
// Package fair divides each limit between the namespaces. A namespace never counts towards a limit with more than its share:
// whatever people create there by hand, the others go on.
package capacity

import (
	"cmp"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

const (
	// DefaultEvents bounds the number of AlertEvents. Together with queue.MaxPendingBytes, it keeps
	// them from filling etcd: an etcd that is out of space accepts no writes, so they could not be drained either.
	DefaultEvents = 20_000

	// DefaultIncidents keeps Incidents from filling the memory of the replicas. A replica caches every Incident that is not
	// Resolved, about 12 KiB each: near 85,000, its 1 GiB is used up.
	DefaultIncidents = 50_000

	// maxStuckFactor is how many times the limits may be used when AlertEvents that cannot drain count as well. With the reserve
	// of fair.Limit that is three times the limits at the most: 768 MiB of etcd's 2 GiB.
	maxStuckFactor = 2

	// slackPart is the part of the limit of Incidents, one in so many, that the folds may open beyond it; at least minSlack in a
	// namespace, at most a quarter of the limit. Each replica counts at once what it accepts itself, and what the others accept when
	// its watch shows it: so all together accept a few more than one of them would, and nobody would be told of those.
	slackPart = 20
	minSlack  = 50

	// maxOpenBytes is the limit of what the cache has of Incidents that are not Resolved. Beyond its share of it, the content of a
	// namespace's alerts is not kept.
	maxOpenBytes = 256 << 20

	// reservationTime is how long the alerts of a request count as being stored: commit.Timeout until the write has ended, and two
	// seconds until the informer shows the AlertEvent, unless the watch has stalled.
	reservationTime = 7 * time.Second

	// reportedRatio is how much of its share a namespace has to use for its metrics to be reported, so that
	// their number does not grow with the number of namespaces.
	reportedRatio = 0.5
)

// Limits bound what there may be in the cluster. Zero values stand for the defaults.
type Limits struct {
	Events    int     // that wait to be folded
	Incidents int     // that are not Resolved; as many Resolved ones are kept
	Share     float64 // the part of each that one namespace may use
}

func (l Limits) withDefaults() Limits {
	return Limits{
		cmp.Or(l.Events, DefaultEvents), cmp.Or(l.Incidents, DefaultIncidents), cmp.Or(l.Share, fair.DefaultShare),
	}
}

// Counts counts the objects in the cache of a replica, as the informers report them. Of each object it keeps how it was counted:
// an interrupted watch may report a deleted object in another state than the one that was counted last.
type Counts struct {
	// Hidden knows the objects that the cache does not show; it is a *clustercache.Hidden. Nil: the cache shows all.
	Hidden interface {
		In(namespace string) (events, integrations int)

		// Each tells how many objects of a kind a namespace has of which there are any, and before that of each kind 0 of "".
		Each(use func(kind, namespace string, objects int))
	}

	cached *queue.Cached // knows what the cache lacks of AlertEvents; may be nil
	clock  queue.Clock
	seed   maphash.Seed                // of the names of Incidents
	synced []toolscache.InformerSynced // none before Follow

	mu           sync.Mutex
	bounds       [2]bound // of the number and of the size of AlertEvents, as eventUsage has them
	events       map[types.NamespacedName]countedEvent
	integrations map[types.NamespacedName]countedIntegration
	incidents    map[string]map[uint64]countedIncident // by namespace, and by the hash of the name
	expected     fair.Budget[string]                   // Incidents that are open or for which alerts wait
	open         Usages                                // Incidents that are open
	groups       map[incidentGroup]int
	muted        int // Incidents that a maintenance window mutes

	resolved atomic.Pointer[func() (incidents int64, ok bool)] // see PublishResolved; nil on replicas that do not lead
}

// New returns counts of nothing. cached knows what the cache lacks of AlertEvents; it may be nil.
func New(limits Limits, cached *queue.Cached, clock queue.Clock) *Counts {
	limits = limits.withDefaults()
	incidents := fair.Limit{All: int64(limits.Incidents), Share: limits.Share}
	c := &Counts{
		cached: cached, clock: clock, seed: maphash.MakeSeed(),
		bounds:       [2]bound{newBound(int64(limits.Events), limits.Share), newBound(queue.MaxPendingBytes, limits.Share)},
		events:       map[types.NamespacedName]countedEvent{},
		integrations: map[types.NamespacedName]countedIntegration{},
		incidents:    map[string]map[uint64]countedIncident{},
		expected:     fair.Budget[string]{Limit: incidents, Capped: true},
		open:         NewUsages(withSlack(incidents), maxOpenBytes),
		groups:       map[incidentGroup]int{},
	}
	for _, severity := range v1alpha1.Severities() { // those without Incidents are reported too
		c.groups[incidentGroup{v1alpha1.IncidentOpen, severity}] = 0
	}
	return c
}

// withSlack returns how many Incidents the folds may open, by the limit of ingest.
func withSlack(limit fair.Limit) fair.Limit {
	limit.All += min(max(limit.All/slackPart, int64(minSlack/limit.Share)), limit.All/4)
	return limit
}

// Follow has the counts follow a manager's cache.
func (c *Counts) Follow(objects cache.Informers) error {
	integrations, err1 := informers.Feed(objects, &v1alpha1.WebhookIntegration{}, c.SetIntegration, c.RemoveIntegration)
	events, err2 := informers.Feed(objects, &v1alpha1.AlertEvent{}, c.SetEvent, c.RemoveEvent)
	incidents, err3 := informers.Feed(objects, &v1alpha1.Incident{}, c.SetIncident, c.RemoveIncident)
	c.synced = []toolscache.InformerSynced{integrations, events, incidents}
	return errors.Join(err1, err2, err3)
}

// Synced reports whether the counts have all objects that existed at the start.
func (c *Counts) Synced() bool {
	return c.synced != nil && !slices.ContainsFunc(c.synced, func(synced toolscache.InformerSynced) bool { return !synced() })
}

// IncidentLimit returns the limit of Incidents, by which ingest goes.
func (c *Counts) IncidentLimit() fair.Limit { return c.expected.Limit }

// HiddenIn returns how many objects of a namespace the cache does not show.
func (c *Counts) HiddenIn(namespace string) (events, integrations int) {
	if c.Hidden == nil {
		return 0, 0
	}
	return c.Hidden.In(namespace)
}

// Hides reports whether the cache does not show all AlertEvents of a namespace.
func (c *Counts) Hides(namespace string) bool {
	events, _ := c.HiddenIn(namespace)
	return events > 0
}

// Full returns why a namespace has no capacity: v1alpha1.ReasonQueueFull for any alert, which ends by itself as alerts are
// folded, v1alpha1.ReasonIncidentLimit for alerts that need a new Incident; empty if it has capacity.
func (c *Counts) Full(namespace string) (reason string) {
	hides := c.Hides(namespace)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case hides, c.bounds[0].isFull(namespace), c.bounds[1].isFull(namespace):
		return v1alpha1.ReasonQueueFull
	case !c.expected.Allows(namespace):
		return v1alpha1.ReasonIncidentLimit
	}
	return ""
}
