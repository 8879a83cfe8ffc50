package replica

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/informers"
)

// Counts counts the Incidents in the cache, which has no Resolved ones, as the informer reports them: to copy all objects out of
// the cache for each scrape would cost far more. It remembers of each how it was counted, since an interrupted watch may report a
// deleted object in an older state than the one that was counted last.
type Counts struct {
	memory *Memory     // of AlertEvents
	synced func() bool // whether the informer has reported all Incidents

	mu        sync.Mutex
	incidents map[string]map[string]countedIncident // by namespace and name
	counts    map[incidentGroup]int
	muted     int // by maintenance windows
	open      Usages

	resolved atomic.Pointer[func() (int64, bool)] // of the leader's term; nil on other replicas
	registry prometheus.Registerer
}

// maxOpenBytes is the limit of what the cache has of Incidents that are not Resolved. Beyond its share of it, the content of a
// namespace's alerts is not kept.
const maxOpenBytes = 256 << 20

// countedIncident is an Incident as it was counted.
type countedIncident struct {
	incidentGroup
	Usage

	muted bool
}

// incidentGroup is the group in which an Incident is counted; the state is empty until its status is written.
type incidentGroup struct {
	state    v1alpha1.IncidentState
	severity v1alpha1.Severity
}

func newCounts(memory *Memory, limit fair.Limit) *Counts {
	c := &Counts{
		memory:    memory,
		incidents: map[string]map[string]countedIncident{},
		counts:    map[incidentGroup]int{},
		open:      NewUsages(limit, maxOpenBytes),
	}
	for _, severity := range v1alpha1.Severities() { // those without Incidents are reported too
		c.counts[incidentGroup{v1alpha1.IncidentOpen, severity}] = 0
	}
	return c
}

func (c *Counts) setIncident(incident *v1alpha1.Incident, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uncount(incident)
	names := c.incidents[incident.Namespace]
	if names == nil {
		names = map[string]countedIncident{}
		c.incidents[incident.Namespace] = names
	}
	group := incidentGroup{incident.Status.State, incident.Status.Alert.Severity}
	names[incident.Name] = countedIncident{group, UsageOf(incident), incident.Status.Mute != nil}
	c.counts[group]++
	if incident.Status.Mute != nil {
		c.muted++
	}
	c.open.Add(incident.Namespace, names[incident.Name].Usage)
}

func (c *Counts) removeIncident(incident *v1alpha1.Incident) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uncount(incident)
	if len(c.incidents[incident.Namespace]) == 0 {
		delete(c.incidents, incident.Namespace)
	}
}

func (c *Counts) uncount(incident *v1alpha1.Incident) {
	names := c.incidents[incident.Namespace]
	if counted, known := names[incident.Name]; known {
		c.counts[counted.incidentGroup]--
		if counted.muted {
			c.muted--
		}
		c.open.Add(incident.Namespace, counted.Times(-1))
		delete(names, incident.Name)
	}
}

// Allows reports whether the namespace may have another Incident that is not Resolved.
func (c *Counts) Allows(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open.Incidents.Allows(namespace)
}

// Fits reports whether a status may be written over an Incident: it is Resolved, it is not larger, or the namespace has space.
func (c *Counts) Fits(read *v1alpha1.Incident, status *v1alpha1.IncidentStatus) bool {
	before := 0
	if read.Status.State != v1alpha1.IncidentResolved { // else it did not count
		before = alertcontent.Size(&read.Status.Alert)
	}
	if status.State == v1alpha1.IncidentResolved || alertcontent.Size(&status.Alert) <= before {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open.Bytes.Allows(read.Namespace)
}

// OfIntegration returns the names of an integration's Incidents.
func (c *Counts) OfIntegration(namespace, integration string) []string {
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

// PublishResolved has the number of Resolved Incidents reported until ctx ends. It is not ok before they were counted.
func (c *Counts) PublishResolved(ctx context.Context, number func() (incidents int64, ok bool)) {
	c.resolved.Store(&number)
	context.AfterFunc(ctx, func() { c.resolved.CompareAndSwap(&number, nil) })
}

// Describe implements prometheus.Collector.
func (c *Counts) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{pendingDesc, oldestAgeDesc, incidentsDesc, mutedDesc} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector. Until the cache is filled there is nothing to report.
func (c *Counts) Collect(metrics chan<- prometheus.Metric) {
	if !c.synced() || !c.memory.synced() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	events, oldest := c.memory.pending()
	gauge(pendingDesc, float64(events))
	gauge(oldestAgeDesc, oldest.Seconds())
	gauge(mutedDesc, float64(c.muted))
	for group, count := range c.counts {
		if group.state != "" {
			gauge(incidentsDesc, float64(count), string(group.state), string(group.severity))
		}
	}
	if number := c.resolved.Load(); number != nil {
		if resolved, ok := (*number)(); ok {
			gauge(incidentsDesc, float64(resolved), string(v1alpha1.IncidentResolved), "")
		}
	}
}

// NewCounts counts the objects in the manager's cache, and registers the counts as metrics while the manager runs. The limit is
// that of Incidents that are not Resolved: every replica caches them.
func NewCounts(mgr ctrl.Manager, memory *Memory, limit fair.Limit, registry prometheus.Registerer) (c *Counts, err error) {
	c = newCounts(memory, limit)
	c.registry = registry
	c.synced, err = informers.Feed(context.Background(), mgr.GetCache(), &v1alpha1.Incident{}, c.setIncident, c.removeIncident)
	if err != nil || registry == nil {
		return c, err
	}
	return c, mgr.Add(c)
}

// Start implements manager.Runnable: the metrics are registered until ctx ends.
func (c *Counts) Start(ctx context.Context) error {
	if err := c.registry.Register(c); err != nil {
		return fmt.Errorf("registering the metrics of the store: %w", err)
	}
	<-ctx.Done()
	c.registry.Unregister(c)
	return nil
}

// Usage is a number of Incidents and about how many bytes they take.
type Usage struct{ Incidents, Bytes int64 }

// UsageOf is that of one Incident: about as many bytes as the API server stores of it, and as the cache takes.
func UsageOf(incident *v1alpha1.Incident) Usage {
	const others = 2 << 10
	size := others + alertcontent.Size(&incident.Status.Alert)
	for i := range incident.Status.UnarchivedEpisodes {
		size += len(incident.Status.UnarchivedEpisodes[i].Packed)
	}
	return Usage{1, int64(size)}
}

// Plus returns the sum of two usages.
func (u Usage) Plus(more Usage) Usage {
	return Usage{u.Incidents + more.Incidents, u.Bytes + more.Bytes}
}

// Times returns a multiple of the usage.
func (u Usage) Times(n int64) Usage { return Usage{n * u.Incidents, n * u.Bytes} }

// Usages is the usage of each namespace, and its limits.
type Usages struct{ Incidents, Bytes fair.Budget[string] }

// NewUsages returns usages of nothing. A namespace has the same share of both limits.
func NewUsages(incidents fair.Limit, bytes int64) Usages {
	return Usages{
		fair.Budget[string]{Limit: incidents, Capped: true},
		fair.Budget[string]{Limit: fair.Limit{All: bytes, Share: incidents.Share}, Capped: true},
	}
}

// Add notes that a namespace uses so much more, or less.
func (u *Usages) Add(namespace string, more Usage) {
	u.Incidents.Add(namespace, more.Incidents)
	u.Bytes.Add(namespace, more.Bytes)
}
