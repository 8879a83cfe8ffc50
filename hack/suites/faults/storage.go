package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/suites/faults/proxy"
)

// exhaustSpace brings etcd to its quota, where it refuses all writes, and lifts the quota again.
func exhaustSpace(ctx context.Context, r *run) error {
	size, err := r.etcdSize(ctx)
	if err != nil {
		return err
	}
	const flag, junk = "--quota-backend-bytes", 1 << 20
	if err := r.restartEtcd(ctx, func() { r.Etcd.SetArg(flag, strconv.FormatInt(size+2*junk, 10)) }); err != nil {
		return err
	}
	full := false
	for i := 0; i < 64 && !full; i++ {
		key := fmt.Appendf(nil, "/junk/%d-%d", time.Now().UnixNano(), i) // outside of the API servers' keys
		full = r.CallEtcd(ctx, "/v3/kv/put", map[string]any{"key": key, "value": make([]byte, junk)}, &struct{}{}) != nil
	}
	if !full {
		return fmt.Errorf("etcd does not mind its quota")
	}
	before := time.Now()
	pause(ctx, 8*time.Second)
	r.note("%d acknowledged while etcd was full", r.traffic.acknowledgedBetween(before.Add(time.Second), time.Now()))
	if err := r.restartEtcd(ctx, func() { r.Etcd.SetArg(flag, "0") }); err != nil {
		return err
	}
	if err := r.disarm(ctx); err != nil {
		return err
	}
	return testenv.StartReady(ctx, r.APIServers...)
}

func (r *rig) restartEtcd(ctx context.Context, change func()) error {
	r.Etcd.Kill()
	change()
	return testenv.StartReady(ctx, r.Etcd)
}

// fillBacklog lets nothing be folded, so that the queue grows to its limit, and then drains.
func fillBacklog(ctx context.Context, r *run) error {
	r.setRule(func(call proxy.Call) proxy.Fate {
		if call == folding || call == releasing {
			return proxy.Fate{Refuse: http.StatusServiceUnavailable}
		}
		return proxy.Fate{}
	})
	most := 0
	for until := time.Now().Add(12 * time.Second); time.Now().Before(until); pause(ctx, 300*time.Millisecond) {
		ordinary, keyed, err := r.pendingEvents(ctx)
		if err != nil {
			return err
		}
		most = max(most, ordinary+keyed)
	}
	r.note("at most %d AlertEvents", most)
	// Requests under way when the limit is reached may still be stored, one for each writer and replica, and
	// those that a lagging cache does not count yet.
	if most > 350 {
		return fmt.Errorf("%d AlertEvents, though 200 are the limit", most)
	}
	return nil
}

// restoreEtcd copies etcd's data, goes on for a while, and then starts everything again on the copy.
func restoreEtcd(ctx context.Context, r *run) error {
	backup := r.DataFolder() + ".backup"
	copied := func() error { return exec.CommandContext(ctx, "cp", "-r", r.DataFolder(), backup).Run() }
	var err error
	failed := r.restartEtcd(ctx, func() { err, r.options.LostFrom = copied(), time.Now() })
	if err := errors.Join(failed, err); err != nil {
		return fmt.Errorf("copying etcd: %w", err)
	}
	pause(ctx, 4*time.Second)
	r.KillAPIServers()
	// A leader that is cut off for so long as a restore takes has lost its lease and ended. What it remembers is
	// of a time that never was: it would delete what the older Incidents have not counted.
	for _, replica := range r.replicas {
		replica.held.Store(true)
		defer replica.held.Store(false)
		replica.kill()
	}
	err = r.restartEtcd(ctx, func() {
		if err = os.RemoveAll(r.DataFolder()); err == nil {
			err = os.Rename(backup, r.DataFolder())
		}
	})
	if err != nil {
		return fmt.Errorf("restoring etcd: %w", err)
	}
	r.options.LostUntil = time.Now()
	if err := testenv.StartReady(ctx, r.APIServers...); err != nil {
		return err
	}
	for _, replica := range r.replicas {
		replica.held.Store(false)
	}
	pause(ctx, time.Second)
	return r.waitReady(ctx)
}
