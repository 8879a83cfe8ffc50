package heartbeat

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

var labels = []string{"namespace", "integration", "heartbeat"}

var (
	lastSignalDesc = prometheus.NewDesc("tocsin_heartbeat_last_signal_timestamp_seconds",
		"Unix time of the last signal, as in the heartbeat's status, reported by the leader for the 500 "+
			"heartbeats of a namespace, and 8,000 in all, that count.", labels, nil)
	missedDesc = prometheus.NewDesc("tocsin_heartbeat_missed",
		"1 while a heartbeat is missed, else 0; reported by the leader for the heartbeats that count.", labels, nil)
)

// RegisterMetrics registers the metrics of heartbeats.
func RegisterMetrics(registry prometheus.Registerer) { registry.MustRegister(leading) }

// leading reports the heartbeats while this process leads.
var leading = &collector{}

// collector reads the heartbeats from the cache for each scrape. The cache bounds how many there are.
type collector struct {
	cache atomic.Pointer[client.Reader] // of the leader's term; nil on other replicas
}

// report has the heartbeats in a cache reported until ctx ends.
func (c *collector) report(ctx context.Context, cache client.Reader) {
	c.cache.Store(&cache)
	context.AfterFunc(ctx, func() { c.cache.CompareAndSwap(&cache, nil) })
}

func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- lastSignalDesc
	descs <- missedDesc
}

func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	cache := c.cache.Load()
	if cache == nil {
		return
	}
	var list v1alpha1.HeartbeatList
	if (*cache).List(context.Background(), &list, client.UnsafeDisableDeepCopy) != nil {
		return // an error would fail the whole scrape
	}
	for i := range list.Items {
		h := &list.Items[i]
		gauge := func(desc *prometheus.Desc, value float64) {
			metrics <- prometheus.MustNewConstMetric(
				desc, prometheus.GaugeValue, value, h.Namespace, h.Spec.IntegrationName, h.Name)
		}
		missed := 0.0
		if h.Status.MissedTime != nil {
			missed = 1
		}
		gauge(missedDesc, missed)
		if last := h.Status.LastSignalTime; last != nil {
			gauge(lastSignalDesc, float64(last.UnixMicro())/1e6)
		}
	}
}
