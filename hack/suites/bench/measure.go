package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// clockTicks is the unit of the times in /proc/PID/stat: USER_HZ, which is 100 a second on Linux.
const clockTicks = 100

// families are the metrics of one process at one time.
type families map[string]*dto.MetricFamily

func parseMetrics(r io.Reader) (families, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(r)
}

// scrape reads the metrics of a manager.
func scrape(ctx context.Context, m *testenv.Manager) (families, error) {
	text, err := testenv.Call(ctx, http.MethodGet, m.MetricsURL, "")
	if err != nil {
		return nil, fmt.Errorf("reading the manager's metrics: %w", err)
	}
	return parseMetrics(strings.NewReader(text))
}

// apiServerMetrics reads the API server's metrics.
func (c *cluster) apiServerMetrics(ctx context.Context) (families, error) {
	text, err := c.askAPIServer(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	return parseMetrics(bytes.NewReader(text))
}

func (c *cluster) askAPIServer(ctx context.Context, uri string) ([]byte, error) {
	clients, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	return clients.RESTClient().Get().RequestURI(uri).DoRaw(ctx)
}

// sum adds up the values of a counter whose labels are as wanted; a wanted value may list several,
// separated by "|".
func (f families) sum(name string, want map[string]string) float64 {
	var total float64
	for _, metric := range f[name].GetMetric() {
		if labelsMatch(metric, want) {
			total += metric.GetCounter().GetValue()
		}
	}
	return total
}

func labelsMatch(metric *dto.Metric, want map[string]string) bool {
	found := 0
	for _, label := range metric.GetLabel() {
		wanted, ok := want[label.GetName()]
		if !ok {
			continue
		}
		if !slices.Contains(strings.Split(wanted, "|"), label.GetValue()) {
			return false
		}
		found++
	}
	return found == len(want)
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

// usage is what a process has used so far.
type usage struct {
	cpuSeconds float64
	peakRSS    int64 // bytes
}

func processUsage(pid int) (usage, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return usage{}, fmt.Errorf("reading the use of a process: %w", err)
	}
	// The fields follow the command's name, which stands in parentheses and may hold spaces.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	_, peak, err := testenv.Memory(pid)
	return usage{cpuSeconds: (user + system) / clockTicks, peakRSS: peak}, err
}
