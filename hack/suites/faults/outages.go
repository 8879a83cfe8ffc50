package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
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
		if err := r.signalPlane(syscall.SIGSTOP); err != nil {
			return err
		}
		pause(ctx, outageTime)
		return r.signalPlane(syscall.SIGCONT)
	})
}

// stopAPIServers has no API server run for longer than autoResolveAfter. A sender tries all the while in vain to say that
// its alert fires, and is late to try once more: its Incident must stay Open.
func stopAPIServers(ctx context.Context, r *run) error {
	goOn := func() { r.traffic.post(0, "goes-on", "firing", false) }
	goOn()
	pause(ctx, 2*time.Second)
	err := r.outlive(ctx, func() error {
		r.KillAPIServers()
		for until := time.Now().Add(autoResolveAfter + 15*time.Second); time.Now().Before(until); pause(ctx, 10*time.Second) {
			goOn()
		}
		return testenv.StartReady(ctx, r.APIServers...)
	})
	pause(ctx, 15*time.Second)
	return err
}

func (r *rig) signalPlane(signal syscall.Signal) (err error) {
	for _, server := range r.APIServers {
		err = errors.Join(err, server.Signal(signal))
	}
	return err
}

// outlive expects of an outage that no replica exits, that every request is answered in time, and that alerts are stored
// again soon after it.
func (r *run) outlive(ctx context.Context, outage func() error) error {
	exits, unmet := r.exits(), r.traffic.unmet.Load()
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
	var slowest time.Duration
	for _, answer := range r.traffic.answers(began, ended) {
		if answer.Began.After(began) {
			slowest = max(slowest, answer.Ended.Sub(answer.Began))
		}
	}
	r.note("stored again after %s, slowest answer %s", stored.Round(10*time.Millisecond), slowest.Round(10*time.Millisecond))
	switch {
	case !slices.Equal(r.exits(), exits):
		return errors.New("a replica has exited")
	case r.traffic.unmet.Load() != unmet:
		return errors.New("connections were refused")
	case slowest > answerTime:
		return fmt.Errorf("an answer took %s", slowest)
	case stored > answerTime:
		return fmt.Errorf("alerts were stored again only %s after the outage", stored)
	}
	return r.waitReady(ctx)
}

// startInOutage kills a replica during an outage. Its successor waits in the process and answers 503.
func startInOutage(ctx context.Context, r *run) error {
	if err := r.signalPlane(syscall.SIGSTOP); err != nil {
		return err
	}
	replica := r.replicas[0]
	replica.kill()
	pause(ctx, 2*restartDelay)
	exits, answered := r.exits(), false // the kill is no exit
	for until := time.Now().Add(outageTime / 2); time.Now().Before(until); pause(ctx, 500*time.Millisecond) {
		asked, err := r.post(0, r.tenants[0].token, http.NoBody, nil)
		if err == nil && asked.code != http.StatusServiceUnavailable {
			return errors.Join(fmt.Errorf("a replica that knows nothing answers %d", asked.code), r.signalPlane(syscall.SIGCONT))
		}
		answered = answered || err == nil
	}
	if err := r.signalPlane(syscall.SIGCONT); err != nil {
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

// waitFolds posts an alert and waits until it has opened an Incident.
func (r *run) waitFolds(ctx context.Context) error {
	key := fmt.Sprint("folds-", time.Now().UnixNano())
	r.traffic.post(0, key, "firing", false)
	name := client.ObjectKey{Namespace: r.tenants[0].namespace, Name: v1alpha1.IncidentName(integrationName, key)}
	return testenv.Await(ctx, healTime, func(ctx context.Context) error {
		return r.Client.Get(ctx, name, &v1alpha1.Incident{})
	})
}

const (
	// killedWithin and stoppedWithin are how soon an alert is folded after the end of the leader, by kill -9 and SIGTERM.
	killedWithin  = 5 * time.Second
	stoppedWithin = time.Second
)

// endLeader returns a fault that ends the leader, at any time between two renewals, and expects of its successor that it folds
// soon.
func endLeader(signal syscall.Signal, within time.Duration) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		leader, follower, err := r.roles(ctx)
		if err != nil {
			return err
		}
		pause(ctx, time.Duration(rand.IntN(1500))*time.Millisecond)
		leader.held.Store(true) // else it may be its own successor
		defer leader.held.Store(false)
		ended := time.Now()
		leader.end(signal)
		if err := follower.waitLeads(ctx, true); err != nil {
			return err
		}
		leads := time.Since(ended)
		if err := r.waitFolds(ctx); err != nil {
			return err
		}
		r.note("another leader after %s, folded after %s", leads.Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
		if leads > within {
			return fmt.Errorf("another replica led only %s after the end of the leader", leads)
		}
		leader.held.Store(false)
		pause(ctx, time.Second)
		return r.waitReady(ctx)
	}
}
