package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/suites/faults/proxy"
)

// scenarios are the faults under load, and the trials.
var scenarios = []scenario{
	{name: "calm", about: "no fault at all", short: true, fault: func(ctx context.Context, _ *run) error {
		pause(ctx, 2*time.Second)
		return nil
	}},
	{name: "weather", about: "5 % each of 429, 500, 504, reset and lost replies", short: true, fault: weather},
	{name: "kill-at-calls", about: "kill -9 before and after each kind of call", short: true, replicas: 1, fault: killAtCalls},
	// The short form leaves it to the suite of the node.
	{name: "kill-leader", about: "kill -9 of the leader", fault: endLeader(syscall.SIGKILL, killedWithin)},
	{name: "stop-leader", about: "SIGTERM of the leader", fault: endLeader(syscall.SIGTERM, stoppedWithin)},
	{name: "nospace", about: "etcd is at its space quota for 8 s", fault: exhaustSpace},
	{name: "backlog", about: "nothing is folded until the queue is full",
		args: []string{"--max-pending-events=200", "--namespace-share=1"}, fault: fillBacklog},
	{name: "etcd-restored", about: "etcd goes back to a copy 4 s old, and everything is started again", fault: restoreEtcd},
	{name: "zombie", about: "SIGSTOP of the leader past its lease, then SIGCONT", fault: zombie},
	{name: "apiserver-kill", about: "kill -9 and restart of each API server", fault: killAPIServers},
	{name: "etcd-kill", about: "kill -9 of etcd, three times", fault: killEtcd},
	{name: "etcd-freeze", about: "SIGSTOP of etcd for 1, 5 and 30 s", fault: freezeEtcd},
	{name: "apiserver-frozen", about: "SIGSTOP of all API servers for 40 s", fault: freezeAPIServers},
	{name: "apiserver-refused", about: "kill -9 of all API servers, and none for 75 s", fault: stopAPIServers},
	{name: "start-in-outage", about: "a replica is killed and starts while all API servers are frozen", fault: startInOutage},
	{name: "permissions", about: "the service account has no right too many", short: true, trial: checkPermissions},
	{name: "flow-control", about: "calls come under the FlowSchemas", short: true, trial: checkFlows},
	{name: "payload-corpus", about: "everything that JSON and Unicode have to offer", short: true, trial: postCorpus},
	{name: "hostile-bytes", about: "four tenants bring a thousand times the usual bytes", trial: hostileBytes},
	{name: "import", about: "Incidents are moved to another cluster", trial: importIncidents},
}

// weather has every kind of trouble between the replicas and the API servers, at random.
func weather(ctx context.Context, r *run) error {
	delay := func() { time.Sleep(time.Duration(rand.IntN(800)) * time.Millisecond) }
	fates := []proxy.Fate{ // of 5 % of the calls each
		{Lose: true}, {Refuse: http.StatusTooManyRequests}, {Refuse: http.StatusInternalServerError},
		{Garble: http.StatusGatewayTimeout}, {Reset: true}, {Before: delay},
	}
	r.setRule(func(call proxy.Call) proxy.Fate {
		dice := rand.IntN(20)
		if call.Resource == "leases" && rand.IntN(2) > 0 || call.Verb == "watch" || dice >= len(fates) {
			return proxy.Fate{}
		}
		return fates[dice]
	})
	pause(ctx, 15*time.Second)
	return nil
}

var (
	opening   = proxy.Call{Verb: "create", Resource: "incidents"}
	folding   = proxy.Call{Verb: "update", Resource: "incidents/status"}
	releasing = proxy.Call{Verb: "delete", Resource: "alertevents"}

	// crashPoints are the kinds of calls at which a manager may die.
	crashPoints = []proxy.Call{
		{Verb: "create", Resource: "alertevents"}, {Verb: "list", Resource: "alertevents"}, opening, folding, releasing,
	}
)

// killAtCalls kills the only replica at one of the next calls of each kind: before the API server sees it,
// and after it was carried out but before the answer arrives.
func killAtCalls(ctx context.Context, r *run) error {
	replica := r.replicas[0]
	for _, point := range crashPoints {
		for _, after := range []bool{false, true} {
			if err := r.killAt(ctx, replica, point, after); err != nil {
				return err
			}
		}
	}
	r.note("%d kills", 2*len(crashPoints))
	return nil
}

func (r *run) killAt(ctx context.Context, replica *replica, point proxy.Call, after bool) error {
	killed := make(chan struct{})
	kill := sync.OnceFunc(func() {
		replica.kill()
		close(killed)
	})
	var skip atomic.Int32
	skip.Store(rand.Int32N(20))
	if point == opening {
		skip.Store(0)
		// All Incidents of the load exist by now: have new ones made.
		go r.traffic.post(0, fmt.Sprintf("late-%d", rand.Int()), "firing", false)
		go r.traffic.post(1, fmt.Sprintf("late-%d", rand.Int()), "firing", false)
	}
	replica.proxy.SetRule(func(call proxy.Call) proxy.Fate {
		if call != point || skip.Add(-1) >= 0 {
			return proxy.Fate{}
		}
		if after {
			return proxy.Fate{After: kill, Lose: true}
		}
		return proxy.Fate{Before: kill, Reset: true}
	})
	select {
	case <-killed:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(30 * time.Second):
		return fmt.Errorf("there was no call to %s within 30 s", point)
	}
	replica.proxy.SetRule(nil)
	pause(ctx, 2*restartDelay)
	return replica.waitReady(ctx)
}

// zombie freezes the leader until another one leads, and then lets it go on where it was.
func zombie(ctx context.Context, r *run) error {
	leader, follower, err := r.roles(ctx)
	if err != nil {
		return err
	}
	if err := leader.manager.Freeze(); err != nil {
		return err
	}
	frozen := time.Now()
	if err := follower.waitLeads(ctx, true); err != nil {
		return errors.Join(err, leader.manager.Thaw())
	}
	pause(ctx, 2*time.Second)
	r.note("frozen for %s", time.Since(frozen).Round(time.Second))
	exits, thawed := r.exits(), time.Now()
	if err := leader.manager.Thaw(); err != nil {
		return err
	}
	if err := leader.waitLeads(ctx, false); err != nil {
		return err
	}
	r.note("ended its term %s after it went on", time.Since(thawed).Round(time.Second))
	pause(ctx, 2*time.Second)
	if !slices.Equal(r.exits(), exits) {
		return errors.New("the old leader has exited")
	}
	return r.waitReady(ctx)
}

func killAPIServers(ctx context.Context, r *run) error {
	for _, server := range r.APIServers {
		server.Kill()
		pause(ctx, 2*time.Second)
		if err := testenv.StartReady(ctx, server); err != nil {
			return err
		}
		pause(ctx, 2*time.Second)
	}
	return nil
}

func killEtcd(ctx context.Context, r *run) error {
	for range 3 {
		pause(ctx, time.Duration(rand.IntN(2000))*time.Millisecond)
		r.Etcd.Kill()
		pause(ctx, time.Duration(rand.IntN(3000))*time.Millisecond)
		if err := testenv.StartReady(ctx, r.Etcd); err != nil {
			return err
		}
	}
	return testenv.StartReady(ctx, r.APIServers...)
}

func freezeEtcd(ctx context.Context, r *run) error {
	for _, d := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second} {
		if err := r.Etcd.Freeze(); err != nil {
			return err
		}
		pause(ctx, d)
		if err := r.Etcd.Thaw(); err != nil {
			return err
		}
		pause(ctx, 3*time.Second)
	}
	return testenv.StartReady(ctx, r.APIServers...)
}
