package heartbeat

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// maxSeries bounds the heartbeats with metrics: tenants may define many.
const maxSeries = 10_000

var labels = []string{"namespace", "integration", "heartbeat"}

var (
	lastSignal = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tocsin_heartbeat_last_signal_timestamp_seconds",
		Help: "When the last signal of a heartbeat came, in seconds since 1970, as status.heartbeats of its integration has it. The " +
			"leading replica reports it, for up to 10,000 heartbeats.",
	}, labels)

	missedGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tocsin_heartbeat_missed",
		Help: "1 while a heartbeat is missed, else 0. The leading replica reports it, for up to 10,000 heartbeats.",
	}, labels)
)

// RegisterMetrics registers the metrics of heartbeats.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(lastSignal, missedGauge)
}

// series are the heartbeats that have metrics, by integration.
type series struct {
	mu    sync.Mutex
	ended bool
	names map[types.NamespacedName][]string
	count int
}

func newSeries() *series { return &series{names: map[types.NamespacedName][]string{}} }

// set replaces the metrics of an integration.
func (s *series) set(integration types.NamespacedName, heartbeats []v1alpha1.HeartbeatStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	for _, name := range s.names[integration] {
		if v1alpha1.FindHeartbeat(heartbeats, name) == nil {
			remove(integration, name)
		}
	}
	s.count -= len(s.names[integration])
	delete(s.names, integration)
	for i := range heartbeats {
		h := &heartbeats[i]
		if s.count >= maxSeries {
			remove(integration, h.Name)
			continue
		}
		s.names[integration] = append(s.names[integration], h.Name)
		s.count++
		missed := 0.0
		if h.MissedTime != nil {
			missed = 1
		}
		missedGauge.WithLabelValues(integration.Namespace, integration.Name, h.Name).Set(missed)
		if h.LastSignalTime != nil {
			lastSignal.WithLabelValues(integration.Namespace, integration.Name, h.Name).Set(float64(h.LastSignalTime.UnixMicro()) / 1e6)
		}
	}
}

// clear removes all metrics at the end of a term: another leader reports them.
func (s *series) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for integration, names := range s.names {
		for _, name := range names {
			remove(integration, name)
		}
	}
}

func remove(integration types.NamespacedName, name string) {
	lastSignal.DeleteLabelValues(integration.Namespace, integration.Name, name)
	missedGauge.DeleteLabelValues(integration.Namespace, integration.Name, name)
}
