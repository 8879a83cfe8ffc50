package commit

import "github.com/prometheus/client_golang/prometheus"

// Capacity limits what the namespaces may store in the cluster. It implements prometheus.Collector, to report how much
// of the limits is used.
type Capacity struct {
	Pending   *PendingEvents
	Incidents *Incidents
}

// NewCapacity makes a Capacity for so many AlertEvents and Incidents. A namespace may have a share of each.
func NewCapacity(events, incidents int, namespaceShare float64) *Capacity {
	return &Capacity{Pending: NewPendingEvents(events, namespaceShare), Incidents: NewIncidents(incidents, namespaceShare)}
}

var (
	backlogRatio = prometheus.NewDesc("tocsin_webhook_backlog_ratio",
		"Unfolded AlertEvents as part of their maximum, by number or by size, whichever is nearer to its bound: from 1 on, "+
			"requests of the namespaces that hold many are answered 503. AlertEvents that cannot drain count only towards "+
			"a higher bound. Reported alike by every replica.", nil, nil)
	namespaceBacklogRatio = prometheus.NewDesc("tocsin_webhook_namespace_backlog_ratio",
		"Unfolded AlertEvents of a namespace as part of its share of their maximum, for namespaces that have used half of "+
			"it: from 1 on, requests of the namespace are answered 503. Reported alike by every replica.", []string{"namespace"}, nil)
	stuckEvents = prometheus.NewDesc("tocsin_alertevents_stuck",
		"AlertEvents that cannot drain, by reason, reported alike by every replica: Terminating (a finalizer keeps a "+
			"deleted one), Unreadable (its packed alerts cannot be decoded), or "+
			"new Incidents of its namespace wait for QuotaExceeded, Forbidden, NamespaceTerminating or IncidentLimit.",
		[]string{"reason"}, nil)
	incidentsRatio = prometheus.NewDesc("tocsin_incidents_limit_ratio",
		"Incidents that are not Resolved, and those for which alerts wait, as part of --max-incidents: from 1 on, alerts that "+
			"need new ones are answered 503 in the namespaces that have many. Reported alike by every replica.", nil, nil)
	namespaceIncidentsRatio = prometheus.NewDesc("tocsin_namespace_incidents_limit_ratio",
		"Incidents of a namespace that are not Resolved, and those for which alerts wait, as part of its share of "+
			"--max-incidents, for namespaces that have used half of it: from 1 on, alerts that need new ones are "+
			"answered 503. Reported alike by every replica.",
		[]string{"namespace"}, nil)
)

// Describe implements prometheus.Collector.
func (*Capacity) Describe(descs chan<- *prometheus.Desc) {
	gauges := []*prometheus.Desc{backlogRatio, namespaceBacklogRatio, stuckEvents, incidentsRatio, namespaceIncidentsRatio}
	for _, desc := range gauges {
		descs <- desc
	}
}

type setGauge func(gauge *prometheus.Desc, value float64, labels ...string)

// Collect implements prometheus.Collector.
func (c *Capacity) Collect(metrics chan<- prometheus.Metric) {
	var gauges []prometheus.Metric // sent when the mutexes are free again
	set := func(gauge *prometheus.Desc, value float64, labels ...string) {
		gauges = append(gauges, prometheus.MustNewConstMetric(gauge, prometheus.GaugeValue, value, labels...))
	}
	c.Pending.report(set)
	c.Incidents.report(set)
	for _, gauge := range gauges {
		metrics <- gauge
	}
}
