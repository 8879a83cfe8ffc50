package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// families are the metrics of one process at one time.
type families map[string]*dto.MetricFamily

// scrape reads the metrics of a manager.
func scrape(ctx context.Context, m *testenv.Manager) (families, error) {
	return parse(testenv.Call(ctx, http.MethodGet, m.MetricsURL, ""))
}

// apiServerMetrics reads the API server's metrics.
func (c *cluster) apiServerMetrics(ctx context.Context) (families, error) {
	return parse(c.askAPIServer(ctx, "/metrics"))
}

func parse(metrics string, err error) (families, error) {
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(metrics))
}

func (c *cluster) askAPIServer(ctx context.Context, uri string) (string, error) {
	answer, err := c.clients.RESTClient().Get().RequestURI(uri).DoRaw(ctx)
	return string(answer), err
}

// sum adds up the values of a counter or gauge whose labels are as wanted.
func (f families) sum(name string, want map[string]string) float64 {
	var total float64
	for _, metric := range f[name].GetMetric() {
		found := 0
		for _, label := range metric.GetLabel() {
			if value, ok := want[label.GetName()]; ok && value == label.GetValue() {
				found++
			}
		}
		if found == len(want) {
			total += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return total
}

// buckets are a histogram's cumulative counts by upper bound.
type buckets map[float64]float64

func (f families) foldLag() buckets {
	b := buckets{}
	for _, metric := range f["tocsin_fold_lag_seconds"].GetMetric() {
		// The text format has a bucket for the infinite bound.
		for _, bucket := range metric.GetHistogram().GetBucket() {
			b[bucket.GetUpperBound()] += float64(bucket.GetCumulativeCount())
		}
	}
	return b
}

// minus is what was observed since an earlier reading.
func (b buckets) minus(earlier buckets) buckets {
	difference := buckets{}
	for bound, n := range b {
		difference[bound] = n - earlier[bound]
	}
	return difference
}

// quantile interpolates within the bucket that holds the quantile, as Prometheus does; what lies above
// the last bound counts as that bound.
func (b buckets) quantile(q float64) float64 {
	bounds := slices.Sorted(maps.Keys(b))
	if len(bounds) == 0 || b[math.Inf(1)] == 0 {
		return 0
	}
	rank := q * b[math.Inf(1)]
	lower, below := 0.0, 0.0
	for _, bound := range bounds {
		if math.IsInf(bound, 1) {
			break
		}
		if b[bound] >= rank {
			return lower + (bound-lower)*(rank-below)/math.Max(b[bound]-below, 1)
		}
		lower, below = bound, b[bound]
	}
	return lower
}
