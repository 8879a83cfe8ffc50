package webhookserver

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

var (
	requestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_webhook_requests_total",
		Help: "HTTP requests answered by the webhook server, by status code, by the route (the pattern of the path, empty for " +
			"an unknown one) and by the integration whose token the request bore; namespace and integration are empty for a " +
			"request without a valid token.",
	}, []string{"code", "route", "namespace", "integration"})

	requestDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "tocsin_webhook_request_duration_seconds",
		Help:    "Time from the headers of a webhook request to its answer, by class of status code (2xx, 4xx, 5xx).",
		Buckets: commit.DurationBuckets,
	}, []string{"code"})

	alertsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_webhook_alerts_total",
		Help: "Alerts that were acknowledged with 202, by integration and by status (firing, resolved, acknowledged, noted); " +
			"those of a repeated request with an idempotency key count again.",
	}, []string{"namespace", "integration", "status"})

	refusedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_webhook_refused_total",
		Help: "Requests answered 503 because the cluster refused to store their alerts, by integration and by reason: " +
			"DeniedByPolicy (an admission policy or webhook) or QuotaExceeded.",
	}, []string{"namespace", "integration", "reason"})

	returnedAlerts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_webhook_returned_alerts_total",
		Help: "Alerts that were dropped because a Tocsin had forwarded them (they have the label tocsin_incident) and the " +
			"integration is not federated, or because more than three Tocsins had, by integration.",
	}, []string{"namespace", "integration"})

	unusableMappings = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_webhook_unusable_mappings_total",
		Help: "Requests that were read by the payload rules alone because the integration's mapping does not compile.",
	}, []string{"namespace", "integration"})

	tokenExpirations = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tocsin_webhook_token_expiration_timestamp_seconds",
		Help: "When a token of an integration expires or has expired, in seconds since 1970, reported alike by every replica. " +
			"Tokens that do not expire have no series.",
	}, []string{"namespace", "integration", "token"})

	mappingFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_webhook_mapping_failures_total",
		Help: "Expressions of mappings that failed on an alert, which was read without them, by integration and by the target of " +
			"the expression (a field of an alert, alerts or drop).",
	}, []string{"namespace", "integration", "field"})
)

// RegisterMetrics registers the metrics of the webhook server.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(requestsTotal, requestDuration, alertsTotal, refusedTotal, returnedAlerts, unusableMappings,
		mappingFailures, tokenExpirations)
	commit.RegisterMetrics(registry)
}

// observeRequest counts an answered request. Integrations are the only label that outsiders could add
// values to, so a request without a valid token has none.
func observeRequest(code int, x *exchange, took time.Duration) {
	namespace, name := "", ""
	if x.integration != nil {
		namespace, name = x.integration.Namespace, x.integration.Name
	}
	requestsTotal.WithLabelValues(strconv.Itoa(code), x.route(), namespace, name).Inc()
	requestDuration.WithLabelValues(strconv.Itoa(code/100) + "xx").Observe(took.Seconds())
}

// observeExpirations shows when the tokens of an integration expire. before is nil for a new one. Series that stay are never
// absent, or a scrape would make an alert start anew.
func observeExpirations(before, after *v1alpha1.WebhookIntegration) {
	stay := sets.New[string]()
	for i := range after.Spec.Tokens {
		if token := &after.Spec.Tokens[i]; token.ExpirationTime != nil && !token.ExpirationTime.IsZero() {
			stay.Insert(token.Name)
			tokenExpirations.WithLabelValues(after.Namespace, after.Name, token.Name).Set(float64(token.ExpirationTime.Unix()))
		}
	}
	if before == nil {
		return
	}
	for i := range before.Spec.Tokens {
		if name := before.Spec.Tokens[i].Name; !stay.Has(name) {
			tokenExpirations.DeleteLabelValues(after.Namespace, after.Name, name)
		}
	}
}

// observeMapping counts alerts that were dropped since a Tocsin had forwarded them, and expressions that failed.
func observeMapping(integration *v1alpha1.WebhookIntegration, result *mapping.Result) {
	for i := range result.Alerts {
		if result.Alerts[i].Returned {
			returnedAlerts.WithLabelValues(integration.Namespace, integration.Name).Inc()
		}
	}
	for _, failure := range result.Failures {
		mappingFailures.WithLabelValues(integration.Namespace, integration.Name, failure.Field).Add(float64(failure.Count))
	}
}

// forgetIntegration drops the series of an integration that was deleted.
func forgetIntegration(namespace, name string) {
	labels := prometheus.Labels{"namespace": namespace, "integration": name}
	for _, metric := range []*prometheus.MetricVec{
		requestsTotal.MetricVec, alertsTotal.MetricVec, refusedTotal.MetricVec, returnedAlerts.MetricVec, unusableMappings.MetricVec,
		mappingFailures.MetricVec, tokenExpirations.MetricVec,
	} {
		metric.DeletePartialMatch(labels)
	}
}
