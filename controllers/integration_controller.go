package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations,verbs=get;list;watch
// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations/status,verbs=update;patch

// integrationReconciler writes the status of WebhookIntegrations, all but lastRejection, which every
// replica writes for itself.
type integrationReconciler struct {
	cache    client.Reader // with the indexes of setup.go
	live     client.StatusClient
	received *receivedTimes
	recorder events.EventRecorder
	clock    Clock

	// checkMapping says what is wrong with an integration's mapping, in a line that does not change.
	checkMapping func(*v1alpha1.WebhookIntegration) error
}

// Reconcile brings the status of one integration up to date.
func (r *integrationReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var integration v1alpha1.WebhookIntegration
	if err := r.cache.Get(ctx, req.NamespacedName, &integration); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.received.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading the WebhookIntegration: %w", err)
	}
	sharers, err := listSharers(ctx, r.cache, &integration)
	if err != nil {
		return ctrl.Result{}, err
	}
	now := r.clock.Now()
	ready, next := readiness(&integration, sharers, now)
	received, wait := r.received.due(req.NamespacedName, integration.Status.LastReceivedTime, now)

	if err := r.checkMapping(&integration); err != nil && ready.Status == metav1.ConditionTrue {
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonInvalidMapping
		ready.Message = "Alerts are read by the payload rules alone: " + err.Error()
	}
	updated := integration.DeepCopy()
	changed := meta.SetStatusCondition(&updated.Status.Conditions, ready)
	updated.Status.ObservedGeneration = integration.Generation
	if received != nil {
		updated.Status.LastReceivedTime = received
	}
	if err := r.patch(ctx, &integration, updated); err != nil {
		return ctrl.Result{}, err
	}
	if received != nil {
		r.received.wrote(req.NamespacedName, now)
	}
	if changed && ready.Reason == v1alpha1.ReasonInvalidMapping {
		r.recorder.Eventf(&integration, nil, corev1.EventTypeWarning, ready.Reason, "Check", "%s", ready.Message)
	}
	if !next.IsZero() && (wait == 0 || next.Sub(now) < wait) {
		wait = next.Sub(now)
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// patch sends what differs and nothing else: other replicas write lastRejection meanwhile.
func (r *integrationReconciler) patch(ctx context.Context, read, updated *v1alpha1.WebhookIntegration) error {
	patch := client.MergeFrom(read)
	data, err := patch.Data(updated)
	if err != nil {
		return fmt.Errorf("comparing the WebhookIntegration's status: %w", err)
	}
	if string(data) == "{}" {
		return nil
	}
	err = r.live.Status().Patch(ctx, updated, patch)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the WebhookIntegration's status: %w", err)
	}
	return nil
}

// listSharers lists the other integrations, in any watched namespace, that have one of the same token
// hashes. They come from the cache and must not be modified.
func listSharers(
	ctx context.Context, cache client.Reader, integration *v1alpha1.WebhookIntegration,
) ([]v1alpha1.WebhookIntegration, error) {
	var sharers []v1alpha1.WebhookIntegration
	for _, hash := range tokenHashes(integration) {
		var list v1alpha1.WebhookIntegrationList
		err := cache.List(ctx, &list, client.MatchingFields{tokenHashIndex: hash}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, fmt.Errorf("reading the WebhookIntegrations: %w", err)
		}
		for i := range list.Items {
			if other := &list.Items[i]; other.UID != integration.UID && other.DeletionTimestamp.IsZero() {
				sharers = append(sharers, *other)
			}
		}
	}
	return sharers, nil
}

// readiness is the Ready condition, and when it may change by itself: at the next expiry of a token, zero
// for never. The rules are in the order in which they count.
func readiness(
	integration *v1alpha1.WebhookIntegration, sharers []v1alpha1.WebhookIntegration, now time.Time,
) (ready metav1.Condition, next time.Time) {
	var valid, conflicts []string
	for _, token := range integration.Spec.Tokens {
		if expires := token.ExpiresAt; expires != nil && !expires.IsZero() {
			if !now.Before(expires.Time) {
				continue
			}
			if next.IsZero() || expires.Before(next) {
				next = expires.Time
			}
		}
		if owner := olderOwner(integration, sharers, token.SHA256); owner != "" {
			conflicts = append(conflicts, fmt.Sprintf("%s (in %s)", token.Name, owner))
			continue
		}
		valid = append(valid, token.Name)
	}
	slices.Sort(valid)
	slices.Sort(conflicts)

	ready = metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: integration.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	switch {
	case integration.Spec.Suspend:
		ready.Reason, ready.Message = v1alpha1.ReasonSuspended, "spec.suspend is true: every post is answered with 403."
	case len(conflicts) > 0:
		ready.Reason = v1alpha1.ReasonTokenConflict
		ready.Message = "An older WebhookIntegration lists the same token and gets its alerts: " + strings.Join(conflicts, ", ") + "."
	case len(valid) == 0:
		ready.Reason, ready.Message = v1alpha1.ReasonNoValidToken, "No token is listed, or all have expired."
	default:
		ready.Status = metav1.ConditionTrue
		ready.Reason, ready.Message = v1alpha1.ReasonAccepting, "Alerts are accepted with: "+strings.Join(valid, ", ")+"."
	}
	return ready, next
}

// olderOwner is the oldest of the integrations that list the hash, as namespace/name, when that is not the
// integration itself. As for the webhook server, it does not matter whether the token has expired there.
func olderOwner(integration *v1alpha1.WebhookIntegration, sharers []v1alpha1.WebhookIntegration, hash string) string {
	owner := integration
	for i := range sharers {
		sharer := &sharers[i]
		if slices.Contains(tokenHashes(sharer), hash) && compareAge(sharer, owner) < 0 {
			owner = sharer
		}
	}
	if owner == integration {
		return ""
	}
	return owner.Namespace + "/" + owner.Name
}

// compareAge orders integrations by age, oldest first; those made in one second by namespace and name.
func compareAge(a, b *v1alpha1.WebhookIntegration) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name),
	)
}

// tokenHashes are the hashes that the integration lists, each once.
func tokenHashes(integration *v1alpha1.WebhookIntegration) []string {
	hashes := make([]string, 0, len(integration.Spec.Tokens))
	for _, token := range integration.Spec.Tokens {
		hashes = append(hashes, token.SHA256)
	}
	slices.Sort(hashes)
	return slices.Compact(hashes)
}
