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
