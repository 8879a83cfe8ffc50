package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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

// +kubebuilder:rbac:groups=tocsin.dev,resources=alertevents,verbs=create;get;patch

// deal deals with a fold that was refused. Until it is clear which AlertEvent is at fault, it is to be tried again, at
// once where that brings it out; then that one's alerts are moved into quarantine.
func (r *incidentReconciler) deal(ctx context.Context, f *facts, refusal error) (ctrl.Result, error) {
	if f.trial {
		r.bisection.failed(f.key, f.events, f.now)
		log.FromContext(ctx).V(1).Info("Quarantined AlertEvents still cannot be folded", "alertevents", len(f.events),
			"refusal", refusal.Error())
		return ctrl.Result{RequeueAfter: writeInterval}, nil
	}
	culprit, closer := r.bisection.refuse(f.key, f.events)
	switch {
	case closer:
		log.FromContext(ctx).Info("Searching for the AlertEvent that cannot be folded",
			"alertevents", len(f.events), "refusal", refusal.Error())
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case culprit == nil:
		return ctrl.Result{}, refusal
	}
	switch err := r.quarantine(ctx, f, culprit, refusal); {
	case errors.Is(err, errStale):
		log.FromContext(ctx).V(1).Info("starting over", "reason", err.Error())
	case isTerminating(err):
		return ctrl.Result{RequeueAfter: terminatingRetry}, nil
	case isRefused(err), apierrors.IsForbidden(err): // a quota, a policy
		r.bisection.hold(f.key, culprit.UID, f.now)
		log.FromContext(ctx).Error(err, "AlertEvent cannot be quarantined", "alertevent", culprit.Name)
		r.recorder.Eventf(culprit, nil, corev1.EventTypeWarning, "QuarantineFailed", "Fold",
			"Folding it into the Incident %s failed repeatedly, and its alerts cannot be moved; tried again in %s: %s",
			f.key.Name, quarantineRetry, v1alpha1.ShortMessage(err.Error()))
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: staleRetry}, nil
}

// quarantine moves the alerts that an AlertEvent has for the Incident into an AlertEvent of their own. When it returns
// nil, the API server has acknowledged that one, and the alerts are settled as far as the first one is concerned.
func (r *incidentReconciler) quarantine(ctx context.Context, f *facts, event *v1alpha1.AlertEvent, refusal error) error {
	var stored v1alpha1.AlertEvent // the cache may hold less of it
	err := r.live.Get(ctx, client.ObjectKeyFromObject(event), &stored)
	if apierrors.IsNotFound(err) || err == nil && stored.UID != event.UID {
		return fmt.Errorf("%w: the AlertEvent to quarantine is gone", errStale)
	}
	if err != nil {
		return fmt.Errorf("reading the AlertEvent to quarantine: %w", err)
	}
	moved := fold.QuarantineCopy(&stored, f.key.Name)
	if len(moved.Spec.Alerts) > 1 {
		_ = moved.Spec.Pack() // what cannot be packed is written as it is
	}
	err = r.live.Create(ctx, moved)
	if apierrors.IsAlreadyExists(err) {
		err = r.live.Get(ctx, client.ObjectKeyFromObject(moved), moved)
	}
	if err != nil {
		return fmt.Errorf("creating the quarantined AlertEvent: %w", err)
	}
	r.bisection.postpone(moved.UID, f.now)
	reason := v1alpha1.QuarantineRejected
	if errors.Is(refusal, errUnfoldable) {
		reason = v1alpha1.QuarantineFoldFailed
	}
	if err := r.confirmQuarantine(ctx, f, event, moved.UID, reason); err != nil {
		return err
	}
	log.FromContext(ctx).Error(refusal, "Quarantined AlertEvent", "alertevent", event.Name, "quarantine", moved.Name)
	r.recorder.Eventf(moved, event, corev1.EventTypeWarning, "Quarantined", "Fold",
		"Folding its alerts into the Incident %s failed repeatedly; tried again every %s: %s",
		f.key.Name, quarantineRetry, v1alpha1.ShortMessage(refusal.Error()))
	return nil
}

// confirmQuarantine confirms a copy that exists, if the AlertEvent that it was made of exists too, by a quorum read that
// comes after the copy's creation. Only then may that one be released without its alerts being folded from it. Both
// carry their UIDs: a copy made anew has to be confirmed anew.
func (r *incidentReconciler) confirmQuarantine(
	ctx context.Context, f *facts, event *v1alpha1.AlertEvent, copyUID types.UID, reason string,
) error {
	var stored metav1.PartialObjectMetadata
	stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEvent"))
	err := r.live.Get(ctx, client.ObjectKeyFromObject(event), &stored)
	if apierrors.IsNotFound(err) || err == nil && stored.UID != event.UID {
		return fmt.Errorf("%w: the AlertEvent to quarantine is gone", errStale)
	}
	if err != nil {
		return fmt.Errorf("reading the AlertEvent to quarantine: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": copyUID, "labels": map[string]string{v1alpha1.QuarantineLabel: reason},
	}})
	if err != nil {
		return fmt.Errorf("encoding the confirmation: %w", err)
	}
	moved := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{
		Namespace: event.Namespace, Name: v1alpha1.QuarantineName(string(event.UID), f.key.Name),
	}}
	err = r.live.Patch(ctx, moved, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	if err != nil {
		return fmt.Errorf("confirming the quarantined AlertEvent: %w", err)
	}
	r.releases.settle(event, f.key.Name)
	return nil
}

// confirmLeft confirms the copies that another process has made and not confirmed. A failure holds up nothing else: the
// originals stay, and the next fold of the Incident tries again.
func (r *incidentReconciler) confirmLeft(ctx context.Context, f *facts) {
	for _, left := range f.unconfirmed {
		err := r.confirmQuarantine(ctx, f, left.event, left.moved.UID, v1alpha1.QuarantineRejected)
		if err != nil && !errors.Is(err, errStale) {
			log.FromContext(ctx).Error(err, "Quarantine cannot be confirmed", "alertevent", left.event.Name)
		}
	}
}

// reportUnreadable tells of an AlertEvent whose packed alerts nobody can read: it was made by another hand.
// It stays, for that hand to mend.
func (r *incidentReconciler) reportUnreadable(ctx context.Context, event *v1alpha1.AlertEvent, cause error) {
	log.FromContext(ctx).Error(cause, "an AlertEvent cannot be read", "namespace", event.Namespace, "alertevent", event.Name)
	r.recorder.Eventf(event, nil, corev1.EventTypeWarning, "Unreadable", "Fold",
		"Nothing of it is folded, and it is kept: %s", v1alpha1.ShortMessage(cause.Error()))
}
