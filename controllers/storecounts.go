package controllers

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// storeCounts counts the AlertEvents and Incidents in the cache, as the informers tell of them, so that a scrape reads
// a few numbers however many objects there are. It remembers of each object how it was counted: what a watch that was
// interrupted tells of a deleted object may be older than what was counted last.
type storeCounts struct {
	now func() time.Time

	mu        sync.Mutex
	incidents map[types.NamespacedName]incidentGroup
	groups    map[incidentGroup]int
	events    map[types.NamespacedName]*countedEvent
	ordinary  eventHeap // AlertEvents that are to be folded soon
	keyed     eventHeap // those that may be there for their idempotency keys alone

	quarantined int
}

// incidentGroup is what Incidents are counted by.
type incidentGroup struct {
	state    v1alpha1.IncidentState
	severity v1alpha1.Severity
}

// countedEvent is an AlertEvent as it was counted.
type countedEvent struct {
	created     time.Time
	quarantined bool
	heap        *eventHeap // nil when its age does not count
	index       int        // in the heap
}

func newStoreCounts(now func() time.Time) *storeCounts {
	return &storeCounts{
		now:       now,
		incidents: map[types.NamespacedName]incidentGroup{},
		groups:    map[incidentGroup]int{},
		events:    map[types.NamespacedName]*countedEvent{},
	}
}

// handler feeds the counts from an informer.
func (c *storeCounts) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    c.set,
		UpdateFunc: func(_, object any) { c.set(object) },
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			c.unset(object)
		},
	}
}

// set counts an object as it is now.
func (c *storeCounts) set(object any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch object := object.(type) {
	case *v1alpha1.Incident:
		key := client.ObjectKeyFromObject(object)
		c.dropIncident(key)
		if object.Status.State != "" {
			group := incidentGroup{object.Status.State, object.Status.Alert.Severity}
			c.incidents[key] = group
			c.groups[group]++
		}
	case *v1alpha1.AlertEvent:
		key := client.ObjectKeyFromObject(object)
		c.dropEvent(key)
		c.addEvent(key, object)
	}
}

// unset stops counting an object.
func (c *storeCounts) unset(object any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch object := object.(type) {
	case *v1alpha1.Incident:
		c.dropIncident(client.ObjectKeyFromObject(object))
	case *v1alpha1.AlertEvent:
		c.dropEvent(client.ObjectKeyFromObject(object))
	}
}

func (c *storeCounts) dropIncident(key types.NamespacedName) {
	group, ok := c.incidents[key]
	if !ok {
		return
	}
	delete(c.incidents, key)
	if c.groups[group]--; c.groups[group] == 0 {
		delete(c.groups, group)
	}
}

func (c *storeCounts) addEvent(key types.NamespacedName, event *v1alpha1.AlertEvent) {
	_, quarantined := event.Labels[v1alpha1.QuarantineLabel]
	counted := &countedEvent{created: event.CreationTimestamp.Time, quarantined: quarantined}
	switch {
	case quarantined:
		c.quarantined++
	case v1alpha1.IsKeyedEventName(event.Name):
		counted.heap = &c.keyed
	default:
		counted.heap = &c.ordinary
	}
	if counted.heap != nil {
		heap.Push(counted.heap, counted)
	}
	c.events[key] = counted
}

func (c *storeCounts) dropEvent(key types.NamespacedName) {
	counted := c.events[key]
	if counted == nil {
		return
	}
	delete(c.events, key)
	if counted.quarantined {
		c.quarantined--
	}
	if counted.heap != nil {
		heap.Remove(counted.heap, counted.index)
	}
}

// oldestAge is the age of the oldest AlertEvent that waits to be folded, 0 without any.
func (c *storeCounts) oldestAge() time.Duration {
	now, oldest := c.now(), time.Duration(0)
	if len(c.ordinary) > 0 {
		oldest = max(0, now.Sub(c.ordinary[0].created))
	}
	if len(c.keyed) > 0 {
		if age := now.Sub(c.keyed[0].created); age >= keyedLinger+time.Minute {
			oldest = max(oldest, age)
		}
	}
	return oldest
}

// eventHeap has the oldest AlertEvent at its head.
type eventHeap []*countedEvent

// Len implements heap.Interface.
func (h eventHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h eventHeap) Less(i, j int) bool { return h[i].created.Before(h[j].created) }

// Swap implements heap.Interface.
func (h eventHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *eventHeap) Push(x any) {
	if event, ok := x.(*countedEvent); ok {
		event.index = len(*h)
		*h = append(*h, event)
	}
}

// Pop implements heap.Interface.
func (h *eventHeap) Pop() any {
	old := *h
	last := len(old) - 1
	event := old[last]
	old[last] = nil
	*h = old[:last]
	return event
}

// storeCollector reports the counts of the manager that runs. Of several managers in one process, that is the one that
// started first, until it stops.
type storeCollector struct {
	pending, oldestAge, quarantined, incidents *prometheus.Desc

	source atomic.Pointer[storeSource]
}

// storeSource is what a storeCollector reports.
type storeSource struct {
	counts *storeCounts
	synced func() bool
}

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.pending
	descs <- c.oldestAge
	descs <- c.quarantined
	descs <- c.incidents
}

// Collect implements prometheus.Collector. Until the cache is filled there is nothing to say.
func (c *storeCollector) Collect(metrics chan<- prometheus.Metric) {
	source := c.source.Load()
	if source == nil || !source.synced() {
		return
	}
	counts := source.counts
	counts.mu.Lock()
	defer counts.mu.Unlock()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(c.pending, float64(len(counts.events)))
	gauge(c.oldestAge, counts.oldestAge().Seconds())
	gauge(c.quarantined, float64(counts.quarantined))
	for _, group := range incidentGroups(counts.groups) {
		gauge(c.incidents, float64(counts.groups[group]), string(group.state), string(group.severity))
	}
}

// incidentGroups are all groups that are counted: those there may be, and those there are.
func incidentGroups(counts map[incidentGroup]int) []incidentGroup {
	var groups []incidentGroup
	known := map[incidentGroup]bool{}
	for _, state := range []v1alpha1.IncidentState{v1alpha1.IncidentOpen, v1alpha1.IncidentResolved} {
		for _, severity := range []v1alpha1.Severity{
			v1alpha1.SeverityCritical, v1alpha1.SeverityError, v1alpha1.SeverityWarning, v1alpha1.SeverityInfo,
		} {
			group := incidentGroup{state, severity}
			known[group] = true
			groups = append(groups, group)
		}
	}
	for group := range counts {
		if !known[group] {
			groups = append(groups, group)
		}
	}
	return groups
}

// observeStore has the manager's informers feed the metrics as long as the manager runs.
func observeStore(mgr ctrl.Manager, clock Clock) error {
	counts := newStoreCounts(clock.Now)
	var synced []func() bool
	for _, object := range []client.Object{&v1alpha1.AlertEvent{}, &v1alpha1.Incident{}} {
		informer, err := mgr.GetCache().GetInformer(context.Background(), object)
		if err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
		registration, err := informer.AddEventHandler(counts.handler())
		if err != nil {
			return fmt.Errorf("listening to the informer of %T: %w", object, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	source := &storeSource{counts: counts, synced: func() bool { return synced[0]() && synced[1]() }}
	return mgr.Add(observation{source})
}

// observation reports a source as long as its manager runs, on every replica.
type observation struct{ source *storeSource }

var _ manager.LeaderElectionRunnable = observation{}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (observation) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (o observation) Start(ctx context.Context) error {
	for !stored.source.CompareAndSwap(nil, o.source) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second): // another manager in this process may end
		}
	}
	<-ctx.Done()
	stored.source.CompareAndSwap(o.source, nil)
	return nil
}
