package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// scaleRow is what two replicas do in a cluster with so many Incidents. Times are in seconds, memory in bytes.
type scaleRow struct {
	Incidents    int     `json:"incidents"` // 95 % Resolved
	Integrations int     `json:"integrations"`
	Pending      int     `json:"pendingAtStart"`
	Ready        float64 `json:"readyAfter"` // both replicas, started at once
	StatusWrites float64 `json:"integrationWritesAtStart"`
	Drain        float64 `json:"pendingDrainedAfter"`
	Scrape       float64 `json:"scrape"` // the slowest of ten
	P99          float64 `json:"p99"`
	LagP99       float64 `json:"lagP99"`
	Takeover     float64 `json:"takeover"` // from kill -9 of the leader to the fold of an alert sent after it
	PeakRSS      []int64 `json:"managerPeakRSS"`
	APIServerRSS float64 `json:"apiServerBytesPerIncident"`

	Plugin []pluginRun `json:"plugin,omitempty"`
}

// scaleKeys is how many keys the load of a scaleRow has, and scaleRate how many alerts a second.
const (
	scaleKeys    = 50
	scaleRate    = 200
	scaleScrapes = 10

	// scalePending is how many AlertEvents wait when the replicas start.
	scalePending = 2000

	// takeoverTimeout bounds a takeover, in a cluster with very many objects.
	takeoverTimeout = 2 * time.Minute
)

// scaleTitles are the columns of a scaleRow.
var scaleTitles = []any{
	"Incidents", "Integrations", "Ready s", "Pending drained s", "Scrape ms", "p99 ms", "Lag p99 s", "Takeover s",
	"Writes of integrations at start", "Replicas' MiB", "API server KiB/Incident",
}

// cells returns a row's columns as text.
func (r *scaleRow) cells() []string {
	var rss []string
	for _, bytes := range r.PeakRSS {
		rss = append(rss, fmt.Sprint(bytes>>20))
	}
	f := func(digits int, v float64) string { return fmt.Sprintf("%.*f", digits, v) }
	return []string{
		fmt.Sprint(r.Incidents), fmt.Sprint(r.Integrations), f(1, r.Ready), f(1, r.Drain), f(0, r.Scrape*1000), f(1, r.P99*1000),
		f(2, r.LagP99), f(1, r.Takeover), f(0, r.StatusWrites), strings.Join(rss, ", "), f(1, r.APIServerRSS/1024),
	}
}

// measureScale fills the cluster in steps, and measures after each.
func (c *cluster) measureScale(ctx context.Context, o options) ([]scaleRow, error) {
	fmt.Println(strings.Trim(fmt.Sprintf("%q", scaleTitles), "[]"))
	s, err := c.newScaleSite(ctx)
	if err != nil {
		return nil, err
	}
	var rows []scaleRow
	for size := range strings.SplitSeq(o.incidents, ",") {
		incidents, err := strconv.Atoi(size)
		if err != nil {
			return nil, fmt.Errorf("-incidents: %w", err)
		}
		row := scaleRow{Incidents: incidents, Integrations: min(incidents, 10000), Pending: scalePending}
		if err := s.fill(ctx, &row); err != nil {
			return nil, fmt.Errorf("filling the cluster: %w", err)
		}
		if err := s.measure(ctx, &row, o.duration); err != nil {
			return nil, err
		}
		fmt.Println("| " + strings.Join(row.cells(), " | ") + " |")
		for _, run := range row.Plugin {
			fmt.Printf("    kubectl tocsin %-24s first row %.2f s, end %.2f s, %d rows, %d MiB\n",
				run.Command, run.First, run.End, run.Rows, run.PeakRSS>>20)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// measure starts two replicas on what there is and measures.
func (s *scaleSite) measure(ctx context.Context, row *scaleRow, duration time.Duration) error {
	before, err := s.apiServerMetrics(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	replicas, err := s.startReplicas(ctx, 2)
	defer func() { stopAll(replicas) }()
	if err != nil {
		return err
	}
	row.Ready = time.Since(began).Seconds()
	began = time.Now()
	if _, err := s.drained(ctx, tenant{namespace: s.namespace}); err != nil {
		return err
	}
	row.Drain = time.Since(began).Seconds()
	after, err := s.apiServerMetrics(ctx)
	if err != nil {
		return err
	}
	row.StatusWrites = growth(before, after, map[string]string{"resource": "webhookintegrations", "verb": "PATCH"})
	if err := s.measureLoad(ctx, replicas, row, duration); err != nil {
		return err
	}
	if row.Plugin, err = s.measurePlugin(ctx); err != nil {
		return fmt.Errorf("running the plugin: %w", err)
	}
	return s.measureTakeover(ctx, replicas, row)
}

// measureLoad measures scrapes, and a steady load of both replicas.
func (s *scaleSite) measureLoad(ctx context.Context, replicas []*testenv.Manager, row *scaleRow, duration time.Duration) error {
	var urls []string
	for _, replica := range replicas {
		urls = append(urls, replica.WebhookURL+s.load.token)
	}
	load := loadgen.Load{
		URLs: urls, Senders: 32, Rate: scaleRate, Duration: duration / 2,
		Key: func(n int) string { return "load-" + strconv.Itoa(n%scaleKeys) },
	}
	loadgen.Run(ctx, load) // the first alerts open Incidents
	if _, err := s.drained(ctx, s.load); err != nil {
		return err
	}
	for n := range scaleScrapes * len(replicas) {
		began := time.Now()
		if _, err := scrape(ctx, replicas[n%len(replicas)]); err != nil {
			return err
		}
		row.Scrape = max(row.Scrape, time.Since(began).Seconds())
	}
	before, err := lagOf(ctx, replicas)
	if err != nil {
		return err
	}
	load.Duration = 2 * duration
	account := loadgen.Run(ctx, load)
	if _, err := s.drained(ctx, s.load); err != nil {
		return err
	}
	after, err := lagOf(ctx, replicas)
	if err != nil {
		return err
	}
	row.P99, row.LagP99 = account.Quantile(0.99).Seconds(), after.minus(before).quantile(0.99)
	return nil
}

// measureTakeover kills the leader, and waits until the other replica has folded an alert that was sent after that.
func (s *scaleSite) measureTakeover(ctx context.Context, replicas []*testenv.Manager, row *scaleRow) error {
	leader, err := testenv.Leader(ctx, takeoverTimeout, replicas)
	if err != nil {
		return err
	}
	if err := s.noteMemory(replicas, row); err != nil {
		return err
	}
	killed := time.Now()
	if err := replicas[leader].Signal(syscall.SIGKILL); err != nil {
		return err
	}
	other, key := replicas[1-leader], "takeover-"+strconv.Itoa(row.Incidents)
	account := loadgen.Run(ctx, loadgen.Load{
		URLs: []string{other.WebhookURL + s.load.token}, Senders: 1, Requests: 1, Key: func(int) string { return key },
	})
	if account.Acknowledged() != 1 {
		return fmt.Errorf("an alert after the leader's end: %v", account.Codes)
	}
	name := client.ObjectKey{Namespace: s.load.namespace, Name: v1alpha1.IncidentName(s.load.integration, key)}
	err = testenv.AwaitThat(ctx, takeoverTimeout, "nobody takes over", func(ctx context.Context) bool {
		incident := &v1alpha1.Incident{}
		return s.client.Get(ctx, name, incident) == nil && incident.Status.State == v1alpha1.IncidentOpen
	})
	if err != nil {
		return err
	}
	row.Takeover = time.Since(killed).Seconds()
	return s.noteMemory([]*testenv.Manager{other}, row)
}

// noteMemory adds the peaks of replicas, and sets the API server's memory for each Incident.
func (s *scaleSite) noteMemory(replicas []*testenv.Manager, row *scaleRow) error {
	for _, replica := range replicas {
		_, peak, err := testenv.Memory(replica.PID())
		if err != nil {
			return err
		}
		row.PeakRSS = append(row.PeakRSS, peak)
	}
	resident, _, err := testenv.Memory(s.apiServer)
	row.APIServerRSS = float64(resident-s.emptyRSS) / float64(row.Incidents)
	return err
}

// lagOf returns the fold lags that replicas have observed.
func lagOf(ctx context.Context, replicas []*testenv.Manager) (buckets, error) {
	all := buckets{}
	for _, replica := range replicas {
		metrics, err := scrape(ctx, replica)
		if err != nil {
			return nil, err
		}
		for bound, n := range maps.All(metrics.foldLag()) {
			all[bound] += n
		}
	}
	return all, nil
}
