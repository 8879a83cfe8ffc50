package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/informers"
)

// storeCounts counts the AlertEvents and the Incidents in the cache, which has no Resolved ones, as the informers report them:
// to copy all objects out of the cache for each scrape would cost far more. It remembers of each object how it was counted,
// since an interrupted watch may report a deleted object in an older state than the one that was counted last.
type storeCounts struct {
	now    func() time.Time
	synced func() bool // whether the informers have reported all objects

	mu        sync.Mutex
	events    map[types.NamespacedName]countedEvent
	incidents map[string]map[string]countedIncident // by namespace and name
	counts    map[incidentGroup]int
	open      usages

	resolved atomic.Pointer[resolvedIncidents] // of the leader's term; nil on other replicas
}

// countedEvent is an AlertEvent as it was counted.
type countedEvent struct {
	created time.Time
	keyed   bool
}

// countedIncident is an Incident as it was counted.
type countedIncident struct {
	incidentGroup
	usage
}

// usage is a number of Incidents and about how many bytes they take.
type usage struct{ incidents, bytes int64 }

func (u *usage) add(more usage, sign int64) {
	u.incidents += sign * more.incidents
	u.bytes += sign * more.bytes
}

// usageOf is that of one Incident: about as many bytes as the API server stores of it, and as the cache takes.
func usageOf(incident *v1alpha1.Incident) usage {
	const others = 2 << 10
	size := others + alertcontent.Size(&incident.Status.Alert)
	for i := range incident.Status.UnarchivedEpisodes {
		size += len(incident.Status.UnarchivedEpisodes[i].Packed)
	}
	return usage{1, int64(size)}
}

// incidentGroup is the group in which an Incident is counted; the state is empty until its status is written.
type incidentGroup struct {
	state    v1alpha1.IncidentState
	severity v1alpha1.Severity
}

func newStoreCounts(options Options) *storeCounts {
	c := &storeCounts{
		now:       options.Clock.Now,
		synced:    func() bool { return false },
		events:    map[types.NamespacedName]countedEvent{},
		incidents: map[string]map[string]countedIncident{},
		counts:    map[incidentGroup]int{},
		open:      options.usages(maxOpenBytes),
	}
	for _, severity := range v1alpha1.Severities() { // those without Incidents are reported too
		c.counts[incidentGroup{v1alpha1.IncidentOpen, severity}] = 0
	}
	return c
}

// setEvent counts an AlertEvent as it is now.
func (c *storeCounts) setEvent(event *v1alpha1.AlertEvent, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events[client.ObjectKeyFromObject(event)] = countedEvent{
		created: event.CreationTimestamp.Time, keyed: v1alpha1.IsKeyedEventName(event.Name),
	}
}

// removeEvent stops counting an AlertEvent.
func (c *storeCounts) removeEvent(event *v1alpha1.AlertEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.events, client.ObjectKeyFromObject(event))
}

// setIncident counts an Incident as it is now.
func (c *storeCounts) setIncident(incident *v1alpha1.Incident, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uncount(incident)
	names := c.incidents[incident.Namespace]
	if names == nil {
		names = map[string]countedIncident{}
		c.incidents[incident.Namespace] = names
	}
	group := incidentGroup{incident.Status.State, incident.Status.Alert.Severity}
	names[incident.Name] = countedIncident{group, usageOf(incident)}
	c.counts[group]++
	c.open.add(incident.Namespace, names[incident.Name].usage, 1)
}

// removeIncident stops counting an Incident.
func (c *storeCounts) removeIncident(incident *v1alpha1.Incident) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uncount(incident)
	if len(c.incidents[incident.Namespace]) == 0 {
		delete(c.incidents, incident.Namespace)
	}
}

// uncount stops counting an Incident.
func (c *storeCounts) uncount(incident *v1alpha1.Incident) {
	names := c.incidents[incident.Namespace]
	if counted, known := names[incident.Name]; known {
		c.counts[counted.incidentGroup]--
		c.open.add(incident.Namespace, counted.usage, -1)
		delete(names, incident.Name)
	}
}

// ofIntegration returns the names of an integration's Incidents.
func (c *storeCounts) ofIntegration(namespace, integration string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name := range c.incidents[namespace] {
		if v1alpha1.IsIncidentName(name, integration) {
			names = append(names, name)
		}
	}
	return names
}

// Describe implements prometheus.Collector.
func (c *storeCounts) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{pendingDesc, oldestAgeDesc, incidentsDesc} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector. Until the cache is filled there is nothing to report.
func (c *storeCounts) Collect(metrics chan<- prometheus.Metric) {
	if !c.synced() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(pendingDesc, float64(len(c.events)))
	gauge(oldestAgeDesc, c.oldestAge().Seconds())
	for group, count := range c.counts {
		if group.state != "" {
			gauge(incidentsDesc, float64(count), string(group.state), string(group.severity))
		}
	}
	if resolved, ok := c.resolved.Load().number(); ok {
		gauge(incidentsDesc, float64(resolved), string(v1alpha1.IncidentResolved), "")
	}
}

// oldestAge returns the age of the oldest AlertEvent that waits to be folded.
func (c *storeCounts) oldestAge() time.Duration {
	now, oldest := c.now(), time.Duration(0)
	for _, event := range c.events {
		age := now.Sub(event.created)
		if !event.keyed || age >= keyedLinger+time.Minute { // before, it may be there for its idempotency key alone
			oldest = max(oldest, age)
		}
	}
	return oldest
}

// countStore counts the objects in the manager's cache, and registers the counts as metrics while the manager runs.
func countStore(mgr ctrl.Manager, options Options) (*storeCounts, error) {
	counts := newStoreCounts(options)
	ctx, objects := context.Background(), mgr.GetCache()
	eventsSynced, err := informers.Feed(ctx, objects, &v1alpha1.AlertEvent{}, counts.setEvent, counts.removeEvent)
	if err != nil {
		return nil, err
	}
	incidentsSynced, err := informers.Feed(ctx, objects, &v1alpha1.Incident{}, counts.setIncident, counts.removeIncident)
	if err != nil {
		return nil, err
	}
	counts.synced = func() bool { return eventsSynced() && incidentsSynced() }
	if options.Metrics == nil {
		return counts, nil
	}
	return counts, mgr.Add(registration{counts, options.Metrics})
}

// registration registers metrics as long as their manager runs, on every replica. Of several managers in one process, the
// one that started first has its metrics registered until it stops.
type registration struct {
	metrics  prometheus.Collector
	registry prometheus.Registerer
}

var _ manager.LeaderElectionRunnable = registration{}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (registration) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (r registration) Start(ctx context.Context) error {
	for {
		err := r.registry.Register(r.metrics)
		if err == nil {
			break
		}
		if !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
			return fmt.Errorf("registering the metrics of the store: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second): // another manager in this process may end
		}
	}
	<-ctx.Done()
	r.registry.Unregister(r.metrics)
	return nil
}
