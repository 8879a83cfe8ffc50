package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/live"
)

var (
	// severities lists all severities, the most severe first.
	severities    = v1alpha1.Severities()
	severityNames = []string{"critical", "error", "warning", "info"}
	stateNames    = []string{string(v1alpha1.IncidentOpen), string(v1alpha1.IncidentResolved)}
)

// filter selects Incidents.
type filter struct {
	allNamespaces  bool
	states         []string
	severities     []string
	integrations   []string
	labels         []string
	unacknowledged bool

	selectors []fields.Selector // of labels
}

// addFlags adds the flags of the filter except --state.
func (f *filter) addFlags(p *plugin, command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "Select incidents of all namespaces.")
	flags.StringSliceVar(&f.severities, "severity", nil, "Select incidents with one of these severities, such as critical,error.")
	flags.StringSliceVarP(&f.integrations, "integration", "i", nil, "Select incidents of one of these integrations.")
	flags.StringArrayVarP(&f.labels, "label", "l", nil,
		"Select incidents by an alert label, such as team=storage or team!=web. If repeated, all must match.")
	flags.BoolVar(&f.unacknowledged, "unacknowledged", false, "Select incidents that are not acknowledged.")
	completeFlags(command, map[string]completions{
		"severity":    fixedCompletions(severityNames...),
		"integration": p.completeIntegrations,
	})
}

func (f *filter) addStateFlag(command *cobra.Command) {
	command.Flags().StringSliceVar(&f.states, "state", nil, "Select incidents in one of these states: Open, Resolved. Default: all.")
	completeFlags(command, map[string]completions{"state": fixedCompletions(stateNames...)})
}

// isSet reports whether a flag other than --all-namespaces and --state is set.
func (f *filter) isSet() bool {
	return f.unacknowledged || len(f.severities)+len(f.integrations)+len(f.labels) > 0
}

// complete validates and normalizes the flags.
func (f *filter) complete() error {
	for i, state := range f.states {
		at := slices.IndexFunc(stateNames, func(s string) bool { return strings.EqualFold(s, state) })
		if at < 0 {
			return fmt.Errorf("--state must be Open or Resolved, not %q", state)
		}
		f.states[i] = stateNames[at]
	}
	for i, severity := range f.severities {
		f.severities[i] = strings.ToLower(severity)
		if !slices.Contains(severityNames, f.severities[i]) {
			return fmt.Errorf("--severity must be one of critical, error, warning and info, not %q", severity)
		}
	}
	for _, label := range f.labels {
		selector, err := fields.ParseSelector(label)
		if err != nil {
			return fmt.Errorf("--label %q: %w", label, err)
		}
		f.selectors = append(f.selectors, selector)
	}
	return nil
}

// namespace returns the selected namespace; empty for all namespaces.
func (f *filter) namespace(c *cluster) string {
	if f.allNamespaces {
		return ""
	}
	return c.namespace
}

// incidents returns the Incidents that match a filter, the most urgent first.
func (c *cluster) incidents(ctx context.Context, f *filter, shows *progress) ([]*v1alpha1.Incident, error) {
	defer shows.clear()
	l := &listing{cluster: c, filter: f, progress: shows}
	all, err := l.all(ctx, l.selector().AsSelector(), "")
	slices.SortFunc(all, byUrgency)
	return all, err
}

// apply returns the Incidents that match, the most urgent first.
func (f *filter) apply(items []v1alpha1.Incident) []*v1alpha1.Incident {
	var list []*v1alpha1.Incident
	for i := range items {
		if f.matches(&items[i]) {
			list = append(list, &items[i])
		}
	}
	slices.SortFunc(list, byUrgency)
	return list
}

func (f *filter) matches(incident *v1alpha1.Incident) bool {
	status := &incident.Status
	in := func(values []string, value string) bool { return len(values) == 0 || slices.Contains(values, value) }
	return in(f.states, string(status.State)) && in(f.severities, string(status.Alert.Severity)) &&
		in(f.integrations, incident.Spec.IntegrationName) && (!f.unacknowledged || !isAcknowledged(incident)) &&
		!slices.ContainsFunc(f.selectors, func(s fields.Selector) bool { return !s.Matches(live.Labels(status.Alert.Labels)) })
}

func isAcknowledged(incident *v1alpha1.Incident) bool {
	return meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionAcknowledged)
}

func isSilenced(incident *v1alpha1.Incident) bool {
	return meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionSilenced)
}

// byUrgency orders Incidents by state, severity, acknowledgement and age: open, severe, unacknowledged and new ones
// first.
func byUrgency(a, b *v1alpha1.Incident) int {
	return cmp.Or(
		compareBool(a.Status.State == v1alpha1.IncidentResolved, b.Status.State == v1alpha1.IncidentResolved),
		cmp.Compare(severityRank(a.Status.Alert.Severity), severityRank(b.Status.Alert.Severity)),
		compareBool(isAcknowledged(a), isAcknowledged(b)),
		-timeOf(a.Status.LastAlertTime).Compare(timeOf(b.Status.LastAlertTime)),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// severityRank returns 0 for the most severe.
func severityRank(severity v1alpha1.Severity) int {
	if i := slices.Index(severities, severity); i >= 0 {
		return i
	}
	return len(severities)
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
