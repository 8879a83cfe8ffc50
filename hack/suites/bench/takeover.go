package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	takeoverReplicas = 3
	takeoverRuns     = 9 // of each end of a leader

	// takeoverTimeout bounds a takeover, in a cluster with very many objects.
	takeoverTimeout = 2 * time.Minute

	// restTime is how long the writes of the Lease are counted while nothing happens.
	restTime = 20 * time.Second

	// overload is how many times as many alerts as can be folded are sent, of overloadKeys keys.
	overload      = 5
	overloadKeys  = 1000
	overloadCalib = 10 * time.Second

	leaseName, leaseNamespace = "manager.tocsin.dev", "default"
)

// takeoverRow is how soon an alert is folded that was sent right after the end of the leader, in seconds.
type takeoverRow struct {
	End    string  `json:"end"`
	Runs   int     `json:"runs"`
	Least  float64 `json:"least"`
	Median float64 `json:"median"`
	Most   float64 `json:"most"`
}

// leaseRow is what became of the Lease in a time: Gap is the longest one between two renewals, and Asked the longest duration of
// the lease, in seconds.
type leaseRow struct {
	What    string  `json:"what"`
	Seconds float64 `json:"seconds"`
	Writes  float64 `json:"writesPerSecond"`
	Terms   int     `json:"termsBegun"`
	Gap     float64 `json:"longestGap"`
	Asked   float64 `json:"longestLease"`

	Capacity float64 `json:"foldedPerSecond,omitempty"` // without overload
	Accepted float64 `json:"acceptedPerSecond,omitempty"`
}

// startReplicas starts managers with leader election and waits until all are ready. The caller stops those that it returns, also
// with an error.
func (c *cluster) startReplicas(ctx context.Context, count int) (replicas []*testenv.Manager, err error) {
	for range count {
		replica, err := testenv.StartManager(testenv.ManagerOptions{
			Binary: c.binary, Kubeconfig: c.plane.Kubeconfig, Log: c.log,
			Args: []string{
				"--leader-elect", "--leader-election-namespace=" + leaseNamespace, "--max-incidents=1000000", "--namespace-share=1",
				"--shutdown-delay=0s",
			},
		})
		if err != nil {
			return replicas, err
		}
		replicas = append(replicas, replica)
	}
	ctx, cancel := context.WithTimeout(ctx, takeoverTimeout)
	defer cancel()
	for _, replica := range replicas {
		if err := replica.WaitReady(ctx); err != nil {
			return replicas, err
		}
	}
	return replicas, nil
}

// measureTakeovers ends the leader of three replicas again and again, in two ways, and counts the writes of the Lease at rest.
func (c *cluster) measureTakeovers(ctx context.Context) (rows []takeoverRow, rest *leaseRow, err error) {
	t, replicas, err := c.beginElected(ctx, takeoverReplicas)
	defer stopAll(replicas)
	if err != nil {
		return nil, nil, err
	}
	if rest, err = c.watchLease(ctx, "at rest", func() { testenv.Pause(ctx, restTime) }); err != nil {
		return nil, nil, err
	}
	rest.print()
	for _, end := range []struct {
		name   string
		signal syscall.Signal
	}{{"kill -9", syscall.SIGKILL}, {"SIGTERM", syscall.SIGTERM}} {
		var took []time.Duration
		for run := range takeoverRuns {
			// Between two renewals, at each phase alike.
			testenv.Pause(ctx, 3*time.Second+time.Duration(run)*time.Second/takeoverRuns)
			d, err := c.endLeader(ctx, t, replicas, end.signal, fmt.Sprintf("%s-%d", end.name, run))
			if err != nil {
				return rows, rest, fmt.Errorf("%s: %w", end.name, err)
			}
			took = append(took, d)
		}
		slices.Sort(took)
		row := takeoverRow{
			End: end.name, Runs: len(took),
			Least: took[0].Seconds(), Median: loadgen.Quantile(took, 0.5).Seconds(), Most: took[len(took)-1].Seconds(),
		}
		fmt.Println("takeover:", row.cells())
		rows = append(rows, row)
	}
	return rows, rest, nil
}

// beginElected makes a tenant and starts replicas that have folded alerts of another one.
func (c *cluster) beginElected(ctx context.Context, count int) (t tenant, replicas []*testenv.Manager, err error) {
	other, err := c.newTenant(ctx)
	if err != nil {
		return t, nil, err
	}
	if t, err = c.newTenant(ctx); err != nil {
		return t, nil, err
	}
	if replicas, err = c.startReplicas(ctx, count); err != nil {
		return t, replicas, err
	}
	loadgen.Run(ctx, loadgen.Load{URLs: urlsOf(replicas, other), Senders: 16, Duration: warmUpTime, Key: loadgen.RotatingKeys(16)})
	_, err = c.drained(ctx, other)
	return t, replicas, err
}

// urlsOf returns where a tenant posts its alerts.
func urlsOf(replicas []*testenv.Manager, t tenant) (urls []string) {
	for _, replica := range replicas {
		urls = append(urls, replica.WebhookURL+t.token)
	}
	return urls
}

// stopAll ends replicas in order, so that the next leader need not wait for the end of a lease.
func stopAll(replicas []*testenv.Manager) {
	for _, replica := range replicas {
		_ = replica.Stop()
	}
}

// endLeader ends the leader, sends an alert to another replica, and returns how long it took from the signal until it was folded.
// Then it starts the replica again.
func (c *cluster) endLeader(
	ctx context.Context, t tenant, replicas []*testenv.Manager, signal syscall.Signal, key string,
) (time.Duration, error) {
	leader, err := testenv.Leader(ctx, takeoverTimeout, replicas)
	if err != nil {
		return 0, err
	}
	ended := replicas[leader]
	exited, began := ended.Exited(), time.Now()
	if err := ended.Signal(signal); err != nil {
		return 0, err
	}
	account := loadgen.Run(ctx, loadgen.Load{
		URLs: urlsOf(replicas[(leader+1)%len(replicas):][:1], t), Senders: 1, Requests: 1, Key: func(int) string { return key },
	})
	if account.Acknowledged() != 1 {
		return 0, fmt.Errorf("an alert after the leader's end: %v", account.Codes)
	}
	if _, folded := c.foldedAfter(ctx, t, key); !folded {
		return 0, fmt.Errorf("nobody takes over within %s", foldPatience)
	}
	took := time.Since(began)
	<-exited
	if err := ended.Start(); err != nil {
		return 0, err
	}
	return took, ended.WaitReady(ctx)
}

// measureOverload sends five times as many alerts as are folded, and returns what became of the Lease meanwhile: no term is to
// end.
func (c *cluster) measureOverload(ctx context.Context, duration time.Duration) (*leaseRow, error) {
	t, replicas, err := c.beginElected(ctx, takeoverReplicas)
	defer stopAll(replicas)
	if err != nil {
		return nil, err
	}
	load := loadgen.Load{URLs: urlsOf(replicas, t), Senders: 64, Duration: overloadCalib, Key: loadgen.RotatingKeys(overloadKeys)}
	began := time.Now()
	account := loadgen.Run(ctx, load)
	if _, err := c.drained(ctx, t); err != nil {
		return nil, err
	}
	capacity := float64(account.Acknowledged()) / time.Since(began).Seconds()
	load.Rate, load.Senders, load.Duration = overload*capacity, 4*load.Senders, duration
	row, err := c.watchLease(ctx, fmt.Sprintf("%d times the capacity", overload), func() { account = loadgen.Run(ctx, load) })
	if err != nil {
		return nil, err
	}
	row.Capacity, row.Accepted = capacity, account.Rate()
	row.print()
	stopAll(replicas) // folding the rest would take four times as long
	return row, c.clear(ctx, t.namespace)
}

// watchLease watches the Lease while something is done.
func (c *cluster) watchLease(ctx context.Context, what string, do func()) (*leaseRow, error) {
	clients, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	named := metav1.ListOptions{FieldSelector: "metadata.name=" + leaseName}
	watch, err := clients.CoordinationV1().Leases(leaseNamespace).Watch(ctx, named)
	if err != nil {
		return nil, err
	}
	row := &leaseRow{What: what}
	began := time.Now()
	var watching sync.WaitGroup
	watching.Go(func() {
		var last *coordinationv1.Lease
		for event := range watch.ResultChan() {
			lease, ok := event.Object.(*coordinationv1.Lease)
			if ok && lease.Spec.RenewTime != nil && lease.Spec.LeaseTransitions != nil && lease.Spec.LeaseDurationSeconds != nil {
				row.note(last, lease)
				last = lease
			}
		}
	})
	do()
	row.Seconds = time.Since(began).Seconds()
	watch.Stop()
	watching.Wait()
	row.Writes /= row.Seconds
	return row, nil
}

// note notes a version of the Lease after another one, nil if it is the first.
func (r *leaseRow) note(last, lease *coordinationv1.Lease) {
	r.Asked = max(r.Asked, float64(*lease.Spec.LeaseDurationSeconds))
	if last == nil {
		return
	}
	r.Writes++
	r.Terms += int(*lease.Spec.LeaseTransitions - *last.Spec.LeaseTransitions)
	r.Gap = max(r.Gap, lease.Spec.RenewTime.Sub(last.Spec.RenewTime.Time).Seconds())
}

// takeoverTitles and leaseTitles are the columns of the rows.
var (
	takeoverTitles = []any{"End of the leader", "Runs", "Folded after, least s", "Median s", "Most s"}
	leaseTitles    = []any{
		"The Lease", "Seconds", "Writes/s", "Terms begun", "Longest gap between renewals s", "Longest lease s", "Folded/s before",
		"Accepted/s",
	}
)

func (r takeoverRow) cells() []string {
	return []string{r.End, strconv.Itoa(r.Runs), decimal(2, r.Least), decimal(2, r.Median), decimal(2, r.Most)}
}

func (r leaseRow) cells() []string {
	return []string{
		r.What, decimal(0, r.Seconds), decimal(2, r.Writes), strconv.Itoa(r.Terms), decimal(1, r.Gap), decimal(0, r.Asked),
		decimal(0, r.Capacity), decimal(0, r.Accepted),
	}
}

func (r *leaseRow) print() { fmt.Println("lease:", r.cells()) }

// decimal returns a number with so many digits after the point.
func decimal(digits int, v float64) string { return strconv.FormatFloat(v, 'f', digits, 64) }
