package controllers

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// durationBuckets are good for 1 ms to 30 s.
var durationBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

// lagBuckets are finer about one and two seconds, where the lag of a busy Incident lies.
var lagBuckets = []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 5, 10, 30, 60}

var (
	foldDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "tocsin_fold_duration_seconds",
		Help: "Time of one fold into an Incident, from reading the Incident to its written status, " +
			"reported by the leading replica.",
		Buckets: durationBuckets,
	})

	foldLag = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tocsin_fold_lag_seconds",
		Help:    "Time from the receipt of an alert to the Incident's status that counts it, reported by the leading replica.",
		Buckets: lagBuckets,
	})

	alertsFoldedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tocsin_alerts_folded_total",
		Help: "Alerts taken from the queue by the leading replica, by result: opened, updated, resolved, reopened, " +
			"acknowledged, late (of an episode that has ended), nomatch (there is no such Incident), replayed (a second " +
			"copy of one alert), invalid (it contradicts its Incident). After a restart, nomatch and invalid may count " +
			"an alert again.",
	}, []string{"result"})

	eventsAside = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tocsin_alertevents_set_aside",
		Help: "AlertEvents whose folds failed again and again and that wait to be tried again, reported by the leading " +
			"replica; a Kubernetes Event on each says why.",
	})

	clockOffset = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tocsin_clock_offset_seconds",
		Help: "How far the clock of this replica is ahead of the API server's; negative when it is behind. Beyond a " +
			"minute the leading replica resolves no Incident for silence and deletes none.",
	})

	stored = &storeCollector{
		pending: prometheus.NewDesc("tocsin_alertevents_pending",
			"AlertEvents in the cluster that are not yet released, reported alike by every replica.", nil, nil),
		oldestAge: prometheus.NewDesc("tocsin_alertevents_oldest_age_seconds",
			"Age of the oldest AlertEvent that is not yet released, 0 without any, reported alike by every replica; "+
				"those that may be there for their idempotency key alone do not count.", nil, nil),
		incidents: prometheus.NewDesc("tocsin_incidents",
			"Incidents in the cluster, by state and severity, reported alike by every replica.",
			[]string{"state", "severity"}, nil),
	}
)

// RegisterMetrics registers the metrics of the controllers.
func RegisterMetrics(registry prometheus.Registerer) {
	registry.MustRegister(foldDuration, foldLag, alertsFoldedTotal, eventsAside, clockOffset, stored)
}

func countFolded(result string, alerts int) {
	alertsFoldedTotal.WithLabelValues(result).Add(float64(alerts))
}

// observeFold counts the alerts that one fold dealt with. The lag is that of the alerts that a status
// counts now.
func observeFold(results []alertResult, now time.Time) {
	for _, result := range results {
		countFolded(result.result, 1)
		switch result.result {
		case resultNoMatch, resultReplayed, resultInvalid:
		default:
			foldLag.Observe(max(0, now.Sub(result.received).Seconds()))
		}
	}
}

// storeCollector counts what the cache holds when it is asked. The cache is there on every replica, and
// a count that is made anew cannot drift.
type storeCollector struct {
	pending, oldestAge, incidents *prometheus.Desc

	source atomic.Pointer[storeSource]
}

// storeSource is what a storeCollector counts.
type storeSource struct {
	reader client.Reader
	synced func() bool
	now    func() time.Time
}

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.pending
	descs <- c.oldestAge
	descs <- c.incidents
}

// Collect implements prometheus.Collector. Until the cache is filled there is nothing to say.
func (c *storeCollector) Collect(metrics chan<- prometheus.Metric) {
	source := c.source.Load()
	if source == nil || !source.synced() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.collectEvents(ctx, source, metrics)
	c.collectIncidents(ctx, source, metrics)
}

func (c *storeCollector) collectEvents(ctx context.Context, source *storeSource, metrics chan<- prometheus.Metric) {
	var events v1alpha1.AlertEventList
	if err := source.reader.List(ctx, &events, client.UnsafeDisableDeepCopy); err != nil {
		metrics <- prometheus.NewInvalidMetric(c.pending, err)
		return
	}
	now := source.now()
	oldest := now
	for i := range events.Items {
		event := &events.Items[i]
		created := event.CreationTimestamp.Time
		if v1alpha1.IsKeyedEventName(event.Name) && now.Sub(created) < keyedLinger+time.Minute {
			continue
		}
		if created.Before(oldest) {
			oldest = created
		}
	}
	metrics <- prometheus.MustNewConstMetric(c.pending, prometheus.GaugeValue, float64(len(events.Items)))
	metrics <- prometheus.MustNewConstMetric(c.oldestAge, prometheus.GaugeValue, now.Sub(oldest).Seconds())
}

func (c *storeCollector) collectIncidents(ctx context.Context, source *storeSource, metrics chan<- prometheus.Metric) {
	var incidents v1alpha1.IncidentList
	if err := source.reader.List(ctx, &incidents, client.UnsafeDisableDeepCopy); err != nil {
		metrics <- prometheus.NewInvalidMetric(c.incidents, err)
		return
	}
	type group struct {
		state    v1alpha1.IncidentState
		severity v1alpha1.Severity
	}
	counts := map[group]int{}
	for _, state := range []v1alpha1.IncidentState{v1alpha1.IncidentOpen, v1alpha1.IncidentResolved} {
		for _, severity := range []v1alpha1.Severity{
			v1alpha1.SeverityCritical, v1alpha1.SeverityError, v1alpha1.SeverityWarning, v1alpha1.SeverityInfo,
		} {
			counts[group{state, severity}] = 0
		}
	}
	for i := range incidents.Items {
		if status := &incidents.Items[i].Status; status.State != "" {
			counts[group{status.State, status.Alert.Severity}]++
		}
	}
	for group, count := range counts {
		metrics <- prometheus.MustNewConstMetric(c.incidents, prometheus.GaugeValue, float64(count),
			string(group.state), string(group.severity))
	}
}
