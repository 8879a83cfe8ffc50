package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

	leaseName, leaseNamespace = "manager.tocsin.dev", "default" // as testenv.Elect says
)

// leaseRow is what became of the Lease in a time.
type leaseRow struct {
	elapsed time.Duration
	writes  int
	terms   int           // begun
	gap     time.Duration // the longest one between two renewals
	longest int32         // the longest duration of the lease, in seconds
}

// measureTakeovers ends the leader of three replicas again and again, in two ways, and counts the writes of the Lease at rest.
func (c *cluster) measureTakeovers(ctx context.Context) error {
	tenants, err := c.begin(ctx, 1, takeoverReplicas)
	if err != nil {
		return err
	}
	rest, err := c.watchLease(ctx, func() { testenv.Pause(ctx, restTime) })
	if err != nil {
		return err
	}
	rest.print("at rest", 0, 0)
	beginTable("End of the leader", "Runs", "Folded after, least s", "Median s", "Most s")
	for _, end := range []struct {
		name   string
		signal syscall.Signal
	}{{"kill -9", syscall.SIGKILL}, {"SIGTERM", syscall.SIGTERM}} {
		var took []time.Duration
		for run := range takeoverRuns {
			// Between two renewals, at each phase alike.
			testenv.Pause(ctx, 3*time.Second+time.Duration(run)*time.Second/takeoverRuns)
			d, err := c.endLeader(ctx, tenants[0], end.signal, fmt.Sprintf("%s-%d", end.name, run))
			if err != nil {
				return fmt.Errorf("%s: %w", end.name, err)
			}
			took = append(took, d)
		}
		slices.Sort(took)
		printRow(end.name, len(took), took[0], loadgen.Quantile(took, 0.5), loadgen.Quantile(took, 1))
	}
	return nil
}

// endLeader ends the leader, sends an alert to another replica, and returns how long it took from the signal until it was folded.
// Then it starts the replica again.
func (c *cluster) endLeader(ctx context.Context, t tenant, signal syscall.Signal, key string) (time.Duration, error) {
	leader, err := testenv.Leader(ctx, takeoverTimeout, c.managers)
	if err != nil {
		return 0, err
	}
	ended := c.managers[leader]
	exited, began := ended.Exited(), time.Now()
	if err := ended.Signal(signal); err != nil {
		return 0, err
	}
	account := loadgen.Run(ctx, loadgen.Load{
		URLs: c.urls(t)[(leader+1)%len(c.managers):][:1], Senders: 1, Requests: 1, Key: func(int) string { return key },
	})
	if account.Acknowledged() != 1 {
		return 0, fmt.Errorf("an alert after the leader's end: %v", account.Codes)
	}
	if _, folded := c.foldedAfter(ctx, t, key); !folded {
		return 0, fmt.Errorf("nobody takes over within %s", foldPatience)
	}
	took := time.Since(began)
	<-exited
	return took, testenv.StartReady(ctx, ended.Process)
}

// measureOverload sends five times as many alerts as are folded, and prints what became of the Lease meanwhile: no term is to
// end.
func (c *cluster) measureOverload(ctx context.Context) error {
	tenants, err := c.begin(ctx, 1, takeoverReplicas)
	if err != nil {
		return err
	}
	t := tenants[0]
	load := loadgen.Load{URLs: c.urls(t), Senders: 64, Duration: overloadCalib, Key: loadgen.RotatingKeys(overloadKeys)}
	began := time.Now()
	account := loadgen.Run(ctx, load)
	if _, err := c.drained(ctx, t); err != nil {
		return err
	}
	capacity := float64(account.Acknowledged()) / time.Since(began).Seconds()
	load.Rate, load.Senders, load.Duration = overload*capacity, 4*load.Senders, c.duration
	row, err := c.watchLease(ctx, func() { account = loadgen.Run(ctx, load) })
	if err != nil {
		return err
	}
	row.print(fmt.Sprintf("%d times the capacity", overload), capacity, account.Rate())
	c.stopManagers() // folding the rest would take four times as long
	return c.clear(ctx, t.namespace)
}

// watchLease watches the Lease while something is done.
func (c *cluster) watchLease(ctx context.Context, do func()) (*leaseRow, error) {
	named := metav1.ListOptions{FieldSelector: "metadata.name=" + leaseName}
	watch, err := c.clients.CoordinationV1().Leases(leaseNamespace).Watch(ctx, named)
	if err != nil {
		return nil, err
	}
	row := &leaseRow{}
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
	row.elapsed = time.Since(began)
	watch.Stop()
	watching.Wait()
	return row, nil
}

// note notes a version of the Lease after another one, nil if it is the first.
func (r *leaseRow) note(last, lease *coordinationv1.Lease) {
	r.longest = max(r.longest, *lease.Spec.LeaseDurationSeconds)
	if last == nil {
		return
	}
	r.writes++
	r.terms += int(*lease.Spec.LeaseTransitions - *last.Spec.LeaseTransitions)
	r.gap = max(r.gap, lease.Spec.RenewTime.Sub(last.Spec.RenewTime.Time))
}

// print prints a table. At rest, nothing is folded or accepted.
func (r *leaseRow) print(what string, capacity, accepted float64) {
	beginTable("The Lease", "Seconds", "Writes/s", "Terms begun", "Longest gap between renewals s", "Longest lease s",
		"Folded/s before", "Accepted/s")
	printRow(what, r.elapsed, float64(r.writes)/r.elapsed.Seconds(), r.terms, r.gap, r.longest, capacity, accepted)
}
