package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// The noisy neighbour and the other tenant.
const (
	noisyRate    = 3000 // new keys a second
	noisySenders = 64
	calmRate     = 5
	repeatedKeys = 1000
	foldPatience = 30 * time.Second
)

// noisyRow is what a tenant with a few alerts notices of another one that opens thousands of Incidents a second: alone,
// beside the storm, and while the storm's backlog drains. Times are in seconds.
type noisyRow struct {
	Name      string         `json:"name"`
	StormRate float64        `json:"stormPerSecond"`
	Backlog   int            `json:"backlog"` // of the storm's alerts at the end that are not folded yet
	Codes     map[string]int `json:"codes"`   // answers to the tenant with a few alerts
	P50       float64        `json:"p50"`
	P99       float64        `json:"p99"`
	LagP50    float64        `json:"lagP50"` // from the answer to the Incident's status
	LagMax    float64        `json:"lagMax"`
	Unfolded  int            `json:"unfolded"` // not folded within 30 s
}

// measureNoisyNeighbour measures the three phases. The queue limit is out of the way: it is not what is measured.
func (c *cluster) measureNoisyNeighbour(ctx context.Context, duration time.Duration) ([]noisyRow, error) {
	c.args = append(slices.Clone(c.args), "--max-pending-events=200000")
	tenants, err := c.begin(ctx, 2)
	if err != nil {
		return nil, err
	}
	defer c.manager.Kill()
	storm, calm := tenants[0], tenants[1]
	rows := []noisyRow{c.measureCalm(ctx, "alone", calm, duration)}
	var account *loadgen.Account
	var both sync.WaitGroup
	both.Go(func() {
		account = loadgen.Run(ctx, loadgen.Load{
			URLs: []string{c.manager.WebhookURL + storm.token}, Senders: noisySenders, Rate: noisyRate, Duration: duration,
			Key: loadgen.UniqueKeys(),
		})
	})
	beside := c.measureCalm(ctx, "beside the storm", calm, duration)
	both.Wait()
	beside.StormRate = account.Rate()
	drain := c.measureCalm(ctx, "while it drains", calm, duration)
	var incidents v1alpha1.IncidentList
	if err := c.client.List(ctx, &incidents, client.InNamespace(storm.namespace)); err != nil {
		return nil, err
	}
	drain.Backlog = account.Acknowledged() - len(incidents.Items)
	rows = append(rows, beside, drain)
	for i := range rows {
		r := &rows[i]
		fmt.Printf("noisy-neighbour, %-17s storm %4.0f/s, backlog %5d; answers %v, p50 %5.1f ms, p99 %6.1f ms (%.1f times); "+
			"folded after p50 %.2f s, at most %.2f s, %d not\n", r.Name+":", r.StormRate, r.Backlog, r.Codes, r.P50*1000, r.P99*1000,
			r.P99/rows[0].P99, r.LagP50, r.LagMax, r.Unfolded)
	}
	return rows, nil
}

// measureRepeats measures how soon a new Incident opens while 64 senders repeat the alerts of the same integration's open
// Incidents.
func (c *cluster) measureRepeats(ctx context.Context, duration time.Duration) (*noisyRow, error) {
	tenants, err := c.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer c.manager.Kill()
	t := tenants[0]
	repeats := loadgen.Load{
		URLs: []string{c.manager.WebhookURL + t.token}, Senders: noisySenders, Requests: repeatedKeys,
		Key: loadgen.RotatingKeys(repeatedKeys),
	}
	loadgen.Run(ctx, repeats)
	if _, err := c.drained(ctx, t); err != nil {
		return nil, err
	}
	repeats.Requests, repeats.Rate, repeats.Duration = 0, noisyRate, duration
	var account *loadgen.Account
	var both sync.WaitGroup
	both.Go(func() { account = loadgen.Run(ctx, repeats) })
	row := c.measureCalm(ctx, "beside repeats of its own integration", t, duration)
	both.Wait()
	row.StormRate = account.Rate()
	fmt.Printf("repeats: %4.0f/s of %d keys; new keys: answers %v, p99 %.1f ms; folded after p50 %.2f s, at most %.2f s, %d not\n",
		row.StormRate, repeatedKeys, row.Codes, row.P99*1000, row.LagP50, row.LagMax, row.Unfolded)
	return &row, nil
}

// measureCalm posts a few alerts with a key each, and watches for their Incidents.
func (c *cluster) measureCalm(ctx context.Context, name string, t tenant, duration time.Duration) noisyRow {
	row := noisyRow{Name: name, Codes: map[string]int{}}
	var mu sync.Mutex
	var latencies, lags []time.Duration
	var posts sync.WaitGroup
	key := loadgen.UniqueKeys()
	ticker := time.NewTicker(time.Second / calmRate)
	defer ticker.Stop()
	for n := range int(duration.Seconds() * calmRate) {
		<-ticker.C
		posts.Go(func() {
			one := loadgen.Run(ctx, loadgen.Load{
				URLs: []string{c.manager.WebhookURL + t.token}, Senders: 1, Requests: 1, Key: func(int) string { return key(n) },
			})
			lag, folded := time.Duration(0), false
			if one.Acknowledged() > 0 {
				lag, folded = c.foldedAfter(ctx, t, key(n))
			}
			mu.Lock()
			defer mu.Unlock()
			for code := range one.Codes {
				row.Codes[code]++
			}
			latencies = append(latencies, one.Latencies...)
			switch {
			case folded:
				lags = append(lags, lag)
			case one.Acknowledged() > 0:
				row.Unfolded++
			}
		})
	}
	posts.Wait()
	slices.Sort(latencies)
	slices.Sort(lags)
	row.P50, row.P99 = loadgen.Quantile(latencies, 0.5).Seconds(), loadgen.Quantile(latencies, 0.99).Seconds()
	row.LagP50, row.LagMax = loadgen.Quantile(lags, 0.5).Seconds(), loadgen.Quantile(lags, 1).Seconds()
	return row
}

// foldedAfter is how long it takes until the key's alert is folded.
func (c *cluster) foldedAfter(ctx context.Context, t tenant, key string) (time.Duration, bool) {
	name := client.ObjectKey{Namespace: t.namespace, Name: v1alpha1.IncidentName(t.integration, key)}
	start := time.Now()
	err := testenv.AwaitThat(ctx, foldPatience, "the alert is not folded", func(ctx context.Context) bool {
		var incident v1alpha1.Incident
		return c.client.Get(ctx, name, &incident) == nil && incident.Status.AlertCount > 0
	})
	return time.Since(start), err == nil
}

// cells are the cells of a row in the report.
func (r *noisyRow) cells() []string {
	text := func(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
	return []string{r.Name, strconv.FormatFloat(r.StormRate, 'f', 0, 64), fmt.Sprint(r.Codes), text(r.P50 * 1000),
		text(r.P99 * 1000), text(r.LagP50), text(r.LagMax), strconv.Itoa(r.Unfolded)}
}
