package webhookserver

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/series"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// named bounds the series that name an integration.
var named = series.NewLimit()

var (
	requestsTotal = series.NewCounterVec(named, prometheus.CounterOpts{
		Name: "tocsin_webhook_requests_total",
		Help: "Requests that the webhook server answered, by status code, by route (the pattern of the path, empty for " +
			"an unknown one) and by the integration of the token; namespace and integration are empty without a valid " +
			"token.",
	}, "code", "route")

	requestDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "tocsin_webhook_request_duration_seconds",
		Help:    "Time from the headers of a webhook request to its answer, by class of status code (2xx, 4xx, 5xx).",
		Buckets: commit.DurationBuckets,
	}, []string{"code"})

	alertsTotal = series.NewCounterVec(named, prometheus.CounterOpts{
		Name: "tocsin_webhook_alerts_total",
		Help: "Alerts answered 202, by status (firing, resolved, acknowledged, noted); those of a repeated request " +
			"with an idempotency key count again.",
	}, "status")

	deniedTotal = series.NewCounterVec(named, prometheus.CounterOpts{
		Name: "tocsin_webhook_refused_total",
		Help: "Requests answered 503 because the cluster denied their alerts, by reason: DeniedByPolicy (an admission " +
			"policy or webhook) or QuotaExceeded.",
	}, "reason")

	returnedAlerts = series.NewCounterVec(named, prometheus.CounterOpts{
		Name: "tocsin_webhook_returned_alerts_total",
		Help: "Alerts that were dropped because a Tocsin had forwarded them (they have the label tocsin_incident), by " +
			"reason: OwnIncident (of an Incident that is open here), NotFederated (of another Tocsin, and the " +
			"integration is not federated) or TooManyHops (more than three Tocsins had forwarded it).",
	}, "reason")

	unusableMappings = series.NewCounterVec(named, prometheus.CounterOpts{
		Name: "tocsin_webhook_unusable_mappings_total",
		Help: "Requests read by the payload rules alone because the mapping does not compile.",
	})

	tokenExpirations = series.NewGaugeVec(named, prometheus.GaugeOpts{
		Name: "tocsin_webhook_token_expiration_timestamp_seconds",
		Help: "Unix time at which a token expires or has expired; absent for tokens that do not expire.",
	}, "token")

	mappingFailures = series.NewCounterVec(named, prometheus.CounterOpts{
		Name: "tocsin_webhook_mapping_failures_total",
		Help: "Expressions that failed on an alert, which was read without them, by their target (a field of an alert, " +
			"alerts or drop).",
	}, "field")
)

// RegisterMetrics registers the metrics of the webhook server.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(requestsTotal, requestDuration, alertsTotal, deniedTotal, returnedAlerts, unusableMappings,
		mappingFailures, tokenExpirations)
	commit.RegisterMetrics(registry)
}

// observe counts an answered request. Integrations are the only label that outsiders could add values to, so a request without a
// valid token has none.
func (s *served) observe(took time.Duration) {
	var integration types.NamespacedName
	if s.authenticated != nil {
		integration = s.authenticated.integrationName()
	}
	code := s.reply.Status
	requestsTotal.Of(integration, strconv.Itoa(code), s.route()).Inc()
	requestDuration.WithLabelValues(strconv.Itoa(code/100) + "xx").Observe(took.Seconds())
	if s.problem != nil && s.problem.Type == problemDenied.Type {
		deniedTotal.Of(integration, s.problem.Reason).Inc()
	}
}

// observeExpirations shows when the tokens of an integration expire. before is nil for a new one. Series that stay are never
// absent, or a scrape would make an alert start anew.
func observeExpirations(before, after *v1alpha1.WebhookIntegration) {
	stay, integration := sets.New[string](), client.ObjectKeyFromObject(after)
	for i := range after.Spec.Tokens {
		if token := &after.Spec.Tokens[i]; token.ExpirationTime != nil && !token.ExpirationTime.IsZero() {
			stay.Insert(token.Name)
			tokenExpirations.Set(integration, float64(token.ExpirationTime.Unix()), token.Name)
		}
	}
	if before == nil {
		return
	}
	for i := range before.Spec.Tokens {
		if name := before.Spec.Tokens[i].Name; !stay.Has(name) {
			tokenExpirations.Remove(integration, name)
		}
	}
}

// observeMapping counts alerts that were dropped since a Tocsin had forwarded them, and expressions that failed.
func observeMapping(integration types.NamespacedName, result *mapping.Result) {
	for i := range result.Alerts {
		if reason := result.Alerts[i].Returned; reason != "" {
			returnedAlerts.Of(integration, reason).Inc()
		}
	}
	for _, failure := range result.Failures {
		mappingFailures.Of(integration, failure.Field).Add(float64(failure.Count))
	}
}
