package webhookserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// errNoPlace is the outcome of a failure of a heartbeat that is not stored.
var errNoPlace = errors.New("the status of the integration has no place for the heartbeat: it has too many that were removed")

// pendingReports is what is to be written to the status of an integration, by one patch. What cannot be written stays.
type pendingReports struct {
	rejection   *v1alpha1.Rejection
	rejected    *v1alpha1.WebhookIntegration // what the Kubernetes Event of the rejection is about
	failure     *v1alpha1.MappingFailure
	handshake   *v1alpha1.Handshake
	unavailable int                          // 5xx answers
	uses        map[string]v1alpha1.TokenUse // by the hash of the token
	beats       map[string]heardTimes        // by the name of the heartbeat
	waiting     []chan<- error               // requests that are answered after the write

	due     time.Time                        // when it is to be written, or looked at
	changes int                              // how often something was added
	failed  int                              // writes that failed in a row
	turn    *fair.Turn[types.NamespacedName] // while it is written
}

// note adds to what is pending for an integration. add returns when it is to be written. After a failure, only requests that wait
// have it written before its time. The caller holds the mutex.
func (r *statusReporter) note(key types.NamespacedName, add func(p *pendingReports) (due time.Time)) {
	p := r.pending[key]
	if p == nil {
		p = &pendingReports{due: r.now().Add(signalRecheck)}
		r.pending[key] = p
	}
	if due := add(p); due.Before(p.due) && (p.failed == 0 || len(p.waiting) > 0) {
		p.due = due
	}
	p.changes++
	r.enqueue(key, p, false)
}

// enqueue queues an integration for which something is due. Token uses and rejections wait for what keeps an Incident open. The
// caller holds the mutex.
func (r *statusReporter) enqueue(key types.NamespacedName, p *pendingReports, all bool) {
	if p.turn == nil && (all || !p.due.After(r.now())) {
		r.turns.Add(key.Namespace, key, p.unavailable > 0 || len(p.beats) > 0)
		r.changed.Signal()
	}
}

// run writes what is due until ctx ends, and then everything.
func (r *statusReporter) run(ctx context.Context) {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var workers sync.WaitGroup
	for range reportWriters {
		workers.Go(func() {
			for r.writeNext(working) {
			}
		})
	}
	wait.UntilWithContext(ctx, func(context.Context) { r.enqueueAll(false) }, reportPause)
	defer time.AfterFunc(reportTimeout, cancel).Stop()
	r.enqueueAll(true)
	workers.Wait()
}

// enqueueAll queues the integrations for which something is due. At the end, these are all of them.
func (r *statusReporter) enqueueAll(ending bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending = ending
	r.noteNext(ending)
	for key, p := range r.pending {
		r.enqueue(key, p, ending)
	}
	if ending {
		r.changed.Broadcast()
	}
}

// writeNext writes what is pending for the integration whose turn it is, and waits for one. It returns false at the end.
func (r *statusReporter) writeNext(ctx context.Context) bool {
	key, p, ok := r.next()
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	failures, due, err := r.write(ctx, key, &p)
	if err != nil && !apierrors.IsNotFound(err) {
		r.log.V(1).Info("Could not write the status of an integration; trying again",
			"namespace", key.Namespace, "integration", key.Name, "reason", err.Error())
	}
	verdict := err
	for _, at := range failures {
		if at.IsZero() {
			verdict = errNoPlace
		}
	}
	for _, waiting := range p.waiting {
		waiting <- verdict
	}
	if err == nil && p.rejection != nil {
		r.recorder.Eventf(p.rejected, nil, corev1.EventTypeWarning, "Rejected", "Receive",
			"Refused a request (%s): %s", p.rejection.Reason, p.rejection.Message)
	}
	r.finish(key, &p, failures, due, err)
	return true
}

// next returns a copy of what is pending for the integration whose turn it is.
func (r *statusReporter) next() (key types.NamespacedName, p pendingReports, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var turn *fair.Turn[types.NamespacedName]
		if key, turn, ok = r.turns.Next(); ok {
			pending := r.pending[key]
			pending.turn = turn
			p = *pending
			p.uses, p.beats = maps.Clone(p.uses), maps.Clone(p.beats)
			p.waiting = slices.Clone(p.waiting)
			return key, p, true
		}
		if r.ending {
			return key, p, false
		}
		r.changed.Wait()
	}
}

// write writes what is pending for an integration. It returns when the signals of heartbeats are due that it did not write, and
// the failures among those that it wrote. A patch replaces a whole list, so one with a list carries the resourceVersion that the
// list was read with: of two replicas, the second one reads again.
func (r *statusReporter) write(ctx context.Context, key types.NamespacedName, p *pendingReports) (
	failures map[string]time.Time, due time.Time, err error,
) {
	var reader client.Reader = r.client
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		fields, version := p.fields(r.now()), ""
		if len(p.uses)+len(p.beats) > 0 {
			integration := &v1alpha1.WebhookIntegration{}
			err := reader.Get(ctx, key, integration)
			if err == nil && !integrations.IsWhole(integration) {
				*integration = v1alpha1.WebhookIntegration{}
				err = r.live.Get(ctx, key, integration)
			}
			if err != nil {
				return err
			}
			reader, version = r.live, integration.ResourceVersion // the next time: the cache is old
			failures, due = p.addLists(fields, integration, r.now(), r.isEnding())
		}
		if len(fields) == 0 {
			return nil
		}
		return patchStatus(ctx, r.client, key, version, fields)
	})
	return failures, due, err
}

// fields returns the fields of the status that are written whatever they were. The time of 5xx answers is that of the write: it
// is never before the answer, and no report replaces a later one.
func (p *pendingReports) fields(now time.Time) map[string]any {
	fields := map[string]any{}
	if p.rejection != nil {
		fields["lastRejection"] = p.rejection
	}
	if p.failure != nil {
		fields["lastMappingFailure"] = p.failure
	}
	if p.handshake != nil {
		fields["lastHandshake"] = p.handshake
	}
	if p.unavailable > 0 {
		fields["lastUnavailableTime"] = v1alpha1.NewTimestamp(now)
	}
	return fields
}

// addLists adds the lists of the status: the uses of the tokens that are listed, and the signals of heartbeats if one of them is
// due, or all are to be written. It returns the failures that it adds, and when the signals are due that it does not add.
func (p *pendingReports) addLists(
	fields map[string]any, integration *v1alpha1.WebhookIntegration, now time.Time, all bool,
) (failures map[string]time.Time, due time.Time) {
	if len(p.uses) > 0 {
		known := slices.AppendSeq(integration.Status.Tokens, maps.Values(p.uses))
		var uses []v1alpha1.TokenUse
		for _, listed := range integration.Spec.Tokens {
			isOfListed := func(u v1alpha1.TokenUse) bool { return u.Name == listed.Name && u.SHA256 == listed.SHA256 }
			for at, use := range slices.Backward(known) { // the newest one comes last
				if isOfListed(use) {
					uses = append(uses, known[at])
					break
				}
			}
		}
		fields["tokens"] = uses
	}
	heartbeats, due, failures, changed := merge(integration, p.beats, now)
	if !changed {
		return failures, time.Time{}
	}
	if !all && due.After(now) {
		return failures, due
	}
	fields["heartbeats"] = heartbeats
	return failures, time.Time{}
}

// finish removes what is written from what is pending. due is when the signals are due that are not written, zero if all are.
func (r *statusReporter) finish(
	key types.NamespacedName, written *pendingReports, failures map[string]time.Time, due time.Time, err error,
) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now := r.pending[key], r.now()
	p.waiting = p.waiting[len(written.waiting):]
	p.turn.Done()
	p.turn = nil
	switch {
	case apierrors.IsNotFound(err) && len(p.waiting) == 0: // it was deleted
		delete(r.pending, key)
		return
	case err != nil:
		if apierrors.IsInvalid(err) { // texts of requests and of policies must not keep a signal from being written
			p.rejection, p.failure, p.handshake = nil, nil, nil
		}
		p.due = now.Add(min(reportPause<<min(p.failed, 10), maxReportPause))
		p.failed++
		if len(p.waiting) > 0 {
			p.due = now
		}
	default:
		p.subtract(written, failures, due.IsZero())
		if written.unavailable > 0 {
			r.state(key).unavailable = now
		}
		switch p.failed = 0; {
		case p.isEmpty():
			delete(r.pending, key)
			return
		case p.changes > written.changes: // something was added meanwhile
			p.due = now
		case due.IsZero():
			p.due = now.Add(signalRecheck)
		default:
			p.due = due
		}
	}
	if !r.ending || err == nil {
		r.enqueue(key, p, r.ending && (p.changes > written.changes || !due.IsZero()))
	}
}

// subtract removes what is written.
func (p *pendingReports) subtract(written *pendingReports, failures map[string]time.Time, signals bool) {
	if p.rejection == written.rejection {
		p.rejection, p.rejected = nil, nil
	}
	if p.failure == written.failure {
		p.failure = nil
	}
	if p.handshake == written.handshake {
		p.handshake = nil
	}
	p.unavailable -= written.unavailable
	for token, use := range written.uses {
		if p.uses[token] == use {
			delete(p.uses, token)
		}
	}
	if !signals {
		return
	}
	for name, times := range written.beats {
		failure, failed := failures[name]
		if !failed {
			failure = times.written
		}
		switch now := p.beats[name]; {
		case now == times && (times.heard.IsZero() || failure.IsZero()):
			delete(p.beats, name)
		case now == times: // until the cache has it
			p.beats[name] = heardTimes{written: failure}
		case failed:
			now.written = failure
			if now.failed.Equal(times.failed) {
				now.failed = time.Time{}
			}
			p.beats[name] = now
		}
	}
}

func (p *pendingReports) isEmpty() bool {
	return p.rejection == nil && p.failure == nil && p.handshake == nil && p.unavailable == 0 &&
		len(p.uses)+len(p.beats)+len(p.waiting) == 0
}

// isEnding reports whether everything is to be written.
func (r *statusReporter) isEnding() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ending
}

// patchStatus sets fields of an integration's status, unless it is not the version any more that is given.
func patchStatus(
	ctx context.Context, c client.Client, integration types.NamespacedName, version string, status map[string]any,
) error {
	fields := map[string]any{"status": status}
	if version != "" {
		fields["metadata"] = map[string]any{"resourceVersion": version}
	}
	patch, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	target := &v1alpha1.WebhookIntegration{}
	target.Namespace, target.Name = integration.Namespace, integration.Name
	return c.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
}
