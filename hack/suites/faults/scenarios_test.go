//go:build slow

package faults

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tocsin-dev/tocsin/hack/suites/faults/proxy"
)

// scenarios are the faults under load, and the trials.
//
// permissions comes first: an API server that restarts forbids everything until it has read the roles.
var scenarios = []scenario{
	{name: "permissions", about: "the service account has no right too many", short: true, trial: checkPermissions},
	{name: "flow-control", about: "calls come under the FlowSchemas", short: true, trial: checkFlows},
	{name: "payload-corpus", about: "everything that JSON and Unicode have to offer", short: true, trial: postCorpus},
	{name: "calm", about: "no fault at all", short: true, fault: func(r *run) { r.Pause(2 * time.Second) }},
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
	{name: "hostile-bytes", about: "four tenants bring a thousand times the usual bytes", alone: hostileBytes},
	{name: "import", about: "Incidents are moved to another cluster", alone: importIncidents},
}

// weather has every kind of trouble between the replicas and the API servers, at random.
func weather(r *run) {
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
	r.Pause(15 * time.Second)
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
func killAtCalls(r *run) {
	for _, point := range crashPoints {
		r.killAt(point, false)
		r.killAt(point, true)
	}
}

func (r *run) killAt(point proxy.Call, after bool) {
	replica := r.replicas[0]
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
	case <-r.Context.Done():
		r.T.Fatal(r.Context.Err())
	case <-time.After(30 * time.Second):
		r.T.Fatalf("there was no call to %s within 30 s", point)
	}
	replica.proxy.SetRule(nil)
	r.Pause(2 * restartDelay)
	r.waitReady()
}

// zombie freezes the leader until another one leads, and then lets it go on where it was.
func zombie(r *run) {
	leader, follower := r.roles()
	r.Must(leader.manager.Freeze())
	frozen := time.Now()
	r.awaitLeads(follower, true)
	r.Pause(2 * time.Second)
	r.T.Logf("frozen for %s", time.Since(frozen).Round(time.Second))
	exits, thawed := r.exits(), time.Now()
	r.Must(leader.manager.Thaw())
	r.awaitLeads(leader, false)
	r.T.Logf("ended its term %s after it went on", time.Since(thawed).Round(time.Second))
	r.Pause(2 * time.Second)
	if !slices.Equal(r.exits(), exits) {
		r.T.Fatal("the old leader has exited")
	}
	r.waitReady()
}

func killAPIServers(r *run) {
	for _, server := range r.APIServers {
		server.Kill()
		r.Pause(2 * time.Second)
		r.Start(server)
		r.Pause(2 * time.Second)
	}
}

func killEtcd(r *run) {
	for range 3 {
		r.Pause(time.Duration(rand.IntN(2000)) * time.Millisecond)
		r.Etcd.Kill()
		r.Pause(time.Duration(rand.IntN(3000)) * time.Millisecond)
		r.Start(r.Etcd)
	}
	r.Start(r.APIServers...)
}

func freezeEtcd(r *run) {
	for _, d := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second} {
		r.Must(r.Etcd.Freeze())
		r.Pause(d)
		r.Must(r.Etcd.Thaw())
		r.Pause(3 * time.Second)
	}
	r.Start(r.APIServers...)
}
