package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
)

// maxFaults is how many lines of what does not agree are printed.
const maxFaults = 10

// drainSenders is how many senders the load has whose unique keys are to show how fast they are drained: it takes
// minutes.
const drainSenders = 64

// scenario is one load.
type scenario struct {
	name    string
	keys    string
	senders int
	rate    float64
	load    loadgen.Load
}

// result is a row of the table. Times are in seconds, memory in bytes.
type result struct {
	Name           string         `json:"name"`
	Senders        int            `json:"senders"`
	Keys           string         `json:"keys"`
	OfferedRate    float64        `json:"offeredRate,omitempty"`
	Acknowledged   int            `json:"acknowledged"`
	AcceptedRate   float64        `json:"acceptedPerSecond"`
	YardstickRate  float64        `json:"yardstickPerSecond"`
	YardstickP50   float64        `json:"yardstickP50"`
	Ratio          float64        `json:"ratio"`
	Alertmanager   float64        `json:"alertmanagerPerSecond,omitempty"`
	P50            float64        `json:"p50"`
	P90            float64        `json:"p90"`
	P99            float64        `json:"p99"`
	Max            float64        `json:"max"`
	AlertsPerEvent float64        `json:"alertsPerEvent"`
	WritesPerAlert float64        `json:"writesPerAlert"`
	LagP50         float64        `json:"lagP50"`
	LagP99         float64        `json:"lagP99"`
	Drain          float64        `json:"drain"`
	FoldedRate     float64        `json:"foldedPerSecond"`
	ManagerCPU     float64        `json:"managerCPUPer1000"`
	APIServerCPU   float64        `json:"apiServerCPUPer1000"`
	ManagerPeakRSS int64          `json:"managerPeakRSS"`
	APIServerRSS   int64          `json:"apiServerPeakRSS"`
	Codes          map[string]int `json:"codes"`
	// Requests to the API server per alert, by verb and resource.
	Requests map[string]float64 `json:"requestsPerAlert"`
	// Steps are the parts of the processor time; without -profiles, there are none.
	Steps profiles `json:"steps"`
}

func scenarios(o options) []scenario {
	var list []scenario
	for _, senders := range []int{1, 8, 64, 256} {
		for _, keys := range []string{"shared", "rotating", "unique"} {
			s := scenario{name: fmt.Sprintf("closed-%d-%s", senders, keys), keys: keys, senders: senders}
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
	steady := loadgen.Load{Senders: 32, Rate: 200, Duration: 6 * o.duration, Key: loadgen.RotatingKeys(50)}
	return append(list, scenario{name: "open-steady", keys: "50", senders: 32, rate: steady.Rate, load: steady})
}

// reading is what is read before a load and after it.
type reading struct {
	manager, apiServer           families
	managerUsage, apiServerUsage usage
}

func (c *cluster) read(ctx context.Context) (r reading, err error) {
	var errs [4]error
	r.manager, errs[0] = scrape(ctx, c.manager)
	r.apiServer, errs[1] = c.apiServerMetrics(ctx)
	r.managerUsage, errs[2] = processUsage(c.manager.PID())
	r.apiServerUsage, errs[3] = processUsage(c.plane.APIServers[0].PID())
	return r, errors.Join(errs[:]...)
}

// measure runs the yardstick and then the scenario, and checks the fold.
func (c *cluster) measure(ctx context.Context, s scenario) (*result, error) {
	yardstick, err := c.yardstick(ctx, s.senders)
	if err != nil {
		return nil, fmt.Errorf("measuring plain creates: %w", err)
	}
	alertmanager, err := c.measureAlertmanager(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("measuring Alertmanager: %w", err)
	}
	tenants, err := c.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer c.manager.Kill()
	t := tenants[0]
	before, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	s.load.URLs = []string{c.manager.WebhookURL + t.token}
	profiled := func() (p profiles, err error) { return p, nil }
	if c.profiles != "" {
		profiled = c.profile(ctx, c.profiles, s)
	}
	account := loadgen.Run(ctx, s.load)
	took, err := profiled()
	if err != nil {
		return nil, err
	}
	drain, err := c.drained(ctx, t)
	if err != nil {
		return nil, err
	}
	after, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.check(ctx, t, account); err != nil {
		return nil, err
	}
	r := newResult(s, account, before, after)
	r.Drain, r.Steps = drain.Seconds(), took
	r.FoldedRate = float64(account.Acknowledged()) / (account.Elapsed + drain).Seconds()
	r.YardstickRate, r.YardstickP50 = yardstick.rate, yardstick.p50.Seconds()
	r.Ratio, r.Alertmanager = r.AcceptedRate/r.YardstickRate, alertmanager
	return r, c.clear(ctx, t.namespace)
}

// check fails when an acknowledged alert of the tenant was not folded exactly once.
func (c *cluster) check(ctx context.Context, t tenant, account *loadgen.Account) error {
	faults, err := loadgen.Check(ctx, c.client, t.namespace, t.integration, account, maxFaults)
	if err == nil && len(faults) > 0 {
		err = fmt.Errorf("not folded exactly once:\n%s", strings.Join(faults, "\n"))
	}
	return err
}

func newResult(s scenario, account *loadgen.Account, before, after reading) *result {
	alerts := float64(max(account.Acknowledged(), 1))
	writes := growth(before.apiServer, after.apiServer, map[string]string{
		"group": v1alpha1.GroupVersion.Group, "verb": "POST|PUT|PATCH|DELETE",
	})
	lag := after.manager.foldLag().minus(before.manager.foldLag())
	return &result{
		Name: s.name, Senders: s.senders, Keys: s.keys, OfferedRate: s.rate,
		Acknowledged: account.Acknowledged(), AcceptedRate: account.Rate(), Codes: account.Codes,
		P50: account.Quantile(0.5).Seconds(), P90: account.Quantile(0.9).Seconds(),
		P99: account.Quantile(0.99).Seconds(), Max: account.Quantile(1).Seconds(),
		AlertsPerEvent: alerts / max(eventsCreated(before.apiServer, after.apiServer), 1), WritesPerAlert: writes / alerts,
		LagP50: lag.quantile(0.5), LagP99: lag.quantile(0.99),
		ManagerCPU:     (after.managerUsage.cpuSeconds - before.managerUsage.cpuSeconds) / alerts * 1000,
		APIServerCPU:   (after.apiServerUsage.cpuSeconds - before.apiServerUsage.cpuSeconds) / alerts * 1000,
		Requests:       requestsPerAlert(before.apiServer, after.apiServer, alerts),
		ManagerPeakRSS: after.managerUsage.peakRSS, APIServerRSS: after.apiServerUsage.peakRSS,
	}
}

// eventsCreated is how many AlertEvents were created between two readings of the API server's metrics.
func eventsCreated(before, after families) float64 {
	return growth(before, after, map[string]string{
		"group": v1alpha1.GroupVersion.Group, "verb": "POST", "resource": "alertevents", "code": "201",
	})
}

// requestsPerAlert returns the requests between two readings of the API server's metrics, those of single ones left out.
func requestsPerAlert(before, after families, alerts float64) map[string]float64 {
	const requests, rare = "apiserver_request_total", 0.005
	rates := map[string]float64{}
	for _, metric := range after[requests].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			if slices.Contains([]string{"verb", "resource", "subresource"}, label.GetName()) {
				labels[label.GetName()] = label.GetValue()
			}
		}
		name := strings.TrimSuffix(labels["verb"]+" "+labels["resource"]+"/"+labels["subresource"], "/")
		if rate := growth(before, after, labels) / alerts; rate >= rare {
			rates[name] = rate
		}
	}
	return rates
}

// growth is how many requests with these labels the API server had between two readings of its metrics.
func growth(before, after families, labels map[string]string) float64 {
	const requests = "apiserver_request_total"
	return after.sum(requests, labels) - before.sum(requests, labels)
}

// alertmanagerRatio returns the accepted rate relative to Alertmanager's, 0 when that was not measured.
func (r *result) alertmanagerRatio() float64 {
	if r.Alertmanager == 0 {
		return 0
	}
	return r.AcceptedRate / r.Alertmanager
}

// drainRatio returns the rate of folded alerts relative to plain creates.
func (r *result) drainRatio() float64 { return r.FoldedRate / r.YardstickRate }

const rowFormat = "%-20s %7s %9s %9s %6s %6s %6s %8s %8s %8s %8s %7s %7s %8s %8s %7s %8s %8s %7s %7s\n"

func printHeader() {
	fmt.Printf(rowFormat, "scenario", "alerts", "accept/s", "create/s", "ratio", "am/s", "ratio", "p50 ms", "p90 ms", "p99 ms",
		"max ms", "al/ev", "wr/al", "lag50 s", "lag99 s", "drain s", "fold/s", "mgr cpu", "api cpu", "RSS MiB")
}

func (r *result) print() {
	ms := func(s float64) string { return fmt.Sprintf("%.1f", s*1000) }
	f := func(digits int, v float64) string { return fmt.Sprintf("%.*f", digits, v) }
	fmt.Printf(rowFormat, r.Name, fmt.Sprint(r.Acknowledged), f(0, r.AcceptedRate), f(0, r.YardstickRate), f(2, r.Ratio),
		f(0, r.Alertmanager), f(2, r.alertmanagerRatio()), ms(r.P50), ms(r.P90), ms(r.P99), ms(r.Max),
		f(1, r.AlertsPerEvent), f(2, r.WritesPerAlert), f(3, r.LagP50), f(3, r.LagP99),
		f(1, r.Drain), f(0, r.FoldedRate), f(2, r.ManagerCPU), f(2, r.APIServerCPU), fmt.Sprint(r.ManagerPeakRSS>>20))
	for code, n := range r.Codes {
		if code != "202" {
			fmt.Printf("    %d requests answered %s\n", n, code)
		}
	}
}

// printLog prints the end of the manager's log, for a run that failed.
func (c *cluster) printLog() error {
	const tail = 4 << 10
	info, err := c.log.Stat()
	if err != nil {
		return err
	}
	_, err = io.Copy(os.Stderr, io.NewSectionReader(c.log, max(0, info.Size()-tail), tail))
	return err
}
