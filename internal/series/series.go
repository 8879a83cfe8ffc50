// Package series bounds the metrics that are labelled by integration. Users decide how many integrations there are, and each has
// a series for every route, status code and reason: ten thousand would have half a million.
package series

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/internal/fair"
)

const (
	// maxNamed is how many series of a namespace have the name of their integration, and maxAllNamed how many there are in all.
	maxNamed    = 4_000
	maxAllNamed = 20_000
)

// Limit gives places to the series of vectors that share it. First come, first served; an integration gives its places back when
// it is deleted. The vectors begin with the labels namespace and integration.
type Limit struct {
	mu    sync.Mutex
	used  fair.Budget[string]                       // by namespace
	named map[types.NamespacedName]map[string]named // of each integration that exists, by vector and labels
}

// named is a series that has the name of its integration.
type named struct {
	vector *prometheus.MetricVec
	values []string
}

// NewLimit returns a Limit without any series.
func NewLimit() *Limit {
	const all = maxAllNamed * 2 / 3 // a fair.Limit has a reserve of half as much
	return &Limit{
		used:  fair.Budget[string]{Limit: fair.Limit{All: all, Share: float64(maxNamed) / all}},
		named: map[types.NamespacedName]map[string]named{},
	}
}

// Add notes that an integration exists. Before, and once it is deleted, its series are not named: a request that is answered
// later would make some that nobody removes.
func (l *Limit) Add(integration types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.named[integration] == nil {
		l.named[integration] = map[string]named{}
	}
}

// Forget removes the series of an integration that was deleted.
func (l *Limit) Forget(integration types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.named[integration] {
		l.remove(integration, key)
	}
	delete(l.named, integration)
}

func (l *Limit) remove(integration types.NamespacedName, key string) {
	if series, ok := l.named[integration][key]; ok {
		series.vector.DeleteLabelValues(series.values...)
		delete(l.named[integration], key)
		l.used.Add(integration.Namespace, -1)
	}
}

// values returns the values of all labels of a series. They are without the name of the integration, and isNamed is false, if the
// series has no place. The caller holds the mutex until the series exists.
func (l *Limit) values(vector *prometheus.MetricVec, name string, integration types.NamespacedName, labels []string) (
	values []string, isNamed bool,
) {
	values, key := append([]string{integration.Namespace, integration.Name}, labels...), keyOf(name, labels)
	own, exists := l.named[integration]
	if _, known := own[key]; known {
		return values, true
	}
	if !exists || !l.used.Allows(integration.Namespace) {
		values[1] = ""
		return values, false
	}
	own[key] = named{vector, values}
	l.used.Add(integration.Namespace, 1)
	return values, true
}

func keyOf(name string, labels []string) string { return name + "\x00" + strings.Join(labels, "\x00") }

func labelsOf(more []string) []string { return append([]string{"namespace", "integration"}, more...) }

// CounterVec is a vector of counters. Those of a namespace that have no place are one for all integrations, whose name is empty.
type CounterVec struct {
	*prometheus.CounterVec
	name  string
	limit *Limit
}

// NewCounterVec returns a vector with the labels namespace, integration and some more.
func NewCounterVec(limit *Limit, options prometheus.CounterOpts, labels ...string) *CounterVec {
	return &CounterVec{prometheus.NewCounterVec(options, labelsOf(labels)), options.Name, limit}
}

// Of returns the counter of an integration with the values of the other labels.
func (v *CounterVec) Of(integration types.NamespacedName, labels ...string) prometheus.Counter {
	v.limit.mu.Lock()
	defer v.limit.mu.Unlock()
	values, _ := v.limit.values(v.MetricVec, v.name, integration, labels)
	return v.WithLabelValues(values...)
}

// GaugeVec is a vector of gauges. Those that have no place do not exist.
type GaugeVec struct {
	*prometheus.GaugeVec
	name  string
	limit *Limit
}

// NewGaugeVec returns a vector with the labels namespace, integration and some more.
func NewGaugeVec(limit *Limit, options prometheus.GaugeOpts, labels ...string) *GaugeVec {
	return &GaugeVec{prometheus.NewGaugeVec(options, labelsOf(labels)), options.Name, limit}
}

// Set sets the gauge of an integration with the values of the other labels, if it has a place.
func (v *GaugeVec) Set(integration types.NamespacedName, value float64, labels ...string) {
	v.limit.mu.Lock()
	defer v.limit.mu.Unlock()
	if values, isNamed := v.limit.values(v.MetricVec, v.name, integration, labels); isNamed {
		v.WithLabelValues(values...).Set(value)
	}
}

// Remove removes a gauge.
func (v *GaugeVec) Remove(integration types.NamespacedName, labels ...string) {
	v.limit.mu.Lock()
	defer v.limit.mu.Unlock()
	v.limit.remove(integration, keyOf(v.name, labels))
}
