package controllers

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// stuckMessages explain the reasons for stuck AlertEvents, most important first.
var stuckMessages = []struct{ reason, message string }{
	{clustercache.StuckUnreadable, "The packed alerts of AlertEvents cannot be decoded; a Kubernetes Event on each says why."},
	{clustercache.StuckTerminating, "AlertEvents are deleted, but finalizers keep them."},
}

// stuckEvents knows the AlertEvents that cannot drain.
type stuckEvents struct {
	mu     sync.Mutex
	events map[types.NamespacedName]stuckEvent
}

// stuckEvent is the integration of an AlertEvent, and why it is stuck.
type stuckEvent struct{ integration, reason string }

func newStuckEvents() *stuckEvents {
	return &stuckEvents{events: map[types.NamespacedName]stuckEvent{}}
}

// set notes why an AlertEvent is stuck, if it is, and reports whether that is new. before is the earlier state.
func (s *stuckEvents) set(name types.NamespacedName, now stuckEvent) (before stuckEvent, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.events[name]
	if now.reason == "" {
		now = stuckEvent{}
		delete(s.events, name)
	} else {
		s.events[name] = now
	}
	return before, before != now
}

// reasons returns why AlertEvents of the integration are stuck.
func (s *stuckEvents) reasons(integration types.NamespacedName) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	reasons := map[string]bool{}
	for name, event := range s.events {
		if name.Namespace == integration.Namespace && event.integration == integration.Name {
			reasons[event.reason] = true
		}
	}
	return reasons
}

// watchStuck keeps the stuck AlertEvents, and enqueues the integrations for which they change.
func watchStuck(stuck *stuckEvents) handler.EventHandler {
	return onChange(func(_ context.Context, old, current *v1alpha1.AlertEvent, _ bool, queue requestQueue) {
		now := stuckEvent{}
		if current != nil {
			now = stuckEvent{current.Spec.IntegrationName, clustercache.Stuck(current)}
		}
		name := client.ObjectKeyFromObject(cmp.Or(current, old))
		before, changed := stuck.set(name, now)
		for _, integration := range []string{before.integration, now.integration} {
			if changed && integration != "" {
				queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: name.Namespace, Name: integration}})
			}
		}
	})
}

// alertsFolded is the condition AlertsFolded of an integration: why stored alerts do not become part of
// Incidents, or that they do.
func (r *integrationReconciler) alertsFolded(integration *v1alpha1.WebhookIntegration, now time.Time) metav1.Condition {
	condition := falseCondition(v1alpha1.ConditionAlertsFolded, integration, now)
	cause := r.blocked.cause(integration.Namespace)
	if cause == nil && integrations.Blocked(integration) != "" && !r.blocked.knows(integration.Namespace, now) {
		condition = *meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionAlertsFolded)
		condition.ObservedGeneration = integration.Generation
		return condition
	}
	var names []string
	if cause == nil {
		cause, names = r.blocked.own(client.ObjectKeyFromObject(integration))
	}
	if cause != nil {
		condition.Reason, condition.Message = cause.reason, cause.message(names)
		return condition
	}
	reasons := r.stuck.reasons(client.ObjectKeyFromObject(integration))
	for _, known := range stuckMessages {
		if reasons[known.reason] {
			condition.Reason, condition.Message = known.reason, known.message
			return condition
		}
	}
	condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonFolding
	condition.Message = "Stored alerts become part of their Incidents."
	return condition
}

// refusalMessages explain the consequences of each reason for posts.
var refusalMessages = map[string]string{
	v1alpha1.ReasonQueueFull:            "Too many AlertEvents of the namespace wait to be folded: posts get 503.",
	v1alpha1.ReasonIncidentLimit:        "The namespace may have no more Incidents: posts of alerts that need a new one get 503.",
	v1alpha1.ReasonQuotaExceeded:        "A ResourceQuota rejects new Incidents: posts of alerts that need a new one get 503.",
	v1alpha1.ReasonForbidden:            "The operator may not create Incidents: posts of alerts that need a new one get 503.",
	v1alpha1.ReasonNamespaceTerminating: "The namespace is being deleted: posts of alerts that need a new Incident get 503.",
}

// setRefusing changes the Ready condition of an integration whose posts are refused for lack of capacity.
func setRefusing(ready *metav1.Condition, refusal string) {
	if message, ok := refusalMessages[refusal]; ok && ready.Status == metav1.ConditionTrue {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, refusal, message
	}
}

// watchCapacity enqueues the integrations whose conditions are wrong about their namespace, every few seconds and when a
// reason why Incidents cannot be written comes or goes.
func (r *integrationReconciler) watchCapacity(ctx context.Context, queue requestQueue) error {
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
	go every(ctx, capacityCheck, r.blocked.changed, check)
	return nil
}

// isOutdated reports whether the integration's conditions are wrong about its alerts that wait, the capacity of its
// namespace, or the forwarding and archiving of its Incidents.
func (r *integrationReconciler) isOutdated(integration *v1alpha1.WebhookIntegration) bool {
	ready := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionReady)
	folded := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionAlertsFolded)
	if ready == nil || folded == nil {
		return false // it is brought up anyway
	}
	wanted := r.alertsFolded(integration, r.clock.Now())
	if wanted.Reason != folded.Reason || wanted.Message != folded.Message || r.isOutsideOutdated(integration) {
		return true
	}
	refusal := cmp.Or(r.refusals(integration.Namespace), integrations.Blocked(integration))
	_, refused := refusalMessages[ready.Reason]
	return refused && ready.Reason != refusal || ready.Status == metav1.ConditionTrue && refusal != ""
}
