package alerts

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// Settings are what the configuration says about the alerts of all Alertmanagers.
type Settings struct {
	ExternalLabels      map[string]string
	AlertLabels         []string // names of the labels of senders that are forwarded
	AlertAnnotations    []string // names of the annotations of senders that are forwarded
	Expiry              time.Duration
	SilenceAcknowledged bool
	AssigneeLabel       bool     // forwarded alerts have a label that names who works on the Incident
	PageURL             *url.URL // of the page, for links to Incidents; nil if there is none
}

// RoundInterval is how often everything is posted: two posts of an expiry may fail.
func (s *Settings) RoundInterval() time.Duration {
	const postsPerExpiry = 3
	return min(MaxRoundInterval, s.Expiry/postsPerExpiry)
}

// EndedWindow is how long ended alerts are posted again.
func (s *Settings) EndedWindow() time.Duration { return max(MinEndedWindow, s.Expiry) }

// Target is which Incidents one Alertmanager is to know, and what of them.
type Target struct {
	*Settings
	Integrations labels.Selector
	Severities   []v1alpha1.Severity // empty: all
	ExternalURL  *url.URL            // of the Alertmanager, for links that people follow; nil if there is none
}

// Exclusion is why an Incident is not posted. Its message does not change while it applies.
type Exclusion struct {
	Condition string                    // the reason of the integration's condition Forwarded; empty if it excludes only a severity
	Status    v1alpha1.ForwardingReason // the reason in the Incident's status
	Message   string
}

var (
	forwardNever     = &Exclusion{v1alpha1.ReasonForwardNever, v1alpha1.ForwardingOff, "spec.forward is Never."}
	fromAlertmanager = &Exclusion{
		v1alpha1.ReasonFromAlertmanager, v1alpha1.ForwardingFromAlertmanager,
		"The alerts come from Alertmanager or vmalert. Set spec.forward to Always to forward the Incidents.",
	}
	notSelected = &Exclusion{
		v1alpha1.ReasonNotSelected, v1alpha1.ForwardingOff,
		"The operator's configuration selects this integration for no Alertmanager.",
	}
)

// ExcludesIntegration returns why no Incident of an integration is posted; nil if they are.
func (t *Target) ExcludesIntegration(integration *v1alpha1.WebhookIntegration) *Exclusion {
	return t.excludes(integration, integration.Spec.Preset)
}

// ExcludesIncident returns why an Incident of the integration is not posted, whatever its severity; nil if it is. The Incident
// has the preset that read its alerts. The Incidents that Tocsin itself opens come from no Alertmanager.
func (t *Target) ExcludesIncident(incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration) *Exclusion {
	if v1alpha1.IsHeartbeatKey(incident.Spec.DedupKey) {
		return t.excludes(integration)
	}
	return t.excludes(integration, integration.Spec.Preset, incident.Status.Alert.Preset)
}

// Excludes returns why an Incident of the integration is not posted with a severity; nil if it is.
func (t *Target) Excludes(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, severity v1alpha1.Severity,
) *Exclusion {
	if exclusion := t.ExcludesIncident(incident, integration); exclusion != nil {
		return exclusion
	}
	if !t.hasSeverity(severity) {
		return &Exclusion{
			Status:  v1alpha1.ForwardingFiltered,
			Message: fmt.Sprintf("The operator's configuration selects the severity %s for no Alertmanager.", severity),
		}
	}
	return nil
}

// excludes returns why alerts that one of the presets has read are not posted.
func (t *Target) excludes(integration *v1alpha1.WebhookIntegration, presets ...string) *Exclusion {
	switch {
	case integration.Spec.Forward == v1alpha1.ForwardNever:
		return forwardNever
	case integrations.StaysInAlertmanager(&integration.Spec, presets...):
		return fromAlertmanager
	case !t.Integrations.Matches(labels.Set(integration.Labels)):
		return notSelected
	default:
		return nil
	}
}

func (t *Target) hasSeverity(severity v1alpha1.Severity) bool {
	return len(t.Severities) == 0 || slices.Contains(t.Severities, severity)
}
