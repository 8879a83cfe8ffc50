package replica

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-dev/tocsin/internal/fair"
)

var alertsFoldedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "tocsin_alerts_folded_total",
	Help: "Alerts taken from the queue by the leading replica, by result: opened, updated, resolved, reopened, " +
		"acknowledged, unacknowledged, silenced, late (of an episode that has ended), nomatch (there is no such Incident), " +
		"replayed (a second copy of one alert, counted by the replica that deletes it), restored (from a backup, not " +
		"counted), invalid (it contradicts its Incident). After a restart, nomatch and invalid may count an alert again.",
}, []string{"result"})

var clockOffset = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "tocsin_clock_offset_seconds",
	Help: "How far the clock of this replica is ahead of the API server's; negative when it is behind. Everything " +
		"that Tocsin decides goes by the API server's clock.",
})

// Metrics of the objects in the store, see Counts.
var (
	pendingDesc = prometheus.NewDesc("tocsin_alertevents_pending",
		"AlertEvents in the cluster that are not yet released, but canaries, reported alike by every replica.", nil, nil)
	oldestAgeDesc = prometheus.NewDesc("tocsin_alertevents_oldest_age_seconds",
		"Age of the oldest AlertEvent that is not yet released, 0 without any, reported alike by every replica; "+
			"those that may be there for their idempotency key alone do not count.", nil, nil)
	incidentsDesc = prometheus.NewDesc("tocsin_incidents",
		"Incidents in the cluster, by state. Those that are not Resolved also by severity, reported alike by every replica; the "+
			"number of the Resolved ones by the leading replica, as its newest sweep and its own writes tell it.",
		[]string{"state", "severity"}, nil)
	mutedDesc = prometheus.NewDesc("tocsin_incidents_muted",
		"Incidents that are open and that a maintenance window keeps from being forwarded, reported alike by every replica.", nil, nil)
)

// RegisterMetrics registers the metrics of a process, all but those of StoreMetrics.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(alertsFoldedTotal, clockOffset)
}

// StoreMetrics describes the metrics that a replica registers with its registry while its manager runs.
func StoreMetrics() prometheus.Collector { return newCounts(nil, fair.Limit{}) }

// CountFolded counts alerts that were taken from the queue, by the result.
func CountFolded(result string, alerts int) {
	alertsFoldedTotal.WithLabelValues(result).Add(float64(alerts))
}
