package integration

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

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
