package webhookserver

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// durationBuckets are good for 1 ms to 30 s.
var durationBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

var (
	requestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_webhook_requests_total",
		Help: "HTTP requests answered by the webhook server, by status code and by the integration whose token " +
			"the request bore; both labels are empty for a request without a valid token.",
	}, []string{"code", "namespace", "integration"})

	requestDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "tocsin_webhook_request_duration_seconds",
		Help:    "Time from the headers of a webhook request to its answer, by class of status code (2xx, 4xx, 5xx).",
		Buckets: durationBuckets,
	}, []string{"code"})

	alertsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_webhook_alerts_total",
		Help: "Alerts that were acknowledged with 202, by integration and by status (firing, resolved, acknowledged); " +
			"those of a repeated request with an idempotency key count again.",
	}, []string{"namespace", "integration", "status"})

	refusedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_webhook_refused_total",
		Help: "Requests answered 503 because the cluster does not let their alerts be stored, by integration and by reason: " +
			"RefusedByPolicy (an admission policy or webhook) or QuotaExceeded.",
	}, []string{"namespace", "integration", "reason"})

	unusableMappings = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_webhook_unusable_mappings_total",
		Help: "Requests that were read by the payload rules alone because the integration's mapping does not compile.",
	}, []string{"namespace", "integration"})

	mappingFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_webhook_mapping_failures_total",
		Help: "Expressions of mappings that failed on an alert, which was read without them, by integration and by what the " +
			"expression gives (a field of an alert, alerts or drop).",
	}, []string{"namespace", "integration", "field"})

	writeDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tocsin_webhook_write_duration_seconds",
		Help:    "Time to write one AlertEvent, retries included, whether or not it succeeded.",
		Buckets: durationBuckets,
	})

	writeAlerts = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tocsin_webhook_write_alerts",
		Help:    "Alerts in one AlertEvent that was written: above 1 for batches, and when alerts had to wait for a write.",
		Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500},
	})
)

// capacity is how full the queue and the set of Incidents are, as the server of this process sees it.
type capacity struct {
	pending   *pendingCounter
	incidents *incidentIndex
}

// capacities is the capacity of the server of this process, once there is one.
var capacities atomic.Pointer[capacity]

var capacityMetrics = &capacityCollector{
	backlog: prometheus.NewDesc("tocsin_webhook_backlog_ratio",
		"How full the queue of AlertEvents is, by number or by size, whichever is nearer to its bound: from 1 on, requests "+
			"of the namespaces that hold much of it are answered 503. AlertEvents that cannot drain count only towards "+
			"a higher bound. Reported alike by every replica.", nil, nil),
	namespaceBacklog: prometheus.NewDesc("tocsin_webhook_namespace_backlog_ratio",
		"How full a namespace's share of the queue is, for namespaces that have used half of it: from 1 on, requests of "+
			"the namespace are answered 503. Reported alike by every replica.", []string{"namespace"}, nil),
	stuck: prometheus.NewDesc("tocsin_alertevents_stuck",
		"AlertEvents that cannot drain, by reason, reported alike by every replica: Terminating (a finalizer keeps a "+
			"deleted one), Unreadable (its packed alerts cannot be decoded), Quarantined (its alerts cannot be folded), or "+
			"new Incidents of its namespace wait for QuotaExceeded, Forbidden, NamespaceTerminating or IncidentLimit.",
		[]string{"reason"}, nil),
	incidents: prometheus.NewDesc("tocsin_incidents_limit_ratio",
		"Incidents as part of --max-incidents: from 1 on, alerts that need new ones are answered 503 in the namespaces "+
			"that have many. Reported alike by every replica.", nil, nil),
	namespaceIncidents: prometheus.NewDesc("tocsin_namespace_incidents_limit_ratio",
		"Incidents of a namespace as part of its share of --max-incidents, for namespaces that have used half of it: from "+
			"1 on, alerts that need new ones are answered 503. Reported alike by every replica.", []string{"namespace"}, nil),
}

// capacityCollector reads the capacities when it is asked.
type capacityCollector struct {
	backlog, namespaceBacklog, stuck, incidents, namespaceIncidents *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *capacityCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.backlog, c.namespaceBacklog, c.stuck, c.incidents, c.namespaceIncidents} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *capacityCollector) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	now := capacities.Load()
	if now == nil {
		gauge(c.backlog, 0)
		return
	}
	gauge(c.backlog, now.pending.ratio())
	gauge(c.incidents, now.incidents.ratio())
	for namespace, ratio := range now.pending.fullest() {
		gauge(c.namespaceBacklog, ratio, namespace)
	}
	for namespace, ratio := range now.incidents.fullest() {
		gauge(c.namespaceIncidents, ratio, namespace)
	}
	for reason, events := range now.pending.stuck() {
		gauge(c.stuck, float64(events), reason)
	}
}

// RegisterMetrics registers the metrics of the webhook server.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(requestsTotal, requestDuration, alertsTotal, refusedTotal, unusableMappings, mappingFailures,
		writeDuration, writeAlerts, capacityMetrics)
}

// observeRequest counts an answered request. Integrations are the only label that outsiders could add
// values to, so a request without a valid token has none.
func observeRequest(code int, integration *v1alpha1.WebhookIntegration, took time.Duration) {
	namespace, name := "", ""
	if integration != nil {
		namespace, name = integration.Namespace, integration.Name
	}
	requestsTotal.WithLabelValues(strconv.Itoa(code), namespace, name).Inc()
	requestDuration.WithLabelValues(strconv.Itoa(code/100) + "xx").Observe(took.Seconds())
}

// observeAlerts counts alerts that were stored.
func observeAlerts(integration *v1alpha1.WebhookIntegration, alerts []v1alpha1.Alert) {
	for i := range alerts {
		alertsTotal.WithLabelValues(integration.Namespace, integration.Name, string(alerts[i].Status)).Inc()
	}
}

// observeRefusal counts a request whose alerts the cluster does not let be stored.
func observeRefusal(integration *v1alpha1.WebhookIntegration, p *problem) {
	if p.kind == problemRefused.kind {
		refusedTotal.WithLabelValues(integration.Namespace, integration.Name, p.reason).Inc()
	}
}

// observeUnusableMapping counts a request whose integration has a mapping that does not compile.
func observeUnusableMapping(integration *v1alpha1.WebhookIntegration) {
	unusableMappings.WithLabelValues(integration.Namespace, integration.Name).Inc()
}

// observeMappingFailures counts expressions that failed.
func observeMappingFailures(integration *v1alpha1.WebhookIntegration, failures []mapping.Failure) {
	for _, failure := range failures {
		mappingFailures.WithLabelValues(integration.Namespace, integration.Name, failure.Field).Add(float64(failure.Count))
	}
}

// observeWrite counts a write of an AlertEvent.
func observeWrite(alerts int, took time.Duration) {
	writeDuration.Observe(took.Seconds())
	writeAlerts.Observe(float64(alerts))
}

// forgetIntegration drops the series of an integration that was deleted.
func forgetIntegration(namespace, name string) {
	labels := prometheus.Labels{"namespace": namespace, "integration": name}
	requestsTotal.DeletePartialMatch(labels)
	alertsTotal.DeletePartialMatch(labels)
	refusedTotal.DeletePartialMatch(labels)
	unusableMappings.DeletePartialMatch(labels)
	mappingFailures.DeletePartialMatch(labels)
}
