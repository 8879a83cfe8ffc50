package main

import (
	"context"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/oracle"
)

// lateFiringWindow is the default, which all integrations have.
const lateFiringWindow = 30 * time.Second

// Of the scenario api-outage.
const (
	silentOutage = autoResolveAfter + 15*time.Second
	silentRetry  = 10 * time.Second
	silentAfter  = 15 * time.Second
)

// apiOutage takes all API servers away for longer than autoResolveAfter. A sender tries all the while in vain to say that
// its alert fires, and is late to try once more: its Incident must stay Open.
func apiOutage(ctx context.Context, r *run) error {
	const key = "goes-on"
	r.traffic.post(0, key, "firing", false)
	pause(ctx, 2*time.Second)
	r.plane.KillAPIServers()
	for until := time.Now().Add(silentOutage); time.Now().Before(until); pause(ctx, silentRetry) {
		r.traffic.post(0, key, "firing", false)
	}
	if err := r.startAPIServers(ctx); err != nil {
		return err
	}
	if err := r.waitReady(ctx); err != nil {
		return err
	}
	pause(ctx, silentAfter)
	r.note("%d requests were refused meanwhile", r.traffic.tally()[oracle.Refused])
	return nil
}

// repeatAlerts repeats what was said of an episode that is over: a firing soon after the resolve and long after it, and
// the resolve in the middle of the next episode. The leader dies meanwhile: who folds must make no difference.
func repeatAlerts(ctx context.Context, r *run) error {
	const key = "repeated"
	first := time.Now().Truncate(time.Microsecond).Add(-time.Minute)
	told := func(status string, times map[string]time.Time) {
		r.traffic.postTold(0, key, status, false, times)
		pause(ctx, time.Second)
	}
	fires := map[string]time.Time{"starts_at": first}
	ends := map[string]time.Time{"starts_at": first, "ends_at": first.Add(30 * time.Second)}
	told("firing", fires)
	told("resolved", ends)
	told("firing", fires)
	if err := killLeader(ctx, r); err != nil {
		return err
	}
	pause(ctx, lateFiringWindow)
	told("firing", fires)
	told("resolved", map[string]time.Time{"starts_at": first, "ends_at": time.Now()})
	told("firing", map[string]time.Time{"starts_at": time.Now()})
	told("resolved", ends)
	return nil
}
