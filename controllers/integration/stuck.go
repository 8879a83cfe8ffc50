package integration

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// conditionCheck is how often the leader looks for integrations with outdated conditions.
const conditionCheck = 2 * time.Second

// stuckMessages explain the reasons for AlertEvents that are stuck by themselves.
var stuckMessages = map[string]string{
	clustercache.StuckUnreadable:  "The packed alerts of AlertEvents cannot be decoded; a Kubernetes Event on each says why.",
	clustercache.StuckNotCached:   "The namespace has more AlertEvents than Tocsin holds in memory; the later ones wait until others are gone.",
	clustercache.StuckTerminating: "AlertEvents are deleted, but finalizers keep them.",
}

// alertsFolded returns the condition AlertsFolded of an integration: why stored alerts do not become part of Incidents, or that
// they do.
func (r *reconciler) alertsFolded(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	condition, ok = r.Folded(integration)
	if !ok || condition.Status == metav1.ConditionFalse {
		return condition, ok
	}
	if reason := r.Capacity.Stuck(client.ObjectKeyFromObject(integration)); reason != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, stuckMessages[reason]
	}
	return condition, true
}

// unavailableMessages explain the consequences of each reason for posts.
var unavailableMessages = map[string]string{
	v1alpha1.ReasonQueueFull:            "Too many AlertEvents of the namespace wait to be folded: posts get 503.",
	v1alpha1.ReasonIncidentLimit:        "The namespace may have no more Incidents: posts of alerts that need a new one get 503.",
	v1alpha1.ReasonQuotaExceeded:        "A ResourceQuota rejects new Incidents: posts of alerts that need a new one get 503.",
	v1alpha1.ReasonForbidden:            "The operator may not create Incidents: posts of alerts that need a new one get 503.",
	v1alpha1.ReasonNamespaceTerminating: "The namespace is being deleted: posts of alerts that need a new Incident get 503.",
}

// setUnavailable changes the Ready condition of an integration whose posts get 503 for lack of capacity.
func setUnavailable(ready *metav1.Condition, reason string) {
	if message, ok := unavailableMessages[reason]; ok && ready.Status == metav1.ConditionTrue {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reason, message
	}
}

// watchConditions enqueues the integrations whose conditions are outdated, every few seconds.
func (r *reconciler) watchConditions(ctx context.Context, queue requests.Queue) error {
	go wait.UntilWithContext(ctx, func(ctx context.Context) { r.checkConditions(ctx, queue) }, conditionCheck)
	return nil
}

func (r *reconciler) checkConditions(ctx context.Context, queue requests.Queue) {
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

// isOutdated reports whether a condition of the integration that others decide is outdated, or what Ready says about capacity.
func (r *reconciler) isOutdated(integration *v1alpha1.WebhookIntegration) bool {
	ready := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return false // it is brought up anyway
	}
	conditions := slices.Clone(integration.Status.Conditions)
	if r.setOutside(integration, &conditions) {
		return true
	}
	reason := cmp.Or(r.Capacity.Full(integration.Namespace), integrations.Blocked(integration))
	_, unavailable := unavailableMessages[ready.Reason]
	return unavailable && ready.Reason != reason || ready.Status == metav1.ConditionTrue && reason != ""
}
