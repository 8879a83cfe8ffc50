//go:build slow

package faults

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/tocsin-dev/tocsin/hack/suites/faults/proxy"
)

// exhaustSpace brings etcd to its quota, where it refuses all writes, and lifts the quota again.
func exhaustSpace(r *run) {
	const flag, junk = "--quota-backend-bytes", 1 << 20
	size := r.etcdSize()
	r.restartEtcd(func() { r.Etcd.SetArg(flag, strconv.FormatInt(size+2*junk, 10)) })
	full := false
	for i := 0; i < 64 && !full; i++ {
		key := fmt.Appendf(nil, "/junk/%d-%d", time.Now().UnixNano(), i) // outside of the API servers' keys
		full = r.CallEtcd(r.Context, "/v3/kv/put", map[string]any{"key": key, "value": make([]byte, junk)}, &struct{}{}) != nil
	}
	if !full {
		r.T.Fatal("etcd does not mind its quota")
	}
	before := time.Now()
	r.Pause(8 * time.Second)
	r.T.Logf("%d acknowledged while etcd was full", r.traffic.acknowledgedBetween(before.Add(time.Second), time.Now()))
	r.restartEtcd(func() { r.Etcd.SetArg(flag, "0") })
	r.disarm()
	r.Start(r.APIServers...)
}

func (r *rig) restartEtcd(change func()) {
	r.Etcd.Kill()
	change()
	r.Start(r.Etcd)
}

// fillBacklog lets nothing be folded, so that the queue grows to its limit, and then drains.
func fillBacklog(r *run) {
	r.setRule(func(call proxy.Call) proxy.Fate {
		if call == folding || call == releasing {
			return proxy.Fate{Refuse: http.StatusServiceUnavailable}
		}
		return proxy.Fate{}
	})
	most := 0
	for until := time.Now().Add(12 * time.Second); time.Now().Before(until); r.Pause(300 * time.Millisecond) {
		ordinary, keyed, err := r.pendingEvents()
		r.Must(err)
		most = max(most, ordinary+keyed)
	}
	r.T.Logf("at most %d AlertEvents", most)
	// Requests under way when the limit is reached may still be stored, one for each writer and replica, and
	// those that a lagging cache does not count yet.
	if most > 350 {
		r.T.Fatalf("%d AlertEvents, though 200 are the limit", most)
	}
}

// restoreEtcd copies etcd's data, goes on for a while, and then starts everything again on the copy.
func restoreEtcd(r *run) {
	backup := r.DataFolder() + ".backup"
	r.restartEtcd(func() {
		r.Must(exec.CommandContext(r.Context, "cp", "-r", r.DataFolder(), backup).Run())
		r.options.LostFrom = time.Now()
	})
	r.Pause(4 * time.Second)
	r.KillAPIServers()
	// A leader that is cut off for so long as a restore takes has lost its lease and ended. What it remembers is
	// of a time that never was: it would delete what the older Incidents have not counted.
	for _, replica := range r.replicas {
		replica.held.Store(true)
		defer replica.held.Store(false)
		replica.kill()
	}
	r.restartEtcd(func() {
		r.Must(os.RemoveAll(r.DataFolder()))
		r.Must(os.Rename(backup, r.DataFolder()))
	})
	r.options.LostUntil = time.Now()
	r.Start(r.APIServers...)
	for _, replica := range r.replicas {
		replica.held.Store(false)
	}
	r.Pause(time.Second)
	r.waitReady()
}
