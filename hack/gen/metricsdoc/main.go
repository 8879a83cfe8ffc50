// Command metricsdoc writes docs/metrics.md, on its standard output, from the metrics that the packages
// register.
package main

import (
	_ "embed" // the page
	"fmt"
	"os"
	"slices"
	"strings"
	"text/template"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tocsin-dev/tocsin/controllers"
	"github.com/tocsin-dev/tocsin/controllers/archive"
	"github.com/tocsin-dev/tocsin/controllers/forward"
	"github.com/tocsin-dev/tocsin/controllers/heartbeat"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/webhookserver"
)

// page is the template of the page.
//
//go:embed page.md.tmpl
var page string

func main() {
	r := registry{process: "manager"}
	webhookserver.RegisterMetrics(&r)
	r.MustRegister(&capacity.Counts{})
	controllers.RegisterMetrics(&r)
	forward.RegisterMetrics(&r)
	heartbeat.RegisterMetrics(&r)
	r.process = "archiver"
	archive.RegisterMetrics(&r)
	slices.SortFunc(r.metrics, func(a, b metric) int { return strings.Compare(a.Name, b.Name) })
	if err := template.Must(template.New("page").Parse(page)).Execute(os.Stdout, r.metrics); err != nil {
		fmt.Fprintln(os.Stderr, "metricsdoc:", err)
		os.Exit(1)
	}
}

// metric is what the page says of one metric.
type metric struct{ Name, Kind, Help, Labels, Process string }

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
			m := metric{Process: r.process}
			text := desc.String() // which is all that it tells of itself
			_, err := fmt.Sscanf(text, "Desc{fqName: %q, help: %q", &m.Name, &m.Help)
			_, labels, found := strings.Cut(strings.TrimSuffix(text, "}}"), "variableLabels: {")
			if err != nil || !found {
				panic("cannot read the description " + text)
			}
			m.Kind, m.Labels = kind(c, m.Name), strings.ReplaceAll(labels, ",", "`, `")
			r.metrics = append(r.metrics, m)
		}
	}
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
