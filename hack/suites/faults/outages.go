package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/suites/faults/proxy"
)

const (
	// outageTime is longer than a lease and all its renewals.
	outageTime = 40 * time.Second

	// answerTime is how long an answer may take during an outage, and how soon after its end alerts are stored again,
	// with a second for a busy machine.
	answerTime = 6 * time.Second
)

// freezeAPIServers has all API servers stand still past the lease.
func freezeAPIServers(ctx context.Context, r *run) error {
	return r.outlive(ctx, func() error {
		if err := r.freezePlane(true); err != nil {
			return err
		}
		pause(ctx, outageTime)
		return r.freezePlane(false)
	})
}

// stopAPIServers has no API server run for longer than the lease.
func stopAPIServers(ctx context.Context, r *run) error {
	return r.outlive(ctx, func() error {
		r.plane.KillAPIServers()
		pause(ctx, outageTime)
		return r.startAPIServers(ctx)
	})
}

// freezePlane freezes or thaws all API servers.
func (r *rig) freezePlane(frozen bool) error {
	var errs []error
	for _, server := range r.plane.APIServers {
		if frozen {
			errs = append(errs, server.Freeze())
		} else {
			errs = append(errs, server.Thaw())
		}
	}
	return errors.Join(errs...)
}

// outlive expects of an outage that no replica exits, that every request is answered in time, and that alerts are stored
// again soon after it.
func (r *run) outlive(ctx context.Context, outage func() error) error {
	exits, refused := r.exits(), r.traffic.answers("refused connection")
	began := time.Now()
	if err := outage(); err != nil {
		return err
	}
	ended := time.Now()
	err := testenv.AwaitThat(ctx, healTime, "nothing is stored after the outage", func(context.Context) bool {
		return r.traffic.acknowledgedBetween(ended, time.Now()) > 0
	})
	if err != nil {
		return err
	}
	stored := time.Since(ended)
	slowest := r.traffic.slowestBetween(began, ended)
	r.note("stored again after %s, slowest answer %s", stored.Round(10*time.Millisecond), slowest.Round(10*time.Millisecond))
	switch {
	case !slices.Equal(r.exits(), exits):
		return errors.New("a replica has exited")
	case r.traffic.answers("refused connection") != refused:
		return errors.New("connections were refused")
	case slowest > answerTime:
		return fmt.Errorf("an answer took %s", slowest)
	case stored > answerTime:
		return fmt.Errorf("alerts were stored again only %s after the outage", stored)
	}
	return r.waitReady(ctx)
}

// answers is how many requests had this answer.
func (t *traffic) answers(code string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.codes[code]
}

// slowestBetween is the longest time that a request took which began and ended in that time.
func (t *traffic) slowestBetween(from, to time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var slowest time.Duration
	for _, record := range t.records {
		for _, d := range record.Deliveries {
			if d.Began.After(from) && !d.Ended.IsZero() && d.Ended.Before(to) {
				slowest = max(slowest, d.Ended.Sub(d.Began))
			}
		}
	}
	return slowest
}

// startInOutage kills a replica during an outage. Its successor waits in the process and answers 503.
func startInOutage(ctx context.Context, r *run) error {
	if err := r.freezePlane(true); err != nil {
		return err
	}
	replica := r.replicas[0]
	replica.kill()
	pause(ctx, 2*restartDelay)
	exits, answered := r.exits(), false // the kill is no exit
	for until := time.Now().Add(outageTime / 2); time.Now().Before(until); pause(ctx, 500*time.Millisecond) {
		asked, err := r.post(0, r.tenants[0].token, http.NoBody, nil)
		if err == nil && asked.code != http.StatusServiceUnavailable {
			return errors.Join(fmt.Errorf("a replica that knows nothing answers %d", asked.code), r.freezePlane(false))
		}
		answered = answered || err == nil
	}
	if err := r.freezePlane(false); err != nil {
		return err
	}
	switch {
	case !slices.Equal(r.exits(), exits):
		return errors.New("the replica has exited")
	case !answered:
		return errors.New("the replica does not answer")
	}
	thawed := time.Now()
	if err := r.waitReady(ctx); err != nil {
		return err
	}
	r.note("ready %s after the outage", time.Since(thawed).Round(10*time.Millisecond))
	return nil
}

// stickLeader lets the leader renew its lease, but not list the AlertEvents to fold.
func stickLeader(ctx context.Context, r *run) error {
	leader, follower, err := r.roles(ctx)
	if err != nil {
		return err
	}
	exits, began := r.exits(), time.Now()
	leader.proxy.SetRule(func(call proxy.Call) proxy.Fate {
		if call.Is("list", "alertevents") {
			return proxy.Fate{Before: func() { pause(ctx, time.Minute) }, Reset: true}
		}
		return proxy.Fate{}
	})
	if err := follower.waitLeads(ctx, true); err != nil {
		return err
	}
	r.note("taken over after %s", time.Since(began).Round(time.Second))
	if !slices.Equal(r.exits(), exits) {
		return errors.New("a replica has exited")
	}
	pause(ctx, 5*time.Second)
	return nil
}

// stallWatches has the leader's watch of AlertEvents stall: it must begin again. When new watches stall as well, another replica
// must lead.
func stallWatches(ctx context.Context, r *run) error {
	leader, follower, err := r.roles(ctx)
	if err != nil {
		return err
	}
	exits, began := r.exits(), time.Now()
	leader.proxy.StallWatches("alertevents")
	pause(ctx, time.Second)
	if err := r.waitFolds(ctx); err != nil {
		return err
	}
	r.note("folded again after %s", time.Since(began).Round(time.Second))
	leads, err := r.leader(ctx)
	if err != nil {
		return err
	}
	if leads != leader {
		return errors.New("another replica has taken over: the watch did not begin again")
	}
	began = time.Now()
	leader.proxy.FreezeWatches(true, "alertevents")
	err = follower.waitLeads(ctx, true)
	leader.proxy.FreezeWatches(false, "alertevents")
	if err != nil {
		return err
	}
	r.note("taken over after %s", time.Since(began).Round(time.Second))
	if !slices.Equal(r.exits(), exits) {
		return errors.New("a replica has exited")
	}
	pause(ctx, 5*time.Second)
	return nil
}

// waitFolds posts an alert and waits until it has opened an Incident.
func (r *run) waitFolds(ctx context.Context) error {
	key := fmt.Sprint("folds-", time.Now().UnixNano())
	r.traffic.post(0, key, "firing", false)
	name := client.ObjectKey{Namespace: r.tenants[0].namespace, Name: v1alpha1.IncidentName(integrationName, key)}
	return testenv.Await(ctx, healTime, func(ctx context.Context) error {
		return r.admin.Get(ctx, name, &v1alpha1.Incident{})
	})
}

// restoreQueue does what a restore from a backup does to AlertEvents that were folded since: they are made anew, as
// Velero makes them.
func restoreQueue(ctx context.Context, r *run) error {
	restored := 0
	for range 4 {
		pause(ctx, 2*time.Second)
		folded, err := r.foldedEvents(ctx)
		if err != nil {
			return err
		}
		for i := range folded {
			event := &folded[i]
			if err := r.admin.Delete(ctx, event); client.IgnoreNotFound(err) != nil {
				return err
			}
			anew := &v1alpha1.AlertEvent{Spec: event.Spec}
			anew.Namespace, anew.Name, anew.Labels = event.Namespace, event.Name, map[string]string{v1alpha1.RestoreLabel: "fault"}
			if err := r.admin.Create(ctx, anew); err != nil {
				return err
			}
			restored++
		}
	}
	r.note("%d restored", restored)
	return nil
}
