package integration

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// conditionCheck is how often the leader looks for integrations with outdated conditions.
const conditionCheck = 2 * time.Second

// stuckMessages explain the reasons for AlertEvents that are stuck by themselves.
var stuckMessages = map[string]string{
	queue.StuckUnreadable: "The alerts of AlertEvents cannot be decoded; a Kubernetes Event on each says why.",
	queue.StuckNotCached: "The namespace has more AlertEvents than Tocsin keeps in memory; " +
		"the later ones wait until others are gone.",
	queue.StuckTerminating: "AlertEvents are deleted, but finalizers keep them.",
}

// fullMemory is how long a namespace counts as full after it was: near the limit, the condition would change every other second.
// maxFull bounds how many do.
const (
	fullMemory = time.Minute
	maxFull    = 100_000
)

// fullConditions are the reason and the message of AlertsFolded for each reason for which a namespace has no capacity.
var fullConditions = map[string][2]string{
	v1alpha1.ReasonQueueFull: {
		v1alpha1.ReasonQueueFull, "Too many AlertEvents of the namespace wait to be folded: posts get 503."},
	v1alpha1.ReasonIncidentLimit: {
		v1alpha1.ReasonIncidentsFull, "The namespace may have no more Incidents: posts of alerts that need a new one get 503."},
}

// alertsFolded is the source of AlertsFolded.
type alertsFolded struct{ *reconciler }

// Condition implements ConditionSource. It tells why stored alerts are not folded, or why no others are stored, or that neither
// is so.
func (r alertsFolded) Condition(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	condition, ok = r.options.Folded.Condition(integration)
	if !ok || condition.Status == metav1.ConditionFalse {
		return condition, ok
	}
	capacity, namespace := r.options.Capacity, integration.Namespace
	events, hidden := capacity.HiddenIn(namespace)
	if events+hidden > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, queue.StuckNotCached
		condition.Message = fmt.Sprintf("The namespace has more objects than Tocsin keeps in memory, by about %d AlertEvents and %d "+
			"WebhookIntegrations. Delete some: the others are read again when half of their places are free. While AlertEvents "+
			"are missing, posts get 503.", roughly(events), roughly(hidden))
	} else if reason := capacity.Stuck(client.ObjectKeyFromObject(integration)); reason != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, stuckMessages[reason]
	} else if !integrations.IsWhole(integration) {
		condition.Status, condition.Message = metav1.ConditionFalse, messageTooLarge
		condition.Reason = v1alpha1.ReasonIntegrationsTooLarge
	} else if full, ok := fullConditions[r.whyFull(namespace)]; ok {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, full[0], full[1]
	}
	return condition, true
}

// roughly returns a number with one digit that is not zero, so that a condition does not change with every object.
func roughly(n int) int {
	if n < 10 {
		return n
	}
	return 10 * roughly(n/10)
}

// whyFull returns why a namespace is full, or lately was; empty if it was not.
func (r *reconciler) whyFull(namespace string) string {
	if now := r.options.Capacity.Full(namespace); now != "" {
		r.full.Add(namespace, now, fullMemory)
	}
	last, _ := r.full.Get(namespace)
	reason, _ := last.(string)
	return reason
}

// watchConditions enqueues the integrations whose conditions are outdated, every few seconds.
func (r *reconciler) watchConditions(ctx context.Context, queue requests.Queue) error {
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
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
	}, conditionCheck)
	return nil
}

// isOutdated reports whether a condition of the integration that others decide is outdated.
func (r *reconciler) isOutdated(integration *v1alpha1.WebhookIntegration) bool {
	if meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionReady) == nil {
		return false // it is brought up anyway
	}
	_, outdated := r.withOutside(integration)
	return outdated
}
