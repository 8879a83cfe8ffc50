package forward

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// target is one entry of a configuration. It never changes.
type target struct {
	config *Config
	entry  *Alertmanager
}

// fromAlertmanager are the presets whose alerts have been in an Alertmanager, or are sent to one as well.
var fromAlertmanager = []string{"alertmanager", "vmalert"}

// selects returns the reason why the integration's Incidents are not forwarded, as one of the condition Forwarded; empty
// if they are.
func (t *target) selects(integration *v1alpha1.WebhookIntegration) string {
	spec := &integration.Spec
	switch {
	case spec.Forward == v1alpha1.ForwardNever:
		return v1alpha1.ReasonForwardNever
	case spec.Forward != v1alpha1.ForwardAlways && slices.Contains(fromAlertmanager, spec.Preset):
		return v1alpha1.ReasonFromAlertmanager
	case !t.entry.Integrations.Matches(labels.Set(integration.Labels)):
		return v1alpha1.ReasonNotSelected
	default:
		return ""
	}
}

// forwards reports whether an Incident of the integration is forwarded. With the preset auto, the Incident tells which preset
// read its alerts.
func (t *target) forwards(incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration) bool {
	if integration.Spec.Forward != v1alpha1.ForwardAlways && slices.Contains(fromAlertmanager, incident.Status.Alert.Preset) {
		return false
	}
	return t.selects(integration) == ""
}

func (t *target) hasSeverity(severity v1alpha1.Severity) bool {
	return len(t.entry.Severities) == 0 || slices.Contains(t.entry.Severities, severity)
}

// sweepInterval is how often everything is posted.
func (c *Config) sweepInterval() time.Duration {
	const postsPerLease = 3
	return min(maxSweepInterval, c.Lease/postsPerLease)
}
