package incident

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
)

var (
	foldDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tocsin_fold_duration_seconds",
		Help:    "Time of one fold, from reading the Incident to its written status, reported by the leader.",
		Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	})

	foldLag = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "tocsin_fold_lag_seconds",
		Help: "Time from the receipt of an alert to the Incident's status that counts it, reported by the leader.",
		// Finer about one and two seconds, where the lag of a busy Incident lies.
		Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 5, 10, 30, 60},
	})
)

// RegisterMetrics registers the metrics of the folds.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(foldDuration, foldLag)
	registry.MustRegister(episodesOmitted)
}

// observeFold counts the alerts that one fold dealt with. The lag is that of the alerts that a status counts now.
func observeFold(results []fold.AlertResult, now time.Time) {
	for _, result := range results {
		replica.CountFolded(result.Result, 1)
		if result.Result != fold.ResultNoMatch && result.Result != fold.ResultInvalid {
			foldLag.Observe(max(0, now.Sub(result.Received).Seconds()))
		}
	}
}
