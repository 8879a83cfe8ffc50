package integration

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// maintenanceValid returns the condition MaintenanceValid. Its message changes when a window opens or ends.
func (r *reconciler) maintenanceValid(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	plan := r.plans.Of(integration)
	condition = metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoWindowOpen}
	var sentences []string
	if err := plan.Err(); err != nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonInvalidWindow
		sentences = append(sentences, "These windows mute nothing: "+strings.ReplaceAll(err.Error(), "\n", "; ")+".")
	}
	open := plan.Open(r.APITime())
	if len(open) > 0 && condition.Status == metav1.ConditionTrue {
		condition.Reason = v1alpha1.ReasonWindowOpen
	}
	for _, opening := range open {
		until := opening.Until.UTC().Format(time.RFC3339)
		sentences = append(sentences, fmt.Sprintf("The window %s is open until %s.", opening.Window, until))
	}
	if len(open) == 0 {
		sentences = append(sentences, "No window is open.")
	}
	condition.Message = strings.Join(sentences, " ")
	return condition, true
}

// heartbeatsHeard returns the condition HeartbeatsHeard, which tells what the status of the heartbeats says.
func heartbeatsHeard(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	var missed, waiting []string
	for i := range integration.Spec.Heartbeats {
		name := integration.Spec.Heartbeats[i].Name
		switch known := v1alpha1.FindHeartbeat(integration.Status.Heartbeats, name); {
		case known != nil && known.MissedTime != nil:
			missed = append(missed, name)
		case known == nil || known.LastSignalTime == nil:
			waiting = append(waiting, name)
		}
	}
	condition = metav1.Condition{
		Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonHeard, Message: "Every heartbeat is heard.",
	}
	switch {
	case len(missed) > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonMissed
		condition.Message = "Not heard in time: " + strings.Join(missed, ", ") + "."
	case len(waiting) > 0:
		condition.Reason = v1alpha1.ReasonWaiting
		condition.Message = "No heartbeat is missed. These wait for their first signal: " + strings.Join(waiting, ", ") + "."
	}
	return condition, true
}
