package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// carryOut does what the plan says. An error that is errStale means that nothing was done which the next
// fold does not see.
func (r *incidentReconciler) carryOut(ctx context.Context, f *facts, p fold.Plan) error {
	// An Incident that resolves by itself tells of no alert: thousands of them may come at once.
	if err := r.gate.enter(ctx, f.key.Namespace, p.Urgent && len(p.Results) > 0); err != nil {
		return err
	}
	entered := time.Now()
	defer func() { r.gate.leave(f.key.Namespace, time.Since(entered)) }()
	if p.Unmatched {
		if err := r.confirmAbsence(ctx, f); err != nil {
			return err
		}
	}
	incident := f.incident
	if p.AutoResolved {
		missing, err := r.cacheLags(ctx, f)
		if err != nil {
			return err
		}
		if missing {
			return errUnseen
		}
	}
	if p.Create != nil {
		created, err := r.create(ctx, f, *p.Create)
		if err != nil {
			return err
		}
		incident = created
	}
	if p.Write {
		written, err := r.write(ctx, f, incident, p.Status)
		if err != nil {
			return err
		}
		f.incident = written
		r.announce(ctx, written, p)
	}
	now := r.clock.Now()
	foldDuration.Observe(now.Sub(f.began).Seconds())
	observeFold(p.Results, now)
	r.settle(f, p)
	return nil
}

// create creates the Incident, its status still empty. AlreadyExists says that somebody else, or this
// process before the cache could show it, was first.
func (r *incidentReconciler) create(ctx context.Context, f *facts, spec v1alpha1.IncidentSpec) (*v1alpha1.Incident, error) {
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name},
		Spec:       spec,
	}
	err := errIncidentLimit
	if r.counts.allows(f.key.Namespace, 1) {
		err = r.live.Create(ctx, incident)
	}
	if apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("%w: the Incident exists", errStale)
	}
	if blocked := asBlocked(err); blocked != nil {
		return nil, blocked
	}
	if err != nil {
		return nil, fmt.Errorf("creating the Incident: %w", err)
	}
	r.blocked.unblock(f.key.Namespace)
	r.writes.wrote(f.key, incident.ResourceVersion, f.now)
	return incident, nil
}

// write writes the status over exactly the Incident that was read: its UID and resourceVersion go along.
// That, and the ledger in the status, is what makes the fold exactly-once.
func (r *incidentReconciler) write(
	ctx context.Context, f *facts, read *v1alpha1.Incident, status v1alpha1.IncidentStatus,
) (*v1alpha1.Incident, error) {
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       read.Namespace,
			Name:            read.Name,
			UID:             read.UID,
			ResourceVersion: read.ResourceVersion,
		},
		Spec: read.Spec,
		// The plan's status shares maps with the cache, and the answer is decoded into this object.
		Status: *status.DeepCopy(),
	}
	err := r.live.Status().Update(ctx, incident)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %w", errStale, err)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the Incident's status: %w", err)
	}
	r.writes.wrote(f.key, incident.ResourceVersion, r.clock.Now())
	return incident, nil
}

// confirmAbsence makes sure that an alert which matches no Incident really has none: the quorum knows no
// other Incident than the cache, and the cache lacks no older AlertEvent that may be the one to create it.
func (r *incidentReconciler) confirmAbsence(ctx context.Context, f *facts) error {
	var incident v1alpha1.Incident
	err := r.live.Get(ctx, f.key, &incident)
	switch {
	case apierrors.IsNotFound(err):
		if f.incident != nil {
			return fmt.Errorf("%w: the Incident is gone", errStale)
		}
	case err != nil:
		return fmt.Errorf("confirming that there is no Incident: %w", err)
	case f.incident == nil || f.incident.ResourceVersion != incident.ResourceVersion:
		return fmt.Errorf("%w: there is a newer Incident", errStale)
	}
	missing, err := r.lacksOlder(ctx, f)
	if err != nil {
		return err
	}
	if missing {
		return fmt.Errorf("%w: the cache lacks an older AlertEvent", errStale)
	}
	return nil
}

// lacksOlder says whether the quorum list has an AlertEvent in the namespace that the cache lacks and that
// is older than one of those to fold. A cache that lists anew can show a newer object before an older one.
func (r *incidentReconciler) lacksOlder(ctx context.Context, f *facts) (bool, error) {
	newest := ""
	for _, event := range f.events {
		if f.now.Sub(event.CreationTimestamp.Time) < orderPatience &&
			(newest == "" || fold.NewerVersion(event.ResourceVersion, newest)) {
			newest = event.ResourceVersion
		}
	}
	if newest == "" {
		return false, nil
	}
	return r.lacks(ctx, f, newest)
}

// cacheLags says whether the quorum list has an AlertEvent in the namespace that the cache does not show: it may hold an
// alert of an Incident that seems silent.
func (r *incidentReconciler) cacheLags(ctx context.Context, f *facts) (bool, error) {
	return r.lacks(ctx, f, "")
}

// lacks says whether the quorum list has an AlertEvent in the namespace that the cache lacks: one that is older than the
// resourceVersion, or any.
func (r *incidentReconciler) lacks(ctx context.Context, f *facts, olderThan string) (bool, error) {
	var cached v1alpha1.AlertEventList
	err := r.cache.List(ctx, &cached, client.InNamespace(f.key.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("reading the AlertEvents: %w", err)
	}
	known := make(eventSet, len(cached.Items))
	for i := range cached.Items {
		known[cached.Items[i].UID] = storedEvent{}
	}
	for uid, event := range f.listed.eventSet {
		if event.key.Namespace != f.key.Namespace || olderThan != "" && !fold.NewerVersion(olderThan, event.resourceVersion) {
			continue
		}
		if _, ok := known[uid]; !ok && !r.releases.knows(eventRef{event.key, uid}) {
			return true, nil
		}
	}
	return false, nil
}

// settle hands over to the release what the plan has settled.
func (r *incidentReconciler) settle(f *facts, p fold.Plan) {
	settled := make(map[types.UID]struct{}, len(p.Settled))
	for _, uid := range p.Settled {
		settled[uid] = struct{}{}
	}
	for _, event := range f.events {
		if _, ok := settled[event.UID]; ok {
			r.releases.settle(event, f.key.Name)
		}
	}
}

// announce tells what happened, now that it is written.
func (r *incidentReconciler) announce(ctx context.Context, incident *v1alpha1.Incident, p fold.Plan) {
	logger := log.FromContext(ctx).WithValues("integration", incident.Spec.IntegrationName)
	for i := range p.Transitions {
		transition := &p.Transitions[i]
		if r.notices.TryAccept() {
			emit(r.recorder, incident, transition)
		}
		logger.Info("incident changed", "transition", transition.Type, "state", incident.Status.State,
			"severity", incident.Status.Alert.Severity, "alerts", incident.Status.AlertCount)
	}
}

// expire deletes a Resolved Incident whose retention is over, or one that never got a status: exactly the one that was
// read, and not while an AlertEvent exists that it has counted or is still to count, for the ledger must outlive its events.
func (r *incidentReconciler) expire(ctx context.Context, f *facts) (ctrl.Result, error) {
	if len(f.pending) > 0 {
		return ctrl.Result{RequeueAfter: expiryRetry}, nil
	}
	listed, err := r.lists.join(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if ledgerHolds(f.incident, listed) {
		return ctrl.Result{RequeueAfter: expiryRetry}, nil
	}
	err = deleteIncident(ctx, r.live, r.gate, f.incident)
	switch {
	case apierrors.IsConflict(err):
		log.FromContext(ctx).V(1).Info("starting over", "reason", err.Error())
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case err != nil && !apierrors.IsNotFound(err):
		return ctrl.Result{}, fmt.Errorf("deleting the expired Incident: %w", err)
	}
	r.writes.forget(f.key)
	reason := "its retention is over"
	if f.incident.Status.State == "" {
		reason = "it has no status and no alerts"
	}
	log.FromContext(ctx).Info("Deleted Incident", "reason", reason, "integration", f.incident.Spec.IntegrationName)
	return ctrl.Result{}, nil
}

// deleteIncident deletes exactly the Incident that was read, when it is its namespace's turn to write.
func deleteIncident(ctx context.Context, live client.Writer, gate *writeGate, read *v1alpha1.Incident) error {
	if err := gate.enter(ctx, read.Namespace, false); err != nil {
		return err
	}
	entered := time.Now()
	defer func() { gate.leave(read.Namespace, time.Since(entered)) }()
	incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: read.Namespace, Name: read.Name}}
	return live.Delete(ctx, incident, client.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion})
}

// ledgerHolds says whether an AlertEvent that the Incident has counted still exists, by a list that began
// after the Incident was read. As long as one does, the ledger has to stay.
func ledgerHolds(incident *v1alpha1.Incident, listed *eventList) bool {
	for _, entry := range incident.Status.Ledger.Events {
		if listed.has(entry.UID) {
			return true
		}
	}
	return false
}

// waitForCapacity puts off a fold whose Incident cannot be created. What it waits for is on the integrations.
func (r *incidentReconciler) waitForCapacity(ctx context.Context, f *facts, cause *blockedError) ctrl.Result {
	wait, first := r.blocked.block(f.key, cause, f.now)
	if first {
		log.FromContext(ctx).Info("No Incident can be created in the namespace", "reason", cause.reason, "cause", cause.cause.Error())
	}
	return ctrl.Result{RequeueAfter: wait}
}

// restore reads anew the AlertEvents whose content the cache does not keep.
func (r *incidentReconciler) restore(ctx context.Context, f *facts) error {
	for i, event := range f.events {
		if !event.IsCondensed() {
			continue
		}
		whole := &v1alpha1.AlertEvent{}
		err := r.live.Get(ctx, client.ObjectKeyFromObject(event), whole)
		switch {
		case apierrors.IsNotFound(err), err == nil && whole.UID != event.UID:
			return fmt.Errorf("%w: the AlertEvent %s is gone", errStale, event.Name)
		case err != nil:
			return fmt.Errorf("reading the AlertEvent %s: %w", event.Name, err)
		}
		f.events[i] = whole
	}
	return nil
}

// isTerminating says that nothing can be created because the namespace is being deleted, which ends the
// alerts as well.
func isTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
