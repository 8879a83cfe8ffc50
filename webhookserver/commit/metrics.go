package commit

import "github.com/prometheus/client_golang/prometheus"

// DurationBuckets are the buckets of histograms of durations from 1 ms to 30 s.
var DurationBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

var (
	writeDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tocsin_webhook_write_duration_seconds",
		Help:    "Time to write one AlertEvent, retries included, whether or not it succeeded.",
		Buckets: DurationBuckets,
	})

	writeAlerts = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tocsin_webhook_write_alerts",
		Help:    "Alerts in one AlertEvent that was written: above 1 for batches, and when alerts had to wait for a writer.",
		Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500},
	})
)

// RegisterMetrics registers the metrics of writes.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(writeDuration, writeAlerts)
}

// The gauges of Capacity.
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

var capacityGauges = []*prometheus.Desc{
	backlogRatio, namespaceBacklogRatio, stuckEvents, incidentsRatio, namespaceIncidentsRatio,
}
