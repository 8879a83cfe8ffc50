package live

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// Filter selects Incidents, or episodes of them. An empty field selects all.
type Filter struct {
	Integrations []string
	// Severities selects by the severity of the Incident, or the highest one of the episode.
	Severities []string
	// Labels select by the labels of the alert; all must match.
	Labels         []LabelSelector
	Unacknowledged bool
	// Assignees select by who works on the Incident, or worked on the episode at its end.
	Assignees  []string
	Unassigned bool
}

// Matches reports whether the filter selects an Incident as it is now.
func (f *Filter) Matches(incident *v1alpha1.Incident) bool {
	status := &incident.Status
	return f.Selects(incident.Spec.IntegrationName, status.Alert.Severity, fold.AssigneeOf(status), IsAcknowledged(incident),
		status.Alert.Labels)
}

// Selects reports whether the filter selects an Incident or an episode with these properties.
func (f *Filter) Selects(
	integration string, severity v1alpha1.Severity, assignee string, isAcknowledged bool, alert map[string]string,
) bool {
	in := func(values []string, value string) bool { return len(values) == 0 || slices.Contains(values, value) }
	return in(f.Integrations, integration) && in(f.Severities, string(severity)) &&
		(!f.Unacknowledged || !isAcknowledged) && in(f.Assignees, assignee) && (!f.Unassigned || assignee == "") &&
		!slices.ContainsFunc(f.Labels, func(matches LabelSelector) bool { return !matches(alert) })
}

// LabelSelector reports whether it selects an alert with these labels.
type LabelSelector func(alert map[string]string) bool

// ParseLabels parses a selector in the syntax of kubectl's -l, such as "team in (a,b),!muted". Labels of alerts have more
// characters than those of objects: what is no selector of these, such as "mount=/" or "instance=db-1:9100", is read as
// comparisons with =, == and !=, in which a backslash escapes commas.
func ParseLabels(text string) (LabelSelector, error) {
	selector, err := labels.Parse(text)
	if err == nil {
		return func(alert map[string]string) bool { return selector.Matches(labels.Set(alert)) }, nil
	}
	comparisons, fieldsErr := fields.ParseSelector(text)
	if fieldsErr != nil || comparisons.Empty() || slices.ContainsFunc(comparisons.Requirements(), isMisread) {
		return nil, err
	}
	return func(alert map[string]string) bool { return comparisons.Matches(fields.Set(alert)) }, nil
}

// isMisread reports whether a comparison is a part of a set, such as "a in (x" of "a in (x=y)", or a slip, such as "a=((".
func isMisread(comparison fields.Requirement) bool {
	return comparison.Field == "" || strings.ContainsAny(comparison.Field, "()") ||
		strings.Count(comparison.Value, "(") != strings.Count(comparison.Value, ")")
}
