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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/live"
)

// listChunk is the limit of one list request: an Incident may have up to 256 KiB.
const listChunk = 250

var (
	// severities lists all severities, the most severe first.
	severities = []v1alpha1.Severity{
		v1alpha1.SeverityCritical, v1alpha1.SeverityError, v1alpha1.SeverityWarning, v1alpha1.SeverityInfo,
	}
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

// incidents returns the Incidents that match a filter, the most urgent first. The API server selects by fields if the
// filter has one value for a field.
func (c *cluster) incidents(ctx context.Context, f *filter) ([]*v1alpha1.Incident, error) {
	selector := fields.Set{}
	for field, values := range map[string][]string{
		"status.state":          f.states,
		"status.alert.severity": f.severities,
		"spec.integrationName":  f.integrations,
	} {
		if len(values) == 1 {
			selector[field] = values[0]
		}
	}
	var all []v1alpha1.Incident
	for next := ""; ; {
		list := &v1alpha1.IncidentList{}
		err := c.List(ctx, list, client.InNamespace(f.namespace(c)), client.Limit(listChunk), client.Continue(next),
			client.MatchingFieldsSelector{Selector: selector.AsSelector()})
		if err != nil {
			return nil, fmt.Errorf("listing incidents: %w", err)
		}
		all = append(all, list.Items...)
		if next = list.Continue; next == "" {
			return f.apply(all), nil
		}
	}
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
		!slices.ContainsFunc(f.selectors, func(s fields.Selector) bool { return !s.Matches(alertLabels(status.Alert.Labels)) })
}

// alertLabels implements fields.Fields for the labels of an alert.
type alertLabels v1alpha1.Bag

// Has implements fields.Fields.
func (l alertLabels) Has(name string) bool {
	_, has := l[name]
	return has
}

// Get implements fields.Fields.
func (l alertLabels) Get(name string) string { return live.Text(l[name]) }

func isAcknowledged(incident *v1alpha1.Incident) bool {
	return meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionAcknowledged)
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
