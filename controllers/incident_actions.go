package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// carryOut carries a plan out, and returns the Incident as it is then. After errStale the next fold sees everything that
// was done.
func (r *incidentReconciler) carryOut(ctx context.Context, c *confirmed, plan fold.Plan) (*v1alpha1.Incident, error) {
	// An automatic resolve is not urgent: thousands of them may come at once.
	leave, err := r.gate.enter(ctx, c.key.Namespace, plan.Urgent && len(plan.Results) > 0)
	if err != nil {
		return nil, err
	}
	defer leave()
	if plan.Unmatched {
		if err := r.confirmAbsence(ctx, c); err != nil {
			return nil, err
		}
	}
	if plan.AutoResolved { // a stored alert may break the silence
		missing, err := r.cacheLacks(ctx, c, "")
		if err != nil {
			return nil, err
		}
		if missing {
			return nil, errUnseen
		}
	}
	incident := c.incident
	if plan.Create != nil {
		if incident, err = r.create(ctx, c, *plan.Create); err != nil {
			return nil, err
		}
	}
	if plan.Write {
		if incident, err = r.write(ctx, incident, plan.Status); err != nil {
			return nil, err
		}
		r.announce(ctx, incident, plan)
	}
	now := r.clock.Now()
	foldDuration.Observe(now.Sub(c.began).Seconds())
	observeFold(plan.Results, now)
	return incident, nil
}

// create creates the Incident, its status still empty. AlreadyExists says that another
// process, or this one before the cache could show it, was first.
func (r *incidentReconciler) create(ctx context.Context, c *confirmed, spec v1alpha1.IncidentSpec) (*v1alpha1.Incident, error) {
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name},
		Spec:       spec,
	}
	err := errIncidentLimit
	if r.limit.allows(c.key.Namespace, 1) {
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
	r.blocked.unblock(c.key.Namespace)
	r.writes.wrote(c.key, incident.ResourceVersion, c.now)
	return incident, nil
}

// write writes the status over exactly the Incident that was read: its UID and resourceVersion go along.
// Together with the ledger in the status, that makes the fold exactly-once. A status that was computed from a condensed one
// has lost that ledger, and the content.
func (r *incidentReconciler) write(
	ctx context.Context, read *v1alpha1.Incident, status v1alpha1.IncidentStatus,
) (*v1alpha1.Incident, error) {
	if read.Status.Condensed || status.Condensed {
		return nil, errCondensed
	}
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       read.Namespace,
			Name:            read.Name,
			UID:             read.UID,
			ResourceVersion: read.ResourceVersion,
		},
		Spec:   read.Spec,
		Status: status,
	}
	err := r.live.Status().Update(ctx, incident) // which decodes the answer into it
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %w", errStale, err)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the Incident's status: %w", err)
	}
	r.writes.wrote(client.ObjectKeyFromObject(incident), incident.ResourceVersion, r.clock.Now())
	return incident, nil
}

// confirmAbsence makes sure that an alert which matches no Incident really has none: the quorum knows no
// other Incident than the cache, and the cache lacks no older AlertEvent that may be the one to create it.
func (r *incidentReconciler) confirmAbsence(ctx context.Context, c *confirmed) error {
	var incident v1alpha1.Incident
	err := r.live.Get(ctx, c.key, &incident)
	switch {
	case apierrors.IsNotFound(err):
		if c.incident != nil {
			return fmt.Errorf("%w: the Incident is gone", errStale)
		}
	case err != nil:
		return fmt.Errorf("confirming that there is no Incident: %w", err)
	case c.incident == nil || c.incident.ResourceVersion != incident.ResourceVersion:
		return fmt.Errorf("%w: there is a newer Incident", errStale)
	}
	newest := ""
	for _, event := range c.toFold {
		if c.now.Sub(event.CreationTimestamp.Time) < orderPatience &&
			(newest == "" || fold.NewerVersion(event.ResourceVersion, newest)) {
			newest = event.ResourceVersion
		}
	}
	if newest == "" {
		return nil
	}
	// A cache that lists anew can show a newer object before an older one.
	missing, err := r.cacheLacks(ctx, c, newest)
	if err != nil {
		return err
	}
	if missing {
		return fmt.Errorf("%w: the cache lacks an older AlertEvent", errStale)
	}
	return nil
}

// cacheLacks reports whether the quorum list has an AlertEvent in the namespace that the cache lacks: one that is older than
// the resourceVersion or, without one, any.
func (r *incidentReconciler) cacheLacks(ctx context.Context, c *confirmed, olderThan string) (bool, error) {
	var cached v1alpha1.AlertEventList
	err := r.cache.List(ctx, &cached, client.InNamespace(c.key.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("reading the AlertEvents: %w", err)
	}
	known := make(map[types.UID]struct{}, len(cached.Items))
	for i := range cached.Items {
		known[cached.Items[i].UID] = struct{}{}
	}
	for uid, event := range c.exists.events {
		if event.key.Namespace != c.key.Namespace || olderThan != "" && !fold.NewerVersion(olderThan, event.resourceVersion) {
			continue
		}
		if _, ok := known[uid]; !ok && !r.releases.knows(eventRef{event.key, uid}) {
			return true, nil
		}
	}
	return false, nil
}

// settleUnfolded settles the AlertEvents of which nothing is to be folded: those whose alerts are in quarantine, second
// copies, and those restored from a backup. If a copy cannot be confirmed, its original stays, and the next fold of the
// Incident tries again.
func (r *incidentReconciler) settleUnfolded(ctx context.Context, o *observed) {
	for _, event := range o.moved {
		r.releases.settle(event, o.key.Name)
	}
	for _, event := range o.replayed {
		r.releases.discard(event, fold.ResultReplayed)
	}
	for _, event := range o.restored {
		if r.releases.discard(event, fold.ResultRestored) {
			log.FromContext(ctx).Info("Discarded AlertEvent restored from a backup", "alertevent", event.Name)
		}
	}
	for _, left := range o.unconfirmed {
		err := r.confirmQuarantine(ctx, o, left.event, left.moved.UID, v1alpha1.QuarantineRejected)
		if err != nil && !errors.Is(err, errStale) {
			log.FromContext(ctx).Error(err, "Quarantine cannot be confirmed", "alertevent", left.event.Name)
		}
	}
}

// settle passes the AlertEvents that the plan has settled to the release.
func (r *incidentReconciler) settle(o *observed, plan fold.Plan) {
	settled := make(map[types.UID]struct{}, len(plan.Settled))
	for _, uid := range plan.Settled {
		settled[uid] = struct{}{}
	}
	for _, event := range o.toFold {
		if _, ok := settled[event.UID]; ok {
			r.releases.settle(event, o.key.Name)
		}
	}
}

// announce reports the transitions, now that they are written.
func (r *incidentReconciler) announce(ctx context.Context, incident *v1alpha1.Incident, plan fold.Plan) {
	logger := log.FromContext(ctx).WithValues("integration", incident.Spec.IntegrationName)
	episodesOmitted.Add(float64(plan.Omitted))
	for i := range plan.Transitions {
		transition := &plan.Transitions[i]
		if r.notices.TryAccept() {
			emit(r.recorder, incident, transition)
		}
		logger.Info("Incident changed", "transition", transition.Type, "state", incident.Status.State,
			"severity", incident.Status.Alert.Severity, "alerts", incident.Status.AlertCount)
	}
}

// expire deletes a Resolved Incident whose retention is over, or one that never got a status.
func (r *incidentReconciler) expire(ctx context.Context, o *observed) (ctrl.Result, error) {
	if len(o.all) > 0 || !isArchived(r.archive, o.incident) {
		return ctrl.Result{RequeueAfter: expiryRetry}, nil
	}
	listed, err := r.lists.join(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	deleted, err := deleteIncident(ctx, r.cache, r.live, r.gate, o.incident, listed)
	if err != nil || !deleted {
		return ctrl.Result{RequeueAfter: expiryRetry}, err // a change of the Incident brings it back sooner
	}
	r.writes.forget(o.key)
	reason := "its retention is over"
	if o.incident.Status.State == "" {
		reason = "it has no status and no alerts"
	}
	log.FromContext(ctx).Info("Deleted Incident", "reason", reason, "integration", o.incident.Spec.IntegrationName)
	return ctrl.Result{}, nil
}

// deleteIncident deletes exactly the Incident that was read, when it is its namespace's turn to write, and reports whether
// it did. It keeps an Incident while an AlertEvent exists that it has counted, by a list that began after the Incident was
// read, or is still to count: the ledger must outlive its events. A ledger that the cache lacks may be read after the list,
// since the same version of the Incident was read before it.
func deleteIncident(
	ctx context.Context, cache client.Reader, live client.Client, gate *writeGate, read *v1alpha1.Incident, listed *eventList,
) (bool, error) {
	waiting, err := listAlertEvents(ctx, cache, client.ObjectKeyFromObject(read))
	if err != nil || len(waiting) > 0 {
		return false, err
	}
	whole, err := readWhole(ctx, live, read)
	switch {
	case errors.Is(err, errStale):
		return false, nil
	case err != nil:
		return false, err
	case whole.ResourceVersion != read.ResourceVersion, ledgerHolds(whole, listed):
		return false, nil
	}
	leave, err := gate.enter(ctx, read.Namespace, false)
	if err != nil {
		return false, err
	}
	defer leave()
	incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: read.Namespace, Name: read.Name}}
	err = live.Delete(ctx, incident, client.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("deleting the Incident %s: %w", read.Name, err)
	}
	return true, nil
}

// ledgerHolds reports whether an AlertEvent in the Incident's ledger is in the list.
func ledgerHolds(incident *v1alpha1.Incident, listed *eventList) bool {
	for _, entry := range incident.Status.Ledger.Events {
		if listed.has(entry.UID) {
			return true
		}
	}
	return false
}

// waitForCapacity puts off a fold whose Incident cannot be created. What it waits for is on the integrations.
func (r *incidentReconciler) waitForCapacity(ctx context.Context, o *observed, cause *blockedError) ctrl.Result {
	wait, first := r.blocked.block(o.key, cause, o.now)
	if first {
		log.FromContext(ctx).Info("No Incident can be created in the namespace", "reason", cause.reason, "cause", cause.cause.Error())
	}
	return ctrl.Result{RequeueAfter: wait}
}

// loadCondensed returns the AlertEvents, those read anew of which the cache keeps no content.
func (r *incidentReconciler) loadCondensed(ctx context.Context, events []*v1alpha1.AlertEvent) ([]*v1alpha1.AlertEvent, error) {
	loaded := slices.Clone(events)
	for i, event := range events {
		if !event.IsCondensed() {
			continue
		}
		whole := &v1alpha1.AlertEvent{}
		if err := r.readAgain(ctx, event, whole); err != nil {
			return nil, err
		}
		loaded[i] = whole
	}
	return loaded, nil
}

// readAgain reads an AlertEvent, or its metadata, from the quorum. Another one of the same name does not count.
func (r *incidentReconciler) readAgain(ctx context.Context, event *v1alpha1.AlertEvent, into client.Object) error {
	err := r.live.Get(ctx, client.ObjectKeyFromObject(event), into)
	if apierrors.IsNotFound(err) || err == nil && into.GetUID() != event.UID {
		return fmt.Errorf("%w: the AlertEvent %s is gone", errStale, event.Name)
	}
	if err != nil {
		return fmt.Errorf("reading the AlertEvent %s: %w", event.Name, err)
	}
	return nil
}

// isTerminating says that nothing can be created because the namespace is being deleted, which ends the
// alerts as well.
func isTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
