package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// maxFaults is how many lines of what does not agree are printed.
const maxFaults = 10

// drainSenders is how many senders the load has whose unique keys are to show how fast they are drained: it takes
// minutes.
const drainSenders = 64

type scenario struct {
	name string
	keys string
	load loadgen.Load
}

func scenarios(o options) []scenario {
	var list []scenario
	for _, senders := range []int{1, 8, 64, 256} {
		for _, keys := range []string{"shared", "rotating", "unique"} {
			s := scenario{name: fmt.Sprintf("closed-%d-%s", senders, keys), keys: keys}
			s.load = loadgen.Load{Senders: senders, Duration: o.duration}
			switch keys {
			case "shared":
				s.load.Key = loadgen.SharedKey
			case "rotating":
				s.load.Key = loadgen.RotatingKeys(1000)
			case "unique":
				s.load.Key, s.load.Requests = loadgen.UniqueKeys(), o.unique/4
				if senders == drainSenders {
					s.load.Requests = o.unique
				}
			}
			list = append(list, s)
		}
	}
	return list
}

// reading is what is read of the processes before a load and after it.
type reading [2]struct {
	families
	peak int64 // of its memory, in bytes
}

func (c *cluster) read(ctx context.Context) (r reading, err error) {
	m := c.managers[0]
	if r[0].families, err = scrape(ctx, m); err != nil {
		return r, err
	}
	if r[1].families, err = c.apiServerMetrics(ctx); err != nil {
		return r, err
	}
	for i, pid := range []int{m.PID(), c.APIServers[0].PID()} {
		if _, r[i].peak, err = testenv.Memory(pid); err != nil {
			return r, err
		}
	}
	return r, nil
}

type result struct {
	scenario
	plain, account *loadgen.Account // of plain creates, and of the load
	alertmanager   float64          // its accepted alerts a second
	drain          time.Duration
	before, after  reading
	steps          [2][]share // of the processes; empty without -profiles
}

// measureLoads measures the loads that the command line selects.
func (c *cluster) measureLoads(ctx context.Context) error {
	list := slices.DeleteFunc(scenarios(c.options), func(s scenario) bool { return !c.takes(s.name) })
	if len(list) == 0 {
		return nil
	}
	beginTable("Senders", "Keys", "Answers", "Accepted/s", "Creates/s", "Ratio", "Alertmanager/s", "To Alertmanager", "p50 ms",
		"p90 ms", "p99 ms", "Max ms", "Create p50 ms", "Alerts/event", "Lag p50 s", "Lag p99 s", "Drain s", "Folded/s",
		"Folded/creates", "Manager ms", "API server ms", "Manager MiB", "API server MiB", "Requests per alert")
	var results []*result
	for _, s := range list {
		r, err := c.measure(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		c.stopManagers()
		r.print()
		results = append(results, r)
	}
	if c.profiles == "" {
		return nil
	}
	beginTable("Load", "Process", "Step", "ms for each alert")
	for _, r := range results {
		for i, p := range processes {
			for _, share := range r.steps[i] {
				printRow(r.name, p.name, share.step, share.part*r.processorTime(i))
			}
		}
	}
	return nil
}

// measure runs the yardstick and then the scenario, and checks the fold.
func (c *cluster) measure(ctx context.Context, s scenario) (r *result, err error) {
	r = &result{scenario: s}
	if r.plain, err = c.yardstick(ctx, s.load.Senders); err != nil {
		return nil, fmt.Errorf("measuring plain creates: %w", err)
	}
	if r.alertmanager, err = c.measureAlertmanager(ctx, s.load); err != nil {
		return nil, fmt.Errorf("measuring Alertmanager: %w", err)
	}
	tenants, err := c.begin(ctx, 1, 1)
	if err != nil {
		return nil, err
	}
	t := tenants[0]
	if r.before, err = c.read(ctx); err != nil {
		return nil, err
	}
	s.load.URLs = c.urls(t)
	profiled := c.profile(ctx, s)
	r.account = loadgen.Run(ctx, s.load)
	if r.steps, err = profiled(); err != nil {
		return nil, err
	}
	if r.drain, err = c.drained(ctx, t); err != nil {
		return nil, err
	}
	if r.after, err = c.read(ctx); err != nil {
		return nil, err
	}
	faults, err := loadgen.Check(ctx, c.Client, t.namespace, t.integration, r.account, maxFaults)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("not folded exactly once:\n%s", strings.Join(faults, "\n"))
	}
	return r, c.clear(ctx, t.namespace)
}

func (r *result) print() {
	accepted, plain := r.account.Rate(), r.plain.Rate()
	folded := r.alerts() / (r.account.Elapsed + r.drain).Seconds()
	lag := r.after[0].foldLag().minus(r.before[0].foldLag())
	ms := func(q float64) float64 { return milliseconds(r.account.Quantile(q)) }
	printRow(r.load.Senders, r.keys, r.account.Codes, accepted, plain, accepted/plain, r.alertmanager, accepted/r.alertmanager,
		ms(0.5), ms(0.9), ms(0.99), ms(1), milliseconds(r.plain.Quantile(0.5)), r.alerts()/r.eventsCreated(),
		lag.quantile(0.5), lag.quantile(0.99), r.drain, folded, folded/plain, r.processorTime(0), r.processorTime(1),
		r.after[0].peak>>20, r.after[1].peak>>20, r.requestsPerAlert())
}

func (r *result) alerts() float64 { return float64(r.account.Acknowledged()) }

func (r *result) growth(process int, name string, labels map[string]string) float64 {
	return r.after[process].sum(name, labels) - r.before[process].sum(name, labels)
}

// processorTime is how long a process computed for each alert, in milliseconds.
func (r *result) processorTime(process int) float64 {
	return 1000 * r.growth(process, "process_cpu_seconds_total", nil) / r.alerts()
}

const apiRequests = "apiserver_request_total"

func (r *result) eventsCreated() float64 {
	return r.growth(1, apiRequests, map[string]string{
		"group": v1alpha1.GroupVersion.Group, "verb": "POST", "resource": "alertevents", "code": "201",
	})
}

// requestsPerAlert returns the requests to the API server by verb and resource, those of single ones left out.
func (r *result) requestsPerAlert() map[string]float64 {
	const rare = 0.005
	rates := map[string]float64{}
	for _, metric := range r.after[1].families[apiRequests].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			if slices.Contains([]string{"verb", "resource", "subresource"}, label.GetName()) {
				labels[label.GetName()] = label.GetValue()
			}
		}
		name := strings.TrimSuffix(labels["verb"]+" "+labels["resource"]+"/"+labels["subresource"], "/")
		if rate := r.growth(1, apiRequests, labels) / r.alerts(); rate >= rare {
			rates[name] = math.Round(100*rate) / 100
		}
	}
	return rates
}
