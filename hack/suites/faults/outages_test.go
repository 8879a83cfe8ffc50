//go:build slow

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const (
	// outageTime is longer than a lease and all its renewals.
	outageTime = 40 * time.Second

	// answerTime is how long an answer may take during an outage, and how soon after its end alerts are stored again,
	// with a second for a busy machine.
	answerTime = 6 * time.Second
)

// freezeAPIServers has all API servers stand still past the lease.
func freezeAPIServers(r *run) {
	r.outlive(func() {
		r.signalPlane(syscall.SIGSTOP)
		r.Pause(outageTime)
		r.signalPlane(syscall.SIGCONT)
	})
}

// stopAPIServers has no API server run for longer than autoResolveAfter. A sender tries all the while in vain to say that
// its alert fires, and is late to try once more: its Incident must stay Open.
func stopAPIServers(r *run) {
	goOn := func() { r.traffic.post(0, "goes-on", "firing", false) }
	goOn()
	r.Pause(2 * time.Second)
	r.outlive(func() {
		r.KillAPIServers()
		for until := time.Now().Add(autoResolveAfter + 15*time.Second); time.Now().Before(until); r.Pause(10 * time.Second) {
			goOn()
		}
		r.Start(r.APIServers...)
	})
	r.Pause(15 * time.Second)
}

func (r *rig) signalPlane(signal syscall.Signal) {
	for _, server := range r.APIServers {
		r.Must(server.Signal(signal))
	}
}

// outlive expects of an outage that no replica exits, that every request is answered in time, and that alerts are stored
// again soon after it.
func (r *run) outlive(outage func()) {
	exits, unmet := r.exits(), r.traffic.unmet.Load()
	began := time.Now()
	outage()
	ended := time.Now()
	r.awaitThat(healTime, "nothing is stored after the outage", func() bool {
		return r.traffic.acknowledgedBetween(ended, time.Now()) > 0
	})
	stored := time.Since(ended)
	var slowest time.Duration
	for _, answer := range r.traffic.answers(began, ended) {
		if answer.Began.After(began) {
			slowest = max(slowest, answer.Ended.Sub(answer.Began))
		}
	}
	r.T.Logf("stored again after %s, slowest answer %s", stored.Round(10*time.Millisecond), slowest.Round(10*time.Millisecond))
	switch {
	case !slices.Equal(r.exits(), exits):
		r.T.Fatal("a replica has exited")
	case r.traffic.unmet.Load() != unmet:
		r.T.Fatal("connections were refused")
	case slowest > answerTime:
		r.T.Fatalf("an answer took %s", slowest)
	case stored > answerTime:
		r.T.Fatalf("alerts were stored again only %s after the outage", stored)
	}
	r.waitReady()
}

// startInOutage kills a replica during an outage. Its successor waits in the process and answers 503.
func startInOutage(r *run) {
	r.signalPlane(syscall.SIGSTOP)
	r.replicas[0].kill()
	r.Pause(2 * restartDelay)
	exits, answered := r.exits(), false // the kill is no exit
	for until := time.Now().Add(outageTime / 2); time.Now().Before(until); r.Pause(500 * time.Millisecond) {
		asked, err := r.post(0, r.tenants[0].token, http.NoBody, nil)
		if err == nil && asked.code != http.StatusServiceUnavailable {
			r.T.Fatalf("a replica that knows nothing answers %d", asked.code)
		}
		answered = answered || err == nil
	}
	r.signalPlane(syscall.SIGCONT)
	switch {
	case !slices.Equal(r.exits(), exits):
		r.T.Fatal("the replica has exited")
	case !answered:
		r.T.Fatal("the replica does not answer")
	}
	thawed := time.Now()
	r.waitReady()
	r.T.Logf("ready %s after the outage", time.Since(thawed).Round(10*time.Millisecond))
}

// waitFolds posts an alert and waits until it has opened an Incident.
func (r *run) waitFolds() {
	key := fmt.Sprint("folds-", time.Now().UnixNano())
	r.traffic.post(0, key, "firing", false)
	name := client.ObjectKey{Namespace: r.tenants[0].namespace, Name: v1alpha1.IncidentName(integrationName, key)}
	r.Await(healTime, func(ctx context.Context) error { return r.Client.Get(ctx, name, &v1alpha1.Incident{}) })
}

const (
	// killedWithin and stoppedWithin are how soon an alert is folded after the end of the leader, by kill -9 and SIGTERM.
	killedWithin  = 5 * time.Second
	stoppedWithin = time.Second
)

// endLeader returns a fault that ends the leader, at any time between two renewals, and expects of its successor that it folds
// soon.
func endLeader(signal syscall.Signal, within time.Duration) func(*run) {
	return func(r *run) {
		leader, follower := r.roles()
		r.Pause(time.Duration(rand.IntN(1500)) * time.Millisecond)
		leader.held.Store(true) // else it may be its own successor
		defer leader.held.Store(false)
		ended := time.Now()
		leader.end(signal)
		r.awaitLeads(follower, true)
		leads := time.Since(ended)
		r.waitFolds()
		r.T.Logf("another leader after %s, folded after %s", leads.Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
		if leads > within {
			r.T.Fatalf("another replica led only %s after the end of the leader", leads)
		}
		leader.held.Store(false)
		r.Pause(time.Second)
		r.waitReady()
	}
}
