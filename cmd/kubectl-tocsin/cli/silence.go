package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// notForwarding are the reasons of the condition Forwarded for which no Incident of the integration reaches an Alertmanager, so
// that a silence there has nothing to silence.
var notForwarding = map[string]bool{
	v1alpha1.ReasonForwardNever: true, v1alpha1.ReasonFromAlertmanager: true, v1alpha1.ReasonNotSelected: true,
	v1alpha1.ReasonForwardingDisabled: true,
}

// checkForwarding returns an error if Incidents that are to be silenced are not forwarded, before the command requests anything.
// If the integration cannot be read, the condition of the Incident tells it afterwards.
func (o *actOptions) checkForwarding(ctx context.Context, c *cluster, incidents []*v1alpha1.Incident) error {
	if o.status != v1alpha1.AlertSilenced || o.length == 0 {
		return nil
	}
	checked := map[client.ObjectKey]bool{}
	for _, incident := range incidents {
		key := client.ObjectKey{Namespace: incident.Namespace, Name: incident.Spec.IntegrationName}
		if checked[key] {
			continue
		}
		checked[key] = true
		integration := &v1alpha1.WebhookIntegration{}
		if c.Get(ctx, key, integration) != nil {
			continue
		}
		forwarded := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionForwarded)
		switch {
		case forwarded == nil:
			return fmt.Errorf("%s cannot be silenced: Tocsin does not forward incidents of integration %q to an Alertmanager: "+
				"the integration has no condition %s", incident.Name, key.Name, v1alpha1.ConditionForwarded)
		case forwarded.Status != metav1.ConditionTrue && notForwarding[forwarded.Reason]:
			return fmt.Errorf("%s cannot be silenced: incidents of integration %q are not forwarded to an Alertmanager: %s",
				incident.Name, key.Name, safe(forwarded.Message))
		}
	}
	return nil
}

// awaitSilence waits until Alertmanager has the silence that was requested, or until the one that the request ended is gone. It
// describes what is so then.
func (o *actOptions) awaitSilence(ctx context.Context, c *cluster, before *v1alpha1.Incident) (string, error) {
	now := &v1alpha1.Incident{}
	var condition *metav1.Condition
	err := wait.PollUntilContextCancel(ctx, foldPoll, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(before), now); err != nil {
			return false, err
		}
		condition = meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionSilenced)
		return o.silenceSettled(condition, &now.Status, before.Status.Silence), nil
	})
	switch {
	case isTimeout(ctx, err):
		message := "the condition Silenced is absent"
		if condition != nil {
			message = safe(condition.Message)
		}
		if o.length == 0 {
			return "", fmt.Errorf("%s: timed out after %s; the end of the silence is stored, but Alertmanager still has it: %s",
				before.Name, o.timeout, message)
		}
		return "", fmt.Errorf("%s: timed out after %s; the silence is requested, but not in effect yet: %s",
			before.Name, o.timeout, message)
	case err != nil:
		return "", err
	case condition != nil && condition.Reason == v1alpha1.ReasonForwardingDisabled:
		return "", fmt.Errorf("%s: %s", before.Name, safe(condition.Message))
	case o.length == 0 && isSilenced(now):
		return o.result() + ", but another silence covers it: " + safe(condition.Message), nil
	}
	return o.result(), nil
}

// silenceSettled reports whether the condition Silenced tells of what the command requested: of a silence that ends when the
// requested one does, or later; or after unsilence, of none or another one than was requested before.
func (o *actOptions) silenceSettled(condition *metav1.Condition, now *v1alpha1.IncidentStatus, before *v1alpha1.Silence) bool {
	switch {
	case o.length == 0:
		return now.SilencedBy == nil || !isRequested(now.SilencedBy, before)
	case condition != nil && condition.Reason == v1alpha1.ReasonForwardingDisabled:
		return true
	}
	return now.SilencedBy != nil && now.Silence != nil &&
		!now.SilencedBy.EndTime.Before(now.Silence.EndTime.Truncate(time.Second))
}

// isRequested reports whether a silence in Alertmanager is the one that was requested by an AlertEvent.
func isRequested(silence, request *v1alpha1.Silence) bool {
	return request != nil && silence.EndTime.Sub(request.EndTime.Time).Abs() <= time.Second &&
		silence.By == cmp.Or(plaintext.ShortName(request.By), "tocsin")
}

// notRequested describes an Incident without a requested silence: nothing to end, but others may silence it.
func notRequested(incident *v1alpha1.Incident) string {
	if isSilenced(incident) {
		condition := meta.FindStatusCondition(incident.Status.Conditions, v1alpha1.ConditionSilenced)
		return "has no requested silence, but is silenced: " + safe(condition.Message)
	}
	return "not silenced"
}
