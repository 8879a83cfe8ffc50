package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Blocked returns the reason why no Incident can be created for the integration; empty if Incidents can be created.
func (w *WebhookIntegration) Blocked() string {
	for i := range w.Status.Conditions {
		condition := &w.Status.Conditions[i]
		if condition.Type != ConditionAlertsFolded || condition.Status != metav1.ConditionFalse {
			continue
		}
		switch condition.Reason {
		case ReasonQuotaExceeded, ReasonForbidden, ReasonNamespaceTerminating, ReasonIncidentLimit:
			return condition.Reason
		}
	}
	return ""
}
