package archive

import "github.com/prometheus/client_golang/prometheus"

// Operations of tocsin_archive_failures_total.
const (
	operationRead     = "read"
	operationWrite    = "write"
	operationCombine  = "combine"
	operationIncident = "incident"
	operationDecode   = "decode"
)

var (
	recordsTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tocsin_archive_records_total",
		Help: "Records of ended episodes that the archiver wrote.",
	})
	bytesTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tocsin_archive_written_bytes_total",
		Help: "Bytes that the archiver wrote.",
	})
	failuresTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_archive_failures_total",
		Help: "Failed operations, by operation: read, write, combine (small objects), incident (the API server did not " +
			"return an Incident, or did not accept its note) and decode (of an episode in status.unarchivedEpisodes, " +
			"which is skipped). All but decode are repeated.",
	}, []string{"operation"})
	lastSuccess = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tocsin_archive_last_success_timestamp_seconds",
		Help: "Unix time at which the store last accepted a request, or at which the archiver first tried.",
	})
	waitingIncidents = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tocsin_archive_waiting_incidents",
		Help: "Incidents with ended episodes that are not in the archive yet.",
	})
	oldestWaiting = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tocsin_archive_oldest_waiting_seconds",
		Help: "How long the first of the waiting Incidents has waited, as far as this archiver knows.",
	})
)

// RegisterMetrics registers the metrics of the archive.
func RegisterMetrics(registry prometheus.Registerer) {
	for _, operation := range []string{operationRead, operationWrite, operationCombine, operationIncident, operationDecode} {
		failuresTotal.WithLabelValues(operation)
	}
	registry.MustRegister(recordsTotal, bytesTotal, failuresTotal, lastSuccess, waitingIncidents, oldestWaiting)
}
