// Package integrations has what both halves of a replica know about WebhookIntegrations: what their status tells, and what their
// spec leaves out.
package integrations

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// GeneratedAutoResolve is after how long without an alert an Incident with a generated dedup key resolves when its integration
// does not say.
const GeneratedAutoResolve = 24 * time.Hour

// IsFromAlertmanager reports whether the alerts that a preset reads have been in an Alertmanager, or are sent to one as well.
func IsFromAlertmanager(preset string) bool { return preset == "alertmanager" || preset == "vmalert" }

// StaysInAlertmanager reports whether alerts of an integration that one of the presets has read are not forwarded, because they
// have been in an Alertmanager. What a Tocsin has forwarded was in none of ours.
func StaysInAlertmanager(spec *v1alpha1.WebhookIntegrationSpec, presets ...string) bool {
	return spec.Forward != v1alpha1.ForwardAlways && !spec.Federate && slices.ContainsFunc(presets, IsFromAlertmanager)
}

// WhyNotFolded returns the reason why alerts for the integration do not become Incidents; empty if all do.
func WhyNotFolded(w *v1alpha1.WebhookIntegration) string {
	condition := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionAlertsFolded)
	if condition == nil || condition.Status != metav1.ConditionFalse {
		return ""
	}
	return condition.Reason
}

// Blocked returns the reason why no Incident can be created for the integration; empty if Incidents can be created.
func Blocked(w *v1alpha1.WebhookIntegration) string {
	switch reason := WhyNotFolded(w); reason {
	case v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonForbidden, v1alpha1.ReasonNamespaceTerminating, v1alpha1.ReasonIncidentLimit:
		return reason
	}
	return ""
}

// MappingFailureMemory is the time after its newest failure in which a mapping counts as failing.
const MappingFailureMemory = time.Hour

// CurrentMappingFailure returns the newest failure of the current mapping; nil if there was none within
// MappingFailureMemory. It ignores a time further than that in the future, which a wrong clock has written.
func CurrentMappingFailure(w *v1alpha1.WebhookIntegration, now time.Time) *v1alpha1.MappingFailure {
	failure := w.Status.LastMappingFailure
	if failure == nil || failure.ObservedGeneration != w.Generation ||
		now.Sub(failure.Time.Time).Abs() >= MappingFailureMemory {
		return nil
	}
	return failure
}
