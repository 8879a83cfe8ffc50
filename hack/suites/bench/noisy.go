package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// The noisy neighbour and the other tenant.
const (
	noisyRate    = 3000 // alerts a second
	noisySenders = 64
	calmRate     = 5
	repeatedKeys = 1000
	foldPatience = 30 * time.Second
)

// calm is what the sender of a few alerts notices.
type calm struct {
	account  *loadgen.Account
	lags     []time.Duration // from the answer to the Incident's status, sorted
	unfolded int             // not folded within foldPatience
}

func beginCalmTable() {
	beginTable("A few alerts", "Storm/s", "Its backlog", "Answers", "p50 ms", "p99 ms", "Folded after p50 s", "At most s",
		"Not within 30 s")
}

func (r *calm) print(name string, stormRate float64, backlog int) {
	printRow(name, stormRate, backlog, r.account.Codes,
		milliseconds(r.account.Quantile(0.5)), milliseconds(r.account.Quantile(0.99)),
		loadgen.Quantile(r.lags, 0.5), loadgen.Quantile(r.lags, 1), r.unfolded)
}

// measureNoisyNeighbour measures what a tenant with a few alerts notices of another one that opens thousands of Incidents a
// second: alone, beside the storm, and while the storm's backlog drains. The queue limit is out of the way: it is not what is
// measured.
func (c *cluster) measureNoisyNeighbour(ctx context.Context) error {
	c.args += " --max-pending-events=200000"
	tenants, err := c.begin(ctx, 2, 1)
	if err != nil {
		return err
	}
	storm, few := tenants[0], tenants[1]
	beginCalmTable()
	c.measureCalm(ctx, few).print("alone", 0, 0)
	account, beside := c.measureBeside(ctx, loadgen.Load{URLs: c.urls(storm), Key: loadgen.UniqueKeys()}, few)
	beside.print("beside the storm", account.Rate(), 0)
	drain := c.measureCalm(ctx, few)
	var incidents v1alpha1.IncidentList
	if err := c.Client.List(ctx, &incidents, client.InNamespace(storm.namespace)); err != nil {
		return err
	}
	drain.print("while it drains", 0, account.Acknowledged()-len(incidents.Items))
	return nil
}

// measureRepeats measures how soon a new Incident opens while 64 senders repeat the alerts of the same integration's open
// Incidents.
func (c *cluster) measureRepeats(ctx context.Context) error {
	tenants, err := c.begin(ctx, 1, 1)
	if err != nil {
		return err
	}
	repeats := loadgen.Load{
		URLs: c.urls(tenants[0]), Senders: noisySenders, Requests: repeatedKeys, Key: loadgen.RotatingKeys(repeatedKeys),
	}
	loadgen.Run(ctx, repeats)
	if _, err := c.drained(ctx, tenants[0]); err != nil {
		return err
	}
	repeats.Requests = 0
	account, row := c.measureBeside(ctx, repeats, tenants[0])
	beginCalmTable()
	row.print("beside repeats of its own integration", account.Rate(), 0)
	return nil
}

// measureBeside measures a few alerts beside a storm.
func (c *cluster) measureBeside(ctx context.Context, storm loadgen.Load, t tenant) (account *loadgen.Account, row *calm) {
	storm.Senders, storm.Rate, storm.Duration = noisySenders, noisyRate, c.duration
	var both sync.WaitGroup
	both.Go(func() { account = loadgen.Run(ctx, storm) })
	row = c.measureCalm(ctx, t)
	both.Wait()
	return account, row
}

// measureCalm posts a few alerts of a tenant with a key each, and watches for their Incidents.
func (c *cluster) measureCalm(ctx context.Context, t tenant) *calm {
	row := &calm{account: loadgen.NewAccount()}
	var mu sync.Mutex
	var posts sync.WaitGroup
	key := loadgen.UniqueKeys()
	ticker := time.NewTicker(time.Second / calmRate)
	defer ticker.Stop()
	for n := range int(c.duration.Seconds() * calmRate) {
		<-ticker.C
		posts.Go(func() {
			one := loadgen.Run(ctx, loadgen.Load{URLs: c.urls(t), Senders: 1, Requests: 1, Key: func(int) string { return key(n) }})
			lag, folded := time.Duration(0), false
			if one.Acknowledged() > 0 {
				lag, folded = c.foldedAfter(ctx, t, key(n))
			}
			mu.Lock()
			defer mu.Unlock()
			row.account.Add(one)
			switch {
			case folded:
				row.lags = append(row.lags, lag)
			case one.Acknowledged() > 0:
				row.unfolded++
			}
		})
	}
	posts.Wait()
	slices.Sort(row.lags)
	return row
}

// foldedAfter is how long it takes until the key's alert is folded.
func (c *cluster) foldedAfter(ctx context.Context, t tenant, key string) (time.Duration, bool) {
	name := client.ObjectKey{Namespace: t.namespace, Name: v1alpha1.IncidentName(t.integration, key)}
	start := time.Now()
	err := testenv.AwaitThat(ctx, foldPatience, "the alert is not folded", func(ctx context.Context) bool {
		var incident v1alpha1.Incident
		return c.Client.Get(ctx, name, &incident) == nil && incident.Status.AlertCount > 0
	})
	return time.Since(start), err == nil
}
