package main

import (
	"context"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
)

// silence is the end of an episode for which no alert came.
type silence struct {
	alerts int64     // that were folded by then
	at     time.Time // by the leader's clock
}

// received is when the alerts of an AlertEvent count as received.
func (e *storedEvent) received() time.Time {
	if received := e.Spec.Received; !received.IsZero() && !received.After(e.Metadata.Created.Add(time.Minute)) {
		return received
	}
	return e.Metadata.Created
}

// checkSilences looks for Incidents that were resolved for silence though their senders were not silent: a request for
// the key was answered, or failed, within the time that is to pass before.
func (l *ledgerOfTruth) checkSilences(t *traffic, f *findings) {
	requests := map[incidentKey][]*record{}
	for _, rec := range t.records {
		key := incidentKey{rec.tenant.namespace, v1alpha1.IncidentName(integrationName, rec.key)}
		requests[key] = append(requests[key], rec)
	}
	now := time.Now()
	for key, silences := range l.silences {
		for _, s := range silences {
			if s.at.After(now.Add(time.Minute)) || now.Sub(s.at) > time.Hour/2 {
				f.add("B: %s/%s was resolved for silence at %s, by a wrong clock", key.namespace, key.name, s.at)
				continue
			}
			for _, rec := range requests[key] {
				if rec.ended.Before(s.at) && rec.began.After(s.at.Add(-autoResolveAfter)) {
					f.add("B: %s/%s (%s) was resolved for silence at %s, and a request that was sent at %s had the outcome %v",
						key.namespace, key.name, rec.key, s.at, rec.began, rec.outcome)
					break
				}
			}
		}
	}
}

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
	for _, server := range r.plane.APIServers {
		server.Kill()
	}
	for until := time.Now().Add(silentOutage); time.Now().Before(until); pause(ctx, silentRetry) {
		r.traffic.post(0, key, "firing", false)
	}
	for _, server := range r.plane.APIServers {
		if err := server.Start(); err != nil {
			return err
		}
	}
	if err := r.waitPlane(ctx); err != nil {
		return err
	}
	if err := r.waitReady(ctx); err != nil {
		return err
	}
	pause(ctx, silentAfter)
	r.note("%d requests were refused meanwhile", r.traffic.tally()[loadgen.Refused])
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
