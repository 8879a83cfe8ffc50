package capacity

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

var (
	backlogRatio = prometheus.NewDesc("tocsin_webhook_backlog_ratio",
		"Unfolded AlertEvents as part of their maximum number or size, whichever is nearer to its bound: from 1 "+
			"on, requests of the namespaces that hold many get 503. AlertEvents that cannot drain count only towards a "+
			"higher bound.", nil, nil)
	namespaceBacklogRatio = prometheus.NewDesc("tocsin_webhook_namespace_backlog_ratio",
		"Unfolded AlertEvents of a namespace as part of its share of the queue, for namespaces that have used half of it: "+
			"from 1 on, its requests get 503.", []string{"namespace"}, nil)
	stuckEvents = prometheus.NewDesc("tocsin_alertevents_stuck",
		"AlertEvents that cannot drain, by reason: Terminating (a finalizer keeps a deleted one), Unreadable "+
			"(its alerts cannot be decoded), NotCached (its namespace has more than a replica keeps), or new Incidents "+
			"of its namespace wait for QuotaExceeded, Forbidden, NamespaceTerminating or IncidentLimit.",
		[]string{"reason"}, nil)
	pendingEvents = prometheus.NewDesc("tocsin_alertevents_pending",
		"AlertEvents that are not yet released, without canaries.", nil, nil)
	hiddenObjects = prometheus.NewDesc("tocsin_hidden_objects",
		"AlertEvents, WebhookIntegrations, MaintenanceWindows and Heartbeats beyond what this replica keeps in "+
			"memory, by kind, and by namespace for the 20 with the most; namespace is empty for the others.",
		[]string{"kind", "namespace"}, nil)
	oldestEvent = prometheus.NewDesc("tocsin_alertevents_oldest_age_seconds",
		"Age of the oldest AlertEvent that waits to be folded, 0 without any. Those kept for their idempotency "+
			"key, or stuck as Terminating or Unreadable, do not count.", nil, nil)
	incidentsRatio = prometheus.NewDesc("tocsin_incidents_limit_ratio",
		"Incidents that are not Resolved, and those for which alerts wait, as part of --max-incidents: from 1 "+
			"on, alerts that need new ones get 503 in the namespaces that have many.", nil, nil)
	namespaceIncidentsRatio = prometheus.NewDesc("tocsin_namespace_incidents_limit_ratio",
		"Incidents of a namespace that are not Resolved, and those for which alerts wait, as part of its share "+
			"of --max-incidents, for namespaces that have used half of it: from 1 on, alerts that need new ones get 503.",
		[]string{"namespace"}, nil)
	incidents = prometheus.NewDesc("tocsin_incidents",
		"Incidents by state, those that are not Resolved also by severity. The leader reports the number of the "+
			"Resolved ones, as its newest sweep and its own writes tell it.",
		[]string{"state", "severity"}, nil)
	mutedIncidents = prometheus.NewDesc("tocsin_incidents_muted",
		"Open Incidents that a maintenance window keeps from being forwarded.", nil, nil)
)

// maxHiddenSeries is how many namespaces tocsin_hidden_objects names.
const maxHiddenSeries = 20

// PublishResolved has the number of Resolved Incidents reported until ctx ends. count is not ok before they were counted.
func (c *Counts) PublishResolved(ctx context.Context, count func() (incidents int64, ok bool)) {
	c.resolved.Store(&count)
	context.AfterFunc(ctx, func() { c.resolved.CompareAndSwap(&count, nil) })
}

// Describe implements prometheus.Collector.
func (*Counts) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		backlogRatio, namespaceBacklogRatio, stuckEvents, pendingEvents, oldestEvent,
		incidentsRatio, namespaceIncidentsRatio, incidents, mutedIncidents, hiddenObjects,
	} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector. Until the cache is filled there is nothing to report.
func (c *Counts) Collect(metrics chan<- prometheus.Metric) {
	if !c.Synced() {
		return
	}
	gauges := gauges{}
	hidden := c.reportHidden(&gauges)
	c.mu.Lock()
	c.reportEvents(&gauges, hidden)
	c.reportIncidents(&gauges)
	c.mu.Unlock()
	if count := c.resolved.Load(); count != nil {
		if resolved, ok := (*count)(); ok {
			gauges.set(incidents, float64(resolved), string(v1alpha1.IncidentResolved), "")
		}
	}
	for _, gauge := range gauges { // when the mutex is free again
		metrics <- gauge
	}
}

type gauges []prometheus.Metric

func (g *gauges) set(desc *prometheus.Desc, value float64, labels ...string) {
	*g = append(*g, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...))
}

func (g *gauges) setRatio(desc *prometheus.Desc, namespace string, ratio float64) {
	if ratio >= reportedRatio {
		g.set(desc, ratio, namespace)
	}
}

func (c *Counts) reportEvents(gauges *gauges, hidden int) {
	number, size := &c.bounds[0], &c.bounds[1]
	gauges.set(backlogRatio, max(number.draining.Fraction(), number.all.Fraction(), size.draining.Fraction(), size.all.Fraction()))
	for namespace := range number.all.Keys() {
		gauges.setRatio(namespaceBacklogRatio, namespace, max(number.usedBy(namespace), size.usedBy(namespace)))
	}
	events, oldest := c.pending()
	gauges.set(pendingEvents, float64(events+hidden))
	gauges.set(oldestEvent, oldest.Seconds())
	stuck := map[string]int64{
		queue.StuckTerminating: 0, queue.StuckUnreadable: 0, v1alpha1.ReasonQuotaExceeded: 0,
		v1alpha1.ReasonForbidden: 0, v1alpha1.ReasonNamespaceTerminating: 0, v1alpha1.ReasonIncidentLimit: 0,
	}
	for _, integration := range c.integrations {
		for i, events := range integration.stuck {
			stuck[stuckReasons[i]] += events
		}
		if integration.blocked != "" {
			stuck[integration.blocked] += integration.usage[0]
		}
	}
	for reason, events := range stuck {
		gauges.set(stuckEvents, float64(events), reason)
	}
}

func (c *Counts) reportHidden(gauges *gauges) (events int) {
	if c.Hidden == nil {
		return 0
	}
	series, others := map[string]int{}, map[string]int{}
	c.Hidden.Each(func(kind, namespace string, objects int) {
		if kind == clustercache.KindEvent {
			events += objects
		}
		if namespace == "" || series[kind] == maxHiddenSeries {
			others[kind] += objects
			return
		}
		series[kind]++
		gauges.set(hiddenObjects, float64(objects), kind, namespace)
	})
	for kind, objects := range others {
		gauges.set(hiddenObjects, float64(objects), kind, "")
	}
	return events
}

func (c *Counts) reportIncidents(gauges *gauges) {
	gauges.set(incidentsRatio, c.expected.Fraction())
	for namespace := range c.expected.Keys() {
		gauges.setRatio(namespaceIncidentsRatio, namespace, float64(c.expected.Used(namespace))/float64(c.expected.Own()))
	}
	for group, count := range c.groups {
		if group.state != "" {
			gauges.set(incidents, float64(count), string(group.state), string(group.severity))
		}
	}
	gauges.set(mutedIncidents, float64(c.muted))
}

// RegisterWhile registers the counts as metrics until ctx ends.
func (c *Counts) RegisterWhile(ctx context.Context, registry prometheus.Registerer) error {
	if err := registry.Register(c); err != nil {
		return fmt.Errorf("registering the metrics of the capacity: %w", err)
	}
	<-ctx.Done()
	registry.Unregister(c)
	return nil
}
