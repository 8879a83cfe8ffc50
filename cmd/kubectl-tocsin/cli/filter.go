package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/history"
)

var (
	// severities lists all severities, the most severe first.
	severities    = v1alpha1.Severities()
	severityNames = []string{"critical", "error", "warning", "info"}
	stateNames    = []string{string(v1alpha1.IncidentOpen), string(v1alpha1.IncidentResolved)}
)

// filter selects Incidents.
type filter struct {
	history.Filter
	allNamespaces bool
	states        []string
	labels        []string // of Filter.Labels
}

// addFlags adds the flags of the filter except --state.
func (f *filter) addFlags(p *plugin, command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "Select incidents of all namespaces.")
	flags.StringSliceVar(&f.Severities, "severity", nil, "Select incidents with one of these severities, such as critical,error.")
	flags.StringSliceVarP(&f.Integrations, "integration", "i", nil, "Select incidents of one of these integrations.")
	flags.StringArrayVarP(&f.labels, "label", "l", nil,
		"Select incidents by an alert label, such as team=storage or team!=web. If repeated, all must match.")
	flags.BoolVar(&f.Unacknowledged, "unacknowledged", false, "Select incidents that are not acknowledged.")
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
	return f.Unacknowledged || len(f.Severities)+len(f.Integrations)+len(f.labels) > 0
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
	for i, severity := range f.Severities {
		f.Severities[i] = strings.ToLower(severity)
		if !slices.Contains(severityNames, f.Severities[i]) {
			return fmt.Errorf("--severity must be one of critical, error, warning and info, not %q", severity)
		}
	}
	for _, label := range f.labels {
		selector, err := fields.ParseSelector(label)
		if err != nil {
			return fmt.Errorf("--label %q: %w", label, err)
		}
		f.Labels = append(f.Labels, selector)
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

func (f *filter) matches(incident *v1alpha1.Incident) bool {
	return (len(f.states) == 0 || slices.Contains(f.states, string(incident.Status.State))) && f.MatchesIncident(incident)
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
		compareBool(severityRank(a) < 0, severityRank(b) < 0), // an unknown severity comes last
		cmp.Compare(severityRank(a), severityRank(b)),
		compareBool(isAcknowledged(a), isAcknowledged(b)),
		lastAlertTime(b).Compare(lastAlertTime(a)),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// severityRank returns 0 for the most severe, and -1 for none.
func severityRank(incident *v1alpha1.Incident) int {
	return slices.Index(severities, incident.Status.Alert.Severity)
}

func lastAlertTime(incident *v1alpha1.Incident) time.Time {
	if at := incident.Status.LastAlertTime; at != nil {
		return at.Time
	}
	return time.Time{}
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
