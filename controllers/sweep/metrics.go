package sweep

import "github.com/prometheus/client_golang/prometheus"

var incidentsEvicted = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "tocsin_incidents_evicted_total",
	Help: "Resolved Incidents that the leader deleted before their retention was over, because their namespace had " +
		"more than its share of --max-incidents, or of 512 MiB of them.",
})

// RegisterMetrics registers the metrics of the sweep.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(incidentsEvicted)
	registry.MustRegister(archiveOverdue)
}
