package main

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// scaleRow is what two replicas do in a cluster with so many Incidents. Times are in seconds, memory in bytes.
type scaleRow struct {
	Incidents    int     `json:"incidents"` // 95 % Resolved
	Integrations int     `json:"integrations"`
	Ready        float64 `json:"readyAfter"` // both replicas, started at once
	Drain        float64 `json:"pendingDrainedAfter"`
	P99          float64 `json:"p99"`
	LagP99       float64 `json:"lagP99"`
	PeakRSS      []int64 `json:"managerPeakRSS"`
	APIServerRSS float64 `json:"apiServerBytesPerIncident"`
	Get          float64 `json:"kubectlTocsinGet"` // of all namespaces' open Incidents
}

// scaleKeys is how many keys the load of a scaleRow has, and scaleRate how many alerts a second.
const (
	scaleKeys = 50
	scaleRate = 200

	// scalePending is how many AlertEvents wait when the replicas start.
	scalePending = 2000
)

// scaleTitles are the columns of a scaleRow.
var scaleTitles = []any{
	"Incidents", "Integrations", "Ready s", "Pending drained s", "p99 ms", "Lag p99 s", "Replicas' MiB", "API server KiB/Incident",
	"kubectl tocsin get -A s",
}

// cells returns a row's columns as text.
func (r scaleRow) cells() []string {
	var rss []string
	for _, bytes := range r.PeakRSS {
		rss = append(rss, fmt.Sprint(bytes>>20))
	}
	return []string{
		fmt.Sprint(r.Incidents), fmt.Sprint(r.Integrations), decimal(1, r.Ready), decimal(1, r.Drain),
		decimal(1, r.P99*1000), decimal(2, r.LagP99), strings.Join(rss, ", "), decimal(1, r.APIServerRSS/1024), decimal(2, r.Get),
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
		row := scaleRow{Incidents: incidents, Integrations: min(incidents, 10000)}
		if err := s.fill(ctx, &row); err != nil {
			return nil, fmt.Errorf("filling the cluster: %w", err)
		}
		if err := s.measure(ctx, &row, o.duration); err != nil {
			return nil, err
		}
		fmt.Println("| " + strings.Join(row.cells(), " | ") + " |")
		rows = append(rows, row)
	}
	return rows, nil
}

// measure starts two replicas on what there is and measures.
func (s *scaleSite) measure(ctx context.Context, row *scaleRow, duration time.Duration) error {
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
	if err := s.measureLoad(ctx, replicas, row, duration); err != nil {
		return err
	}
	began = time.Now()
	get := exec.CommandContext(ctx, s.plugin, "get", "-A", "--kubeconfig", s.plane.Kubeconfig)
	if err := get.Run(); err != nil {
		return fmt.Errorf("running the plugin: %w", err)
	}
	row.Get = time.Since(began).Seconds()
	return s.noteMemory(replicas, row)
}

// measureLoad measures a steady load of both replicas.
func (s *scaleSite) measureLoad(ctx context.Context, replicas []*testenv.Manager, row *scaleRow, duration time.Duration) error {
	load := loadgen.Load{
		URLs: urlsOf(replicas, s.load), Senders: 32, Rate: scaleRate, Duration: duration / 2,
		Key: func(n int) string { return "load-" + strconv.Itoa(n%scaleKeys) },
	}
	loadgen.Run(ctx, load) // the first alerts open Incidents
	if _, err := s.drained(ctx, s.load); err != nil {
		return err
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

// noteMemory sets the peaks of the replicas, and the API server's memory for each Incident.
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
