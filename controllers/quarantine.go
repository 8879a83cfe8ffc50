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

// handleRejection has a fold that was rejected tried again, at once with fewer AlertEvents, until it is clear which one is
// at fault; then it moves that one's alerts into quarantine.
func (r *incidentReconciler) handleRejection(ctx context.Context, o *observed, rejection error) (ctrl.Result, error) {
	if o.retrying {
		r.bisection.retryFailed(o.key, o.toFold, o.now)
		log.FromContext(ctx).V(1).Info("Quarantined AlertEvents still cannot be folded", "alertevents", len(o.toFold),
			"rejection", rejection.Error())
		return ctrl.Result{RequeueAfter: writeInterval}, nil
	}
	culprit, narrowed := r.bisection.failed(o.key, o.toFold)
	switch {
	case narrowed:
		log.FromContext(ctx).Info("Searching for the AlertEvent that cannot be folded",
			"alertevents", len(o.toFold), "rejection", rejection.Error())
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case culprit == nil:
		return ctrl.Result{}, rejection
	}
	switch err := r.quarantine(ctx, o, culprit, rejection); {
	case errors.Is(err, errStale):
		log.FromContext(ctx).V(1).Info("Starting over", "reason", err.Error())
	case isTerminating(err):
		return ctrl.Result{RequeueAfter: terminatingRetry}, nil
	case isRejected(err), apierrors.IsForbidden(err): // a quota, a policy
		r.bisection.delay(o.key, culprit.UID, o.now)
		log.FromContext(ctx).Error(err, "AlertEvent cannot be quarantined", "alertevent", culprit.Name)
		r.recorder.Eventf(culprit, nil, corev1.EventTypeWarning, "QuarantineFailed", "Fold",
			"Folding it into the Incident %s failed repeatedly, and its alerts cannot be moved; tried again in %s: %s",
			o.key.Name, quarantineRetry, v1alpha1.ShortMessage(err.Error()))
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: staleRetry}, nil
}

// quarantine moves the alerts that an AlertEvent has for the Incident into an AlertEvent of their own. When it returns
// nil, the API server has acknowledged that one, and the alerts are settled as far as the first one is concerned.
func (r *incidentReconciler) quarantine(ctx context.Context, o *observed, event *v1alpha1.AlertEvent, rejection error) error {
	var stored v1alpha1.AlertEvent // the cache may hold less of it
	if err := r.readAgain(ctx, event, &stored); err != nil {
		return err
	}
	moved := fold.QuarantineCopy(&stored, o.key.Name)
	if len(moved.Spec.Alerts) > 1 {
		_ = moved.Spec.Pack() // what cannot be packed is written as it is
	}
	err := r.live.Create(ctx, moved)
	if apierrors.IsAlreadyExists(err) {
		err = r.live.Get(ctx, client.ObjectKeyFromObject(moved), moved)
	}
	if err != nil {
		return fmt.Errorf("creating the quarantined AlertEvent: %w", err)
	}
	r.bisection.scheduleRetry(moved.UID, o.now)
	reason := v1alpha1.QuarantineRejected
	if errors.Is(rejection, errUnfoldable) {
		reason = v1alpha1.QuarantineFoldFailed
	}
	if err := r.confirmQuarantine(ctx, o, event, moved.UID, reason); err != nil {
		return err
	}
	log.FromContext(ctx).Error(rejection, "Quarantined AlertEvent", "alertevent", event.Name, "quarantine", moved.Name)
	r.recorder.Eventf(moved, event, corev1.EventTypeWarning, "Quarantined", "Fold",
		"Folding its alerts into the Incident %s failed repeatedly; tried again every %s: %s",
		o.key.Name, quarantineRetry, v1alpha1.ShortMessage(rejection.Error()))
	return nil
}

// confirmQuarantine confirms a copy that exists, if the AlertEvent that it was made of exists too, by a quorum read that
// comes after the copy's creation. Only then may that one be released without its alerts being folded from it. Both
// carry their UIDs: a copy made anew has to be confirmed anew.
func (r *incidentReconciler) confirmQuarantine(
	ctx context.Context, o *observed, event *v1alpha1.AlertEvent, copyUID types.UID, reason string,
) error {
	var stored metav1.PartialObjectMetadata
	stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertEvent"))
	if err := r.readAgain(ctx, event, &stored); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": copyUID, "labels": map[string]string{v1alpha1.QuarantineLabel: reason},
	}})
	if err != nil {
		return fmt.Errorf("encoding the confirmation: %w", err)
	}
	moved := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{
		Namespace: event.Namespace, Name: v1alpha1.QuarantineName(string(event.UID), o.key.Name),
	}}
	err = r.live.Patch(ctx, moved, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	if err != nil {
		return fmt.Errorf("confirming the quarantined AlertEvent: %w", err)
	}
	r.releases.settle(event, o.key.Name)
	return nil
}

// reportUnreadable reports an AlertEvent whose packed alerts cannot be decoded. It stays, for its author to mend.
func (r *incidentReconciler) reportUnreadable(ctx context.Context, event *v1alpha1.AlertEvent, cause error) {
	log.FromContext(ctx).Error(cause, "AlertEvent cannot be decoded", "namespace", event.Namespace, "alertevent", event.Name)
	r.recorder.Eventf(event, nil, corev1.EventTypeWarning, "Unreadable", "Fold",
		"Cannot be decoded; left unprocessed: %s", v1alpha1.ShortMessage(cause.Error()))
}
