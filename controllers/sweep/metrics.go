package sweep

import "github.com/prometheus/client_golang/prometheus"

var (
	incidentsEvicted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tocsin_incidents_evicted_total",
		Help: "Resolved Incidents that the leader deleted before their retention was over, because their namespace had " +
			"more than its share of --max-incidents, or of 512 MiB of them.",
	})

	archiveOverdue = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tocsin_archive_overdue_incidents",
		Help: "Resolved Incidents that had waited for the archive for over 15 minutes when the leader last visited " +
			"all, every hour, or every 15 minutes while there are any. They are not deleted.",
	})
)

// RegisterMetrics registers the metrics of the sweep.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(incidentsEvicted, archiveOverdue)
}
