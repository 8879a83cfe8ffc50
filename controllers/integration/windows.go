package integration

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

// windows is the source of the condition MaintenanceValid.
type windows struct {
	plans *maintenance.Cache
	now   func() time.Time // by the API server's clock
}

// Condition implements ConditionSource. Its message changes when a window opens or ends.
func (w *windows) Condition(integration *v1alpha1.WebhookIntegration) (condition metav1.Condition, ok bool) {
	plan := w.plans.Of(integration)
	condition = metav1.Condition{
		Type: v1alpha1.ConditionMaintenanceValid, Status: metav1.ConditionTrue, ObservedGeneration: integration.Generation,
		Reason: v1alpha1.ReasonNoWindowOpen,
	}
	var sentences []string
	if err := plan.Err(); err != nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonInvalidWindow
		sentences = append(sentences, "These windows mute nothing: "+strings.ReplaceAll(err.Error(), "\n", "; ")+".")
	}
	open := plan.Open(w.now())
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
