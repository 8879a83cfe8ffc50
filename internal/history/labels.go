package history

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

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
