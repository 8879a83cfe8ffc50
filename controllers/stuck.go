package controllers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// stuckMessages say what each reason for a stuck AlertEvent means, in the order in which they count.
var stuckMessages = []struct{ reason, message string }{
	{v1alpha1.StuckQuarantined, "The alerts of quarantined AlertEvents cannot be folded; a Kubernetes Event on each says why."},
	{v1alpha1.StuckUnreadable, "The packed alerts of AlertEvents cannot be decoded; a Kubernetes Event on each says why."},
	{v1alpha1.StuckTerminating, "AlertEvents are deleted, but finalizers keep them."},
}

// stuckBook counts the AlertEvents of each integration that cannot drain, by reason.
type stuckBook struct {
	mu     sync.Mutex
	events map[types.NamespacedName]stuckEvent
	counts map[types.NamespacedName]map[string]int // by integration
}

type stuckEvent struct{ integration, reason string }

func newStuckBook() *stuckBook {
	return &stuckBook{events: map[types.NamespacedName]stuckEvent{}, counts: map[types.NamespacedName]map[string]int{}}
}

// set notes why an AlertEvent is stuck, if it is, and returns the integrations for which the reasons changed.
func (b *stuckBook) set(name types.NamespacedName, now stuckEvent) []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.events[name]
	if before == now {
		return nil
	}
	var changed []types.NamespacedName
	count := func(event stuckEvent, sign int) {
		if event.reason == "" {
			return
		}
		integration := types.NamespacedName{Namespace: name.Namespace, Name: event.integration}
		counts := b.counts[integration]
		if counts == nil {
			counts = map[string]int{}
			b.counts[integration] = counts
		}
		had := counts[event.reason] > 0
		counts[event.reason] += sign
		if counts[event.reason] == 0 {
			delete(counts, event.reason)
		}
		if has := counts[event.reason] > 0; has != had {
			changed = append(changed, integration)
		}
		if len(counts) == 0 {
			delete(b.counts, integration)
		}
	}
	count(before, -1)
	count(now, 1)
	if now.reason == "" {
		delete(b.events, name)
	} else {
		b.events[name] = now
	}
	return changed
}

// reasons returns why AlertEvents of the integration are stuck, sorted.
func (b *stuckBook) reasons(integration types.NamespacedName) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.counts[integration]))
}

// watchStuck keeps the book, and brings up the integrations for which it changes.
func watchStuck(book *stuckBook) handler.EventHandler {
	set := func(object client.Object, gone bool, queue requestQueue) {
		alertEvent, ok := object.(*v1alpha1.AlertEvent)
		if !ok {
			return
		}
		now := stuckEvent{alertEvent.Spec.IntegrationName, alertEvent.Stuck()}
		if gone || now.reason == "" {
			now = stuckEvent{}
		}
		for _, integration := range book.set(client.ObjectKeyFromObject(alertEvent), now) {
			queue.Add(reconcile.Request{NamespacedName: integration})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue requestQueue) { set(e.Object, false, queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue requestQueue) { set(e.ObjectNew, false, queue) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue requestQueue) { set(e.Object, true, queue) },
	}
}

// alertsFolded is the condition AlertsFolded of an integration: why stored alerts do not become part of
// Incidents, or that they do.
func (r *integrationReconciler) alertsFolded(integration *v1alpha1.WebhookIntegration, now time.Time) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionAlertsFolded,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: integration.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	cause := r.blocked.cause(integration.Namespace)
	if cause == nil && integration.Blocked() != "" && !r.blocked.knows(integration.Namespace, now) {
		condition = *meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionAlertsFolded)
		condition.ObservedGeneration = integration.Generation
		return condition
	}
	if cause != nil {
		condition.Reason, condition.Message = cause.reason, cause.message()
		return condition
	}
	reasons := r.stuck.reasons(client.ObjectKeyFromObject(integration))
	for _, known := range stuckMessages {
		if slices.Contains(reasons, known.reason) {
			condition.Reason, condition.Message = known.reason, known.message
			return condition
		}
	}
	condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonFolding
	condition.Message = "Stored alerts become part of their Incidents."
	return condition
}

// refusalMessages say what each reason means for posts.
var refusalMessages = map[string]string{
	v1alpha1.ReasonQueueFull: "Too many AlertEvents of the namespace wait to be folded: posts get 503.",
	v1alpha1.ReasonIncidentLimit: "The namespace has as many Incidents as it may have: posts of alerts that need a new " +
		"one get 503.",
	v1alpha1.ReasonQuotaExceeded:        "A ResourceQuota rejects new Incidents: posts of alerts that need a new one get 503.",
	v1alpha1.ReasonForbidden:            "The operator may not create Incidents: posts of alerts that need a new one get 503.",
	v1alpha1.ReasonNamespaceTerminating: "The namespace is being deleted: posts of alerts that need a new Incident get 503.",
}

// refuseFor changes the Ready condition of an integration whose posts are refused for lack of capacity.
func refuseFor(ready *metav1.Condition, refusal string) {
	if message, ok := refusalMessages[refusal]; ok && ready.Status == metav1.ConditionTrue {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, refusal, message
	}
}

// watchCapacity brings up the integrations whose conditions do not say what holds for their namespace, every
// few seconds and when a namespace is blocked or unblocked.
func (r *integrationReconciler) watchCapacity(
	ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request],
) error {
	check := func() {
		var list v1alpha1.WebhookIntegrationList
		if err := r.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "Could not read the WebhookIntegrations")
			return
		}
		for i := range list.Items {
			if integration := &list.Items[i]; r.isOutdated(integration) {
				queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(integration)})
			}
		}
	}
	r.blocked.begin(r.clock.Now())
	go func() {
		ticker := time.NewTicker(capacityCheck)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.blocked.changed:
			case <-ticker.C:
			}
			check()
		}
	}()
	return nil
}

// isOutdated says whether the integration's conditions tell of another lack of capacity than there is.
func (r *integrationReconciler) isOutdated(integration *v1alpha1.WebhookIntegration) bool {
	blocked := ""
	if cause := r.blocked.cause(integration.Namespace); cause != nil {
		blocked = cause.reason
	}
	if blocked != integration.Blocked() {
		return true
	}
	ready := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return false // it is brought up anyway
	}
	refusal := cmp.Or(r.refusals(integration.Namespace), blocked)
	_, refused := refusalMessages[ready.Reason]
	return refused && ready.Reason != refusal || ready.Status == metav1.ConditionTrue && refusal != ""
}
