// Command metricsdoc writes docs/metrics.md, on its standard output, from the metrics that the packages
// register.
package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/controllers/archive"
	"github.com/tocsin-dev/tocsin/controllers/forward"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/webhookserver"
)

const introduction = `<!-- Written by hack/gen/metricsdoc; "make generate" writes it anew. -->

# Metrics

The manager and the archiver serve ` + "`/metrics`" + ` in the Prometheus format at ` + "`--metrics-bind-address`" + `:
by default over HTTPS on port 8443, for clients that may ` + "`get`" + ` the path ` + "`/metrics`" + ` of the cluster. Bind
the ClusterRole ` + "`tocsin-metrics-reader`" + ` to the service account of Prometheus.

Every replica reports the gauges of AlertEvents, Incidents, limits and tokens alike, unless they say otherwise: aggregate them
with ` + "`max`" + `.

At most 4,000 series of a namespace, and 20,000 in all, name a WebhookIntegration in the label ` + "`integration`" + `,
first come, first served. Beyond that, the counters of a namespace have an empty one, and there are no more gauges of tokens. A
deleted integration makes place for others.

controller-runtime, the Go runtime and the process have metrics too. [kube-state-metrics](kube-state-metrics.md) serves metrics
of each Incident and WebhookIntegration.
`

func main() {
	r := registry{process: "manager"}
	webhookserver.RegisterMetrics(&r)
	r.MustRegister(&capacity.Counts{})
	controllers.RegisterMetrics(&r)
	forward.RegisterMetrics(&r)
	r.process = "archiver"
	archive.RegisterMetrics(&r)
	if err := write(os.Stdout, r.metrics); err != nil {
		fmt.Fprintln(os.Stderr, "metricsdoc:", err)
		os.Exit(1)
	}
}

// metric is what the page says of one metric.
type metric struct {
	name, kind, help, process string
	labels                    []string
}

// registry remembers what is registered with it by MustRegister. The packages call none of its other methods.
type registry struct {
	prometheus.Registerer

	metrics []metric
	process string // that has what is registered next
}

// MustRegister remembers the metrics of some collectors.
func (r *registry) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() {
			c.Describe(descs)
			close(descs)
		}()
		for desc := range descs {
			m, err := describe(desc, c)
			if err != nil {
				panic(err)
			}
			m.process = r.process
			r.metrics = append(r.metrics, m)
		}
	}
}

// description matches the string of a Desc, which is all that it tells of itself.
var description = regexp.MustCompile(
	`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"),.* variableLabels: \{(.*)\}\}$`)

func describe(desc *prometheus.Desc, c prometheus.Collector) (metric, error) {
	parts := description.FindStringSubmatch(desc.String())
	if parts == nil {
		return metric{}, fmt.Errorf("cannot read the description %s", desc)
	}
	name, nameErr := strconv.Unquote(parts[1])
	help, helpErr := strconv.Unquote(parts[2])
	m := metric{name: name, kind: kind(c, name), help: help}
	if parts[3] != "" {
		m.labels = strings.Split(parts[3], ",")
	}
	return m, cmp.Or(nameErr, helpErr)
}

// kind is the type of a metric. The name tells a counter, as promlinter has it.
func kind(c prometheus.Collector, name string) string {
	_, isVector := c.(*prometheus.HistogramVec)
	if _, is := c.(prometheus.Histogram); is || isVector {
		return "Histogram"
	}
	if strings.HasSuffix(name, "_total") {
		return "Counter"
	}
	return "Gauge"
}

// write writes the page, the metrics in the order of their names.
func write(w io.Writer, metrics []metric) error {
	slices.SortFunc(metrics, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	page := strings.Builder{}
	page.WriteString(introduction)
	for _, m := range metrics {
		about := m.kind
		if m.process != "manager" {
			about += " of the " + m.process
		}
		if len(m.labels) > 0 {
			about += " by `" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&page, "\n## %s\n\n%s.\n\n%s\n", m.name, about, m.help)
	}
	_, err := io.WriteString(w, page.String())
	return err
}
