package controllers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// durationBuckets are good for 1 ms to 30 s.
var durationBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

// lagBuckets are finer about one and two seconds, where the lag of a busy Incident lies.
var lagBuckets = []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 5, 10, 30, 60}

var (
	foldDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "tocsin_fold_duration_seconds",
		Help: "Time of one fold into an Incident, from reading the Incident to its written status, " +
			"reported by the leading replica.",
		Buckets: durationBuckets,
	})

	foldLag = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tocsin_fold_lag_seconds",
		Help:    "Time from the receipt of an alert to the Incident's status that counts it, reported by the leading replica.",
		Buckets: lagBuckets,
	})

	alertsFoldedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_alerts_folded_total",
		Help: "Alerts taken from the queue by the leading replica, by result: opened, updated, resolved, reopened, " +
			"acknowledged, unacknowledged, silenced, late (of an episode that has ended), nomatch (there is no such Incident), " +
			"replayed (a second copy of one alert, counted by the replica that deletes it), restored (from a backup, not " +
			"counted), invalid (it contradicts its Incident). After a restart, nomatch and invalid may count an alert again.",
	}, []string{"result"})

	incidentsEvicted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tocsin_incidents_evicted_total",
		Help: "Resolved Incidents that the leading replica deleted before their retention was over, because their " +
			"namespace had more of them than its share of --max-incidents.",
	})

	episodesOmitted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tocsin_archive_omitted_episodes_total",
		Help: "Ended episodes that will not have a record in the archive, because their Incident was reopened too often while " +
			"others waited. The record of an earlier episode counts them.",
	})

	archiveOverdue = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tocsin_archive_overdue_incidents",
		Help: "Resolved Incidents that had waited for the archive for over 15 minutes when the leading replica last visited all, " +
			"which it does every hour, or every 15 minutes while there are any. They are not deleted.",
	})

	clockOffset = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tocsin_clock_offset_seconds",
		Help: "How far the clock of this replica is ahead of the API server's; negative when it is behind. Beyond a " +
			"minute the leading replica resolves no Incident for silence and deletes none.",
	})
)

// Metrics of the objects in the store, see storeCounts.
var (
	pendingDesc = prometheus.NewDesc("tocsin_alertevents_pending",
		"AlertEvents in the cluster that are not yet released, reported alike by every replica.", nil, nil)
	oldestAgeDesc = prometheus.NewDesc("tocsin_alertevents_oldest_age_seconds",
		"Age of the oldest AlertEvent that is not yet released, 0 without any, reported alike by every replica; "+
			"those that may be there for their idempotency key alone do not count.", nil, nil)
	incidentsDesc = prometheus.NewDesc("tocsin_incidents",
		"Incidents in the cluster, by state. Those that are not Resolved also by severity, reported alike by every replica; the "+
			"number of the Resolved ones by the leading replica, as its newest sweep and its own writes tell it.",
		[]string{"state", "severity"}, nil)
)

// RegisterMetrics registers the metrics of the controllers, all but those of StoreMetrics.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(foldDuration, foldLag, alertsFoldedTotal, incidentsEvicted, episodesOmitted, archiveOverdue,
		clockOffset)
}

// StoreMetrics describes the metrics that a replica registers with Options.Metrics while its manager runs.
func StoreMetrics() prometheus.Collector { return newStoreCounts(Options{}.withDefaults()) }

func countFolded(result string, alerts int) {
	alertsFoldedTotal.WithLabelValues(result).Add(float64(alerts))
}

// observeFold counts the alerts that one fold dealt with. The lag is that of the alerts that a status
// counts now.
func observeFold(results []fold.AlertResult, now time.Time) {
	for _, result := range results {
		countFolded(result.Result, 1)
		switch result.Result {
		case fold.ResultNoMatch, fold.ResultInvalid:
		default:
			foldLag.Observe(max(0, now.Sub(result.Received).Seconds()))
		}
	}
}
