package heartbeat

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// maxSeries bounds the heartbeats with metrics, and maxOwnSeries those of a namespace: tenants may define many.
const (
	maxSeries    = 10_000
	maxOwnSeries = 2_000
)

var labels = []string{"namespace", "integration", "heartbeat"}

var (
	lastSignalDesc = prometheus.NewDesc("tocsin_heartbeat_last_signal_timestamp_seconds",
		"When the last signal of a heartbeat came, in seconds since 1970, as status.heartbeats of its integration has it. The "+
			"leading replica reports it, for up to 10,000 heartbeats, 2,000 of a namespace.", labels, nil)
	missedDesc = prometheus.NewDesc("tocsin_heartbeat_missed",
		"1 while a heartbeat is missed, else 0. The leading replica reports it, for up to 10,000 heartbeats, 2,000 of a namespace.",
		labels, nil)
)

// RegisterMetrics registers the metrics of heartbeats.
func RegisterMetrics(registry prometheus.Registerer) { registry.MustRegister(leading) }

// leading reports the heartbeats while this process leads.
var leading = &collector{}

// collector reads the heartbeats from the cache for each scrape.
type collector struct {
	cache atomic.Pointer[client.Reader] // of the leader's term; nil on other replicas
}

// report has the heartbeats in a cache reported until ctx ends.
func (c *collector) report(ctx context.Context, cache client.Reader) {
	c.cache.Store(&cache)
	context.AfterFunc(ctx, func() { c.cache.CompareAndSwap(&cache, nil) })
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- lastSignalDesc
	descs <- missedDesc
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	cache := c.cache.Load()
	if cache == nil {
		return
	}
	var list v1alpha1.WebhookIntegrationList
	if (*cache).List(context.Background(), &list, client.UnsafeDisableDeepCopy) != nil {
		return // an error would fail the whole scrape
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.WebhookIntegration) int { // so that the limit always leaves out the same ones
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	left, own := maxSeries, map[string]int{} // of each namespace
	for i := range list.Items {
		integration := &list.Items[i]
		heartbeats := integration.Status.Heartbeats
		heartbeats = heartbeats[:min(len(heartbeats), left, maxOwnSeries-own[integration.Namespace])]
		left -= len(heartbeats)
		own[integration.Namespace] += len(heartbeats)
		for j := range heartbeats {
			h := &heartbeats[j]
			gauge := func(desc *prometheus.Desc, value float64) {
				metrics <- prometheus.MustNewConstMetric(
					desc, prometheus.GaugeValue, value, integration.Namespace, integration.Name, h.Name)
			}
			missed := 0.0
			if h.MissedTime != nil {
				missed = 1
			}
			gauge(missedDesc, missed)
			if h.LastSignalTime != nil {
				gauge(lastSignalDesc, float64(h.LastSignalTime.UnixMicro())/1e6)
			}
		}
	}
}
