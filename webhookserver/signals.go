package webhookserver

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// signalReporter writes the signals of heartbeats to the status of their integration: each heartbeat at most once in a third of
// its interval, and the last signal always within that time. So the leader, whichever replica it is, has it well before the
// heartbeat is missed. A signal of a heartbeat with an open Incident is written at once: it resolves the Incident.
type signalReporter struct {
	client client.Client
	live   client.Reader                     // of the API server, not of a cache
	now    func() time.Time                  // by the API server's clock
	isOpen func(namespace, name string) bool // whether an Incident exists that is not Resolved
	log    logr.Logger

	mu      sync.Mutex
	pending map[types.NamespacedName]*pendingSignals
}

// pendingSignals are the signals of an integration that are not in its status.
type pendingSignals struct {
	due   time.Time // when one of them is to be written, or looked at
	beats map[string]heardTimes
}

// heardTimes are when a heartbeat was last heard, and when it last reported a failure.
type heardTimes struct{ heard, failed time.Time }

func newSignalReporter(c client.Client, live client.Reader, log logr.Logger) *signalReporter {
	return &signalReporter{
		client: c, live: live, now: time.Now, isOpen: func(string, string) bool { return false }, log: log,
		pending: map[types.NamespacedName]*pendingSignals{},
	}
}

// note notes signals. It never blocks for long, and drops none.
func (r *signalReporter) note(integration *v1alpha1.WebhookIntegration, signals []signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(integration)
	p := r.pending[key]
	if p == nil {
		p = &pendingSignals{due: r.now().Add(signalRecheck), beats: map[string]heardTimes{}}
		r.pending[key] = p
	}
	for _, signal := range signals {
		times := p.beats[signal.heartbeat]
		if signal.time.After(times.heard) {
			times.heard = signal.time
		}
		if signal.failed && signal.time.After(times.failed) {
			times.failed = signal.time
		}
		p.beats[signal.heartbeat] = times
		if due := r.dueTime(integration, signal.heartbeat); due.Before(p.due) {
			p.due = due
		}
	}
}

// dueTime is when a signal of a heartbeat is to be written, as far as the integration tells.
func (r *signalReporter) dueTime(integration *v1alpha1.WebhookIntegration, heartbeat string) (due time.Time) {
	at := slices.IndexFunc(integration.Spec.Heartbeats, func(h v1alpha1.Heartbeat) bool { return h.Name == heartbeat })
	known := v1alpha1.FindHeartbeat(integration.Status.Heartbeats, heartbeat)
	incident := v1alpha1.IncidentName(integration.Name, v1alpha1.HeartbeatKey(heartbeat))
	if at < 0 || known == nil || known.LastSignalTime == nil || known.MissedTime != nil ||
		r.isOpen(integration.Namespace, incident) {
		return time.Time{}
	}
	return known.LastSignalTime.Add(integration.Spec.Heartbeats[at].Every() / 3)
}

// run writes what is due until ctx ends, and then everything.
func (r *signalReporter) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) { r.flush(ctx, false) }, signalPause)
	r.flush(context.WithoutCancel(ctx), true)
}

// flush writes the signals that are due, or all. What cannot be written stays for the next round. Namespaces take turns, and the
// round ends after reportTimeout: writes that hang hold up those of few other namespaces, and not for long.
func (r *signalReporter) flush(ctx context.Context, all bool) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	now := r.now()
	var due []types.NamespacedName
	r.mu.Lock()
	for key, p := range r.pending {
		if all || !p.due.After(now) {
			due = append(due, key)
		}
	}
	r.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(signalWriters)
	for _, key := range fair.InTurns(due, namespaceOf) {
		group.Go(func() error {
			if err := r.write(ctx, key, all); err != nil {
				r.log.V(1).Info("Could not write the signals of heartbeats; trying again",
					"namespace", key.Namespace, "integration", key.Name, "reason", err.Error())
			}
			return nil
		})
	}
	_ = group.Wait()
}

func namespaceOf(name types.NamespacedName) string { return name.Namespace }

// write writes the signals of an integration if one is due by what its status says now, or all is set.
func (r *signalReporter) write(ctx context.Context, key types.NamespacedName, all bool) error {
	r.mu.Lock()
	p := r.pending[key]
	beats := maps.Clone(p.beats)
	r.mu.Unlock()
	next := r.now().Add(signalRecheck)
	wrote := false
	var reader client.Reader = r.client
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		integration := &v1alpha1.WebhookIntegration{}
		if err := reader.Get(ctx, key, integration); err != nil {
			return err
		}
		reader = r.live // the next time: the cache is old
		updated, newer := merge(integration, beats, r.now())
		isDue := all
		for _, name := range newer {
			due := r.dueTime(integration, name)
			isDue = isDue || !due.After(r.now())
			if due.Before(next) {
				next = due
			}
		}
		if wrote = len(newer) == 0; wrote || !isDue {
			return nil
		}
		err := patchStatus(ctx, r.client, key, integration.ResourceVersion, map[string]any{"heartbeats": updated})
		wrote = err == nil
		return err
	})
	if apierrors.IsNotFound(err) {
		wrote, err = true, nil // it was deleted
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil: // it stays due
	case !wrote:
		p.due = next
	default:
		for name, times := range beats {
			if p.beats[name] == times {
				delete(p.beats, name)
			}
		}
		if p.due = r.now(); len(p.beats) == 0 { // else others came meanwhile
			delete(r.pending, key)
		}
	}
	return err
}

// merge returns the status of an integration's heartbeats with signals that were heard, and those whose signal is newer than
// what it has. The signals of heartbeats that are not defined any more are ignored. A time in the future is of a wrong clock.
func merge(
	integration *v1alpha1.WebhookIntegration, beats map[string]heardTimes, now time.Time,
) (updated []v1alpha1.HeartbeatStatus, newer []string) {
	updated = slices.Clone(integration.Status.Heartbeats)
	for i := range integration.Spec.Heartbeats {
		name := integration.Spec.Heartbeats[i].Name
		times, ok := beats[name]
		if !ok {
			continue
		}
		status := v1alpha1.FindHeartbeat(updated, name)
		if status == nil {
			if len(updated) >= maxHeartbeatStatuses {
				continue // the leader removes those of removed heartbeats
			}
			updated = append(updated, v1alpha1.HeartbeatStatus{Name: name})
			status = &updated[len(updated)-1]
		}
		isNewer := advance(&status.LastSignalTime, times.heard, now)
		if advance(&status.FailedTime, times.failed, now) || isNewer {
			newer = append(newer, name)
		}
	}
	return updated, newer
}

// advance replaces a stored time by a later one, or one in the future by any.
func advance(stored **v1alpha1.Timestamp, heard, now time.Time) bool {
	next := v1alpha1.NewTimestamp(heard)
	if heard.IsZero() || *stored != nil && !next.After((*stored).Time) && (*stored).Sub(now) <= maxSignalLead {
		return false
	}
	*stored = &next
	return true
}
