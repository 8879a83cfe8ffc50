package replica

import "github.com/prometheus/client_golang/prometheus"

var alertsFoldedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "tocsin_alerts_folded_total",
	Help: "Alerts that the leader took from the queue, by result: opened, updated, resolved, reopened, " +
		"acknowledged, unacknowledged, silenced, assigned, unassigned, late (of an episode that has ended), nomatch " +
		"(no such Incident), replayed (a second copy, counted by the replica that deletes it), restored (from a " +
		"backup, not counted), invalid (contradicts its Incident). After a restart, nomatch and invalid may count an " +
		"alert again.",
}, []string{"result"})

var clockOffset = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "tocsin_clock_offset_seconds",
	Help: "How far the clock of this replica is ahead of the API server's, by which Tocsin goes; negative when it " +
		"is behind.",
})

// RegisterMetrics registers the metrics of a process.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(alertsFoldedTotal, clockOffset)
}

// CountFolded counts alerts that were taken from the queue, by the result.
func CountFolded(result string, alerts int) {
	alertsFoldedTotal.WithLabelValues(result).Add(float64(alerts))
}
