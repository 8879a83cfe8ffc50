package webhookserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
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
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations,verbs=get;list;watch
// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reportKey names an object whose status is written: an integration, or an object of a feature.
type reportKey struct {
	types.NamespacedName
	kind reflect.Type // of the object of a feature; nil: it is an integration
}

// kindName returns the name of the kind.
func (k reportKey) kindName() string { return reflect.TypeOf(k.object()).Elem().Name() }

// object returns an empty object of the kind, with the name.
func (k reportKey) object() client.Object {
	var object client.Object = &v1alpha1.WebhookIntegration{}
	if k.kind != nil {
		object, _ = reflect.TypeAssert[client.Object](reflect.New(k.kind.Elem()))
	}
	object.SetNamespace(k.Namespace)
	object.SetName(k.Name)
	return object
}

// pendingReports is what is to be written to the status of an integration or of an object of a feature, by one patch. What cannot
// be written stays.
type pendingReports struct {
	fields      map[string]any               // of the integration's status, written whatever they were
	unavailable int                          // 5xx answers
	uses        map[string]v1alpha1.TokenUse // by the hash of the token
	feature     feature.Reports              // nil: none wait, or, after a write, none were written
	waiting     []chan<- error               // requests that are answered after the write

	due     time.Time             // when it is to be written, or looked at
	changes int                   // how often something was added
	failed  int                   // writes that failed in a row
	turn    *fair.Turn[reportKey] // while it is written
}

// noteReport notes the report of a feature, and who waits until it is written, if anybody does.
func (r *statusReporter) noteReport(report feature.Report, waiting ...chan<- error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	object := report.Object()
	key := reportKey{client.ObjectKeyFromObject(object), reflect.TypeOf(object)}
	r.note(key, func(p *pendingReports) (due time.Time) {
		p.waiting = append(p.waiting, waiting...)
		p.feature, due = report.AddTo(p.feature)
		return due
	})
}

// noteField has a field of an integration's status be written now. The caller holds the mutex.
func (r *statusReporter) noteField(integration types.NamespacedName, name string, value any) {
	r.note(reportKey{NamespacedName: integration}, func(p *pendingReports) time.Time {
		if p.fields == nil {
			p.fields = map[string]any{}
		}
		p.fields[name] = value
		return r.now()
	})
}

// note adds to what is pending for an object. add returns when it is to be written. After a failure, and right after a write,
// only requests that wait have it written before its time: otherwise a busy sender would have each of its reports written that is
// due at once. The caller holds the mutex.
func (r *statusReporter) note(key reportKey, add func(p *pendingReports) (due time.Time)) {
	p := r.pending[key]
	if p == nil {
		p = &pendingReports{due: r.now().Add(feature.Recheck)}
		r.pending[key] = p
	}
	due := add(p)
	if len(p.waiting) == 0 {
		if rest := r.restOf(key); rest.After(due) {
			due = rest
		}
	}
	if due.Before(p.due) && (p.failed == 0 || len(p.waiting) > 0) {
		p.due = due
	}
	p.changes++
	r.enqueue(key, p, false)
}

// restOf returns until when an object rests that was just written; zero if it does not. The clock may have been set back since.
// The caller holds the mutex.
func (r *statusReporter) restOf(key reportKey) time.Time {
	if left := r.rests[key].Sub(r.now()); left <= 0 || left > reportPause {
		return time.Time{}
	}
	return r.rests[key]
}

// enqueue queues an object for which something is due. Token uses and rejections wait for what keeps an Incident open. The
// caller holds the mutex.
func (r *statusReporter) enqueue(key reportKey, p *pendingReports, all bool) {
	if p.turn == nil && (all || !p.due.After(r.now())) {
		r.turns.Add(key.Namespace, key, p.unavailable > 0 || key.kind != nil)
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

// enqueueAll queues the objects for which something is due. At the end, these are all of them.
func (r *statusReporter) enqueueAll(ending bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending.Store(ending)
	r.noteNext(ending)
	maps.DeleteFunc(r.rests, func(key reportKey, _ time.Time) bool { return r.restOf(key).IsZero() })
	for key, p := range r.pending {
		r.enqueue(key, p, ending)
	}
	if ending {
		r.changed.Broadcast()
	}
}

// writeNext writes what is pending for the object whose turn it is, and waits for one. It returns false at the end.
func (r *statusReporter) writeNext(ctx context.Context) bool {
	key, p, ok := r.next()
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	due, err := r.write(ctx, key, &p)
	if err != nil && !apierrors.IsNotFound(err) {
		r.log.V(1).Info("Could not write a status; trying again",
			"namespace", key.Namespace, "name", key.Name, "kind", key.kindName(), "reason", err.Error())
	}
	for _, waiting := range p.waiting {
		waiting <- err
	}
	if rejected, ok := p.fields["lastRejection"].(*rejection); ok && err == nil {
		r.recorder.Eventf(rejected.of, nil, corev1.EventTypeWarning, "Rejected", "Receive",
			"Rejected a request (%s): %s", rejected.Reason, rejected.Message)
	}
	r.finish(key, &p, due, err)
	return true
}

// next returns a copy of what is pending for the object whose turn it is.
func (r *statusReporter) next() (key reportKey, p pendingReports, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var turn *fair.Turn[reportKey]
		if key, turn, ok = r.turns.Next(); ok {
			pending := r.pending[key]
			pending.turn = turn
			p = *pending
			p.fields, p.uses, p.waiting = maps.Clone(p.fields), maps.Clone(p.uses), slices.Clone(p.waiting)
			return key, p, true
		}
		if r.ending.Load() {
			return key, p, false
		}
		r.changed.Wait()
	}
}

// write writes what is pending for an object. It leaves in p.feature the reports that are written, or returns when they are due.
// What depends on the status carries the resourceVersion that it was read with: of two replicas, the second one reads again.
func (r *statusReporter) write(ctx context.Context, key reportKey, p *pendingReports) (due time.Time, err error) {
	var reader client.Reader = r.client
	reports := p.feature
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		fields, object := map[string]any{}, key.object()
		maps.Copy(fields, p.fields)
		if p.unavailable > 0 { // the time of the write is never before the answers, so no report replaces a later one
			fields["lastUnavailableTime"] = v1alpha1.NewTimestamp(r.now())
		}
		if key.kind != nil || len(p.uses) > 0 {
			if err := r.read(ctx, reader, key, object); err != nil {
				return err
			}
			reader = r.live // the next time: the cache is old
		}
		if integration, ok := object.(*v1alpha1.WebhookIntegration); ok {
			p.addUses(fields, integration)
		}
		if reports != nil {
			if p.feature, due, err = reports.Write(fields, object, r.now(), r.ending.Load()); err != nil {
				return err
			}
		}
		if len(fields) == 0 {
			return nil
		}
		return patchStatus(ctx, r.client, object, fields)
	})
	return due, err
}

// read reads an object whole.
func (r *statusReporter) read(ctx context.Context, reader client.Reader, key reportKey, object client.Object) error {
	err := reader.Get(ctx, key.NamespacedName, object)
	if integration, ok := object.(*v1alpha1.WebhookIntegration); ok && err == nil && !integrations.IsWhole(integration) {
		*integration = v1alpha1.WebhookIntegration{}
		return r.live.Get(ctx, key.NamespacedName, integration)
	}
	return err
}

// addUses adds the uses of the tokens that are listed.
func (p *pendingReports) addUses(fields map[string]any, integration *v1alpha1.WebhookIntegration) {
	if len(p.uses) == 0 {
		return
	}
	known := slices.AppendSeq(integration.Status.Tokens, maps.Values(p.uses))
	var uses []v1alpha1.TokenUse
	for _, listed := range integration.Spec.Tokens {
		for _, use := range slices.Backward(known) { // the newest one comes last
			if use.Name == listed.Name && use.SHA256 == listed.SHA256 {
				uses = append(uses, use)
				break
			}
		}
	}
	fields["tokens"] = uses
}

// finish removes what is written from what is pending. due is when the reports of a feature are due that are not written, zero if
// all are.
func (r *statusReporter) finish(key reportKey, written *pendingReports, due time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now := r.pending[key], r.now()
	p.waiting = p.waiting[len(written.waiting):]
	p.turn.Done()
	p.turn = nil
	switch {
	case apierrors.IsNotFound(err) && p.changes == written.changes: // it was deleted
		delete(r.pending, key)
		return
	case err != nil:
		if apierrors.IsInvalid(err) { // texts of requests and of policies must not keep a signal from being written
			clear(p.fields)
		}
		p.due = now.Add(min(reportPause<<min(p.failed, 10), maxReportPause))
		p.failed++
		if len(p.waiting) > 0 {
			p.due = now
		}
	default:
		p.subtract(written)
		if written.unavailable > 0 {
			r.state(key.NamespacedName).unavailable = now
		}
		r.rests[key] = now.Add(reportPause)
		switch p.failed = 0; {
		case p.isEmpty():
			delete(r.pending, key)
			return
		case len(p.waiting) > 0:
			p.due = now
		case p.changes > written.changes: // something was added meanwhile
			p.due = r.rests[key]
		case due.IsZero():
			p.due = now.Add(feature.Recheck)
		default:
			p.due = due
		}
	}
	if ending := r.ending.Load(); !ending || err == nil {
		r.enqueue(key, p, ending && (p.changes > written.changes || !due.IsZero()))
	}
}

func (p *pendingReports) subtract(written *pendingReports) {
	for name, value := range written.fields {
		if p.fields[name] == value {
			delete(p.fields, name)
		}
	}
	p.unavailable -= written.unavailable
	for token, use := range written.uses {
		if p.uses[token] == use {
			delete(p.uses, token)
		}
	}
	if written.feature != nil {
		p.feature = p.feature.Without(written.feature)
	}
}

func (p *pendingReports) isEmpty() bool {
	return len(p.fields)+len(p.uses)+len(p.waiting)+p.unavailable == 0 && p.feature == nil
}

// patchStatus sets fields of an object's status, unless it is not the version any more that was read, if it was.
func patchStatus(ctx context.Context, c client.Client, object client.Object, status map[string]any) error {
	fields := map[string]any{"status": status}
	if version := object.GetResourceVersion(); version != "" {
		fields["metadata"] = map[string]any{"resourceVersion": version}
	}
	patch, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	return c.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}
