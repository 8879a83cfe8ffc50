//go:build slow

package faults

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/suites/faults/proxy"
	"github.com/tocsin-dev/tocsin/webhookserver"
)

// restartDelay is how soon an ended manager is started again, as a kubelet would.
const restartDelay = 300 * time.Millisecond

// replica is a manager process that is started again whenever it ends.
type replica struct {
	name  string
	proxy *proxy.Proxy
	log   string // path of the log

	manager *testenv.Manager
	held    atomic.Bool  // not started again for now
	kills   atomic.Int32 // by the harness
	exits   atomic.Int32 // all ends of the process

	mu   sync.Mutex // held from the question whether the process is down to its start
	down bool       // not started again
}

// addReplica starts a replica behind a proxy of its own, with a log by the name of the scenario.
func (r *rig) addReplica(binary string, args []string) {
	number := len(r.replicas)
	p, err := proxy.Start(r.URLs, r.token, number%len(r.URLs))
	r.Must(err)
	r.T.Cleanup(p.Close)
	added := &replica{name: fmt.Sprintf("%s-replica-%d", path.Base(r.T.Name()), number), proxy: p}
	added.log = filepath.Join(r.Folder, added.name+".log")
	added.manager = r.Manager(added.name, testenv.ManagerOptions{
		Binary: binary,
		Kubeconfig: r.Write(added.name+".kubeconfig", fmt.Sprintf("apiVersion: v1\nkind: Config\n"+
			"clusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", p.URL)),
		Args: append([]string{"--shutdown-delay=" + webhookserver.DefaultShutdownDelay.String()}, args...), // rather than the rig's
	})
	r.replicas = append(r.replicas, added)
	r.T.Cleanup(added.close)
	go added.supervise()
}

// supervise starts the manager again when it has ended.
func (r *replica) supervise() {
	for again := true; again; again = r.restart() {
		<-r.manager.Exited()
		r.exits.Add(1)
		time.Sleep(restartDelay)
		for r.held.Load() {
			time.Sleep(restartDelay)
		}
	}
}

// restart starts the manager again, unless it is down for good.
func (r *replica) restart() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return false
	}
	if err := r.manager.Start(); err != nil {
		panic(fmt.Sprintf("starting a manager again: %v", err))
	}
	return true
}

// kill ends the process with SIGKILL; the supervisor starts it again.
func (r *replica) kill() { r.end(syscall.SIGKILL) }

func (r *replica) end(signal syscall.Signal) {
	r.kills.Add(1)
	_ = r.manager.Signal(signal)
}

// close ends the process for good.
func (r *replica) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = true
	r.manager.Kill()
}

func (r *replica) waitReady(ctx context.Context) error {
	message := fmt.Sprintf("%s, whose log is %s, is not ready", r.name, r.log)
	return testenv.AwaitThat(ctx, startTimeout, message, func(context.Context) bool { return r.isReady() })
}

func (r *replica) isReady() bool {
	ctx, cancel := context.WithTimeout(context.Background(), harnessClient.Timeout)
	defer cancel()
	_, err := testenv.Call(ctx, http.MethodGet, r.manager.ReadyURL, "")
	return err == nil
}

// awaitLeads waits until the replica holds the lease, or does not.
func (r *rig) awaitLeads(replica *replica, want bool) {
	r.T.Helper()
	r.awaitThat(startTimeout, fmt.Sprintf("%s holds the lease: %v", replica.name, !want), func() bool {
		value, ok := replica.metric(testenv.Leads)
		return (ok && value == 1) == want
	})
}

// metric is the value of a series.
func (r *replica) metric(series string) (float64, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	value, found, err := testenv.Metric(ctx, r.manager.MetricsURL, series)
	return value, err == nil && found > 0
}

// resetPeak makes the present memory, which it returns in bytes, the most that the process ever held.
func (r *replica) resetPeak() int64 {
	// If that fails, growth is judged from the start of the process.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", r.manager.PID()), []byte("5"), 0o200)
	now, _, _ := testenv.Memory(r.manager.PID())
	return now
}

// findAlarms finds lines of the logs that no fault excuses.
func (r *rig) findAlarms() {
	for _, replica := range r.replicas {
		raw, err := os.ReadFile(replica.log)
		if err != nil {
			r.T.Errorf("F: %v", err)
		}
		for _, word := range []string{"panic:", "Observed a panic", "DATA RACE", "fatal error:", "goroutine stack exceeds"} {
			if at := bytes.Index(raw, []byte(word)); at >= 0 {
				r.T.Errorf("F: %s says %q: %.300s", replica.name, word, raw[at:])
			}
		}
		if at := bytes.IndexFunc(raw, func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' || c == 0x7f }); at >= 0 {
			r.T.Errorf("F: %s logged the raw control character %#x", replica.name, raw[at])
		}
	}
}

// goroutineSlack is how many more goroutines an idle manager may have than before the load: the workers of
// one that has come to lead, of which the folds alone have 480, and idle connections. A goroutine left behind by each request
// would be thousands.
const goroutineSlack = 800

func (r *rig) goroutines() []float64 {
	var counts []float64
	for _, replica := range r.replicas {
		count, _ := replica.metric("go_goroutines")
		counts = append(counts, count)
	}
	return counts
}

// exits are how often the replicas ended on their own.
func (r *rig) exits() []int32 {
	var counts []int32
	for _, replica := range r.replicas {
		counts = append(counts, replica.exits.Load()-replica.kills.Load())
	}
	return counts
}

// findLeaks finds replicas that leak goroutines, and replicas that exited without being told to.
func (r *run) findLeaks(before []float64, exits []int32) {
	r.traffic.client.CloseIdleConnections()
	for i, now := range r.exits() {
		if ended := now - exits[i]; ended > 0 {
			r.T.Errorf("F: %s ended %d times on its own", r.replicas[i].name, ended)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context, 15*time.Second)
	defer cancel()
	for i, replica := range r.replicas {
		now, ok := replica.metric("go_goroutines")
		for !ok || now > before[i]+goroutineSlack {
			if !pause(ctx, 500*time.Millisecond) {
				r.T.Errorf("F: %s has %.0f goroutines, %.0f before the load", replica.name, now, before[i])
				break
			}
			now, ok = replica.metric("go_goroutines")
		}
	}
}
