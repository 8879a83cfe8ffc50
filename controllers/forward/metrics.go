package forward

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of alerts in tocsin_forward_alerts_total.
const (
	resultSent     = "sent"
	resultFailed   = "failed"
	resultRejected = "rejected"
)

var (
	alertsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_forward_alerts_total",
		Help: "Alerts that the leader posted, by result: sent (accepted), failed (posted again later), rejected (not " +
			"accepted, though Alertmanager accepts requests). Every alert is posted repeatedly.",
	}, []string{"alertmanager", "address", "result"})

	lastSuccess = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tocsin_forward_last_success_timestamp_seconds",
		Help: "Unix time at which an Alertmanager last accepted a request of the leader, or at which the leader first " +
			"tried.",
	}, []string{"alertmanager", "address"})

	clockAhead = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tocsin_forward_clock_ahead_seconds",
		Help: "How far the clock of an Alertmanager is ahead of the API server's (negative: behind), by the Date of " +
			"its answers to the leader.",
	}, []string{"alertmanager", "address"})

	latency = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "tocsin_forward_latency_seconds",
		Help: "Time from the receipt of an alert that changed an Incident until an Alertmanager accepted the change, " +
			"reported by the leader.",
		Buckets: []float64{0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 30, 60, 300, 900},
	})

	silencesSynced = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tocsin_forward_silences_last_success_timestamp_seconds",
		Help: "Unix time at which the leader last read and wrote its silences in an Alertmanager without a failure, or " +
			"at which it first tried.",
	}, []string{"alertmanager"})

	criticalUntold = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tocsin_critical_incidents_untold",
		Help: "Open critical Incidents that no Alertmanager tells people of, by the reason in status.forwarding " +
			"(Pending: not posted yet), reported by the leader with --alertmanager-config.",
	}, []string{"namespace", "reason"})

	// configValid is a vector without labels: a replica without the flag does not report it.
	configValid = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tocsin_forward_config_valid",
		Help: "Whether the file of --alertmanager-config is valid on this replica, absent without the flag. While it " +
			"is not, the last valid content stays in use.",
	}, nil)
)

// RegisterMetrics registers the metrics of the forwarding.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(alertsTotal, lastSuccess, clockAhead, latency, silencesSynced, criticalUntold, configValid)
}

// addressMetrics are the series of one address of an Alertmanager.
type addressMetrics struct{ alertmanager, address string }

// count counts alerts by result.
func (m addressMetrics) count(result string, alerts int) {
	alertsTotal.WithLabelValues(m.alertmanager, m.address, result).Add(float64(alerts))
}

func (m addressMetrics) succeeded(at time.Time) {
	lastSuccess.WithLabelValues(m.alertmanager, m.address).Set(float64(at.Unix()))
}

func (m addressMetrics) setAhead(ahead time.Duration) {
	clockAhead.WithLabelValues(m.alertmanager, m.address).Set(ahead.Seconds())
}

// remove removes the series of an address that is no longer used, or of a leader whose term has ended.
func (m addressMetrics) remove() {
	labels := prometheus.Labels{"alertmanager": m.alertmanager, "address": m.address}
	lastSuccess.DeletePartialMatch(labels)
	clockAhead.DeletePartialMatch(labels)
	alertsTotal.DeletePartialMatch(labels)
}
