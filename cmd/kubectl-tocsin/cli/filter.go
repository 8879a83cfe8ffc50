package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// severities are all there are, worst first.
var severities = []v1alpha1.Severity{
	v1alpha1.SeverityCritical, v1alpha1.SeverityError, v1alpha1.SeverityWarning, v1alpha1.SeverityInfo,
}

// filter says which Incidents are wanted.
type filter struct {
	allNamespaces  bool
	states         []string
	severities     []string
	integrations   []string
	labels         []string
	unacknowledged bool

	selectors []fields.Selector // of labels
}

// addFlags adds the flags that say it; the state is left to the commands that are about all of them.
func (f *filter) addFlags(flags *pflag.FlagSet) {
	flags.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "Look at all namespaces.")
	flags.StringSliceVar(&f.severities, "severity", nil, "Only these severities, such as critical,error.")
	flags.StringSliceVarP(&f.integrations, "integration", "i", nil, "Only the incidents of these integrations.")
	flags.StringArrayVarP(&f.labels, "label", "l", nil,
		"Only incidents whose alerts have this label, such as team=storage or team!=web; several must all hold.")
	flags.BoolVar(&f.unacknowledged, "unacknowledged", false, "Only incidents that nobody has acknowledged.")
}

func (f *filter) addStateFlag(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.states, "state", nil, "Only incidents in these states, Open or Resolved. Default: both.")
}

// addCompletions completes the values of the flags.
func (f *filter) addCompletions(p *plugin, command *cobra.Command) {
	complete := map[string]completions{
		"severity":    fixedCompletions("critical", "error", "warning", "info"),
		"state":       fixedCompletions("Open", "Resolved"),
		"integration": p.completeIntegrations,
	}
	for flag, values := range complete {
		if command.Flags().Lookup(flag) == nil {
			continue
		}
		if err := command.RegisterFlagCompletionFunc(flag, values); err != nil {
			panic(err) // the flag exists
		}
	}
}

// complete reads what the flags say.
func (f *filter) complete() error {
	for i, state := range f.states {
		at := slices.IndexFunc([]string{"Open", "Resolved"}, func(s string) bool { return strings.EqualFold(s, state) })
		if at < 0 {
			return fmt.Errorf("--state is Open or Resolved, not %q", state)
		}
		f.states[i] = []string{"Open", "Resolved"}[at]
	}
	for i, severity := range f.severities {
		f.severities[i] = strings.ToLower(severity)
		if !slices.Contains(severities, v1alpha1.Severity(f.severities[i])) {
			return fmt.Errorf("--severity is one of critical, error, warning and info, not %q", severity)
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

// namespace is where to look; empty for everywhere.
func (f *filter) namespace(c *cluster) string {
	if f.allNamespaces {
		return ""
	}
	return c.namespace
}

// listOptions has the API server leave out what it can.
func (f *filter) listOptions(c *cluster) []client.ListOption {
	selector := fields.Set{}
	for field, values := range map[string][]string{
		"status.state":          f.states,
		"status.alert.severity": f.severities,
		"spec.integrationName":  f.integrations,
	} {
		if len(values) == 1 { // it knows no "one of these"
			selector[field] = values[0]
		}
	}
	return []client.ListOption{
		client.InNamespace(f.namespace(c)),
		client.MatchingFieldsSelector{Selector: selector.AsSelector()},
	}
}

// wants says whether an Incident is one of those that are wanted.
func (f *filter) wants(incident *v1alpha1.Incident) bool {
	status := &incident.Status
	for _, set := range []struct {
		allowed []string
		value   string
	}{
		{f.states, string(status.State)},
		{f.severities, string(status.Alert.Severity)},
		{f.integrations, incident.Spec.IntegrationName},
	} {
		if len(set.allowed) > 0 && !slices.Contains(set.allowed, set.value) {
			return false
		}
	}
	if f.unacknowledged && isAcknowledged(incident) {
		return false
	}
	for _, selector := range f.selectors {
		if !selector.Matches(alertLabels(status.Alert.Labels)) {
			return false
		}
	}
	return true
}

// alertLabels are the labels of an Incident's alert, as a selector looks at them.
type alertLabels v1alpha1.Bag

// Has implements fields.Fields.
func (l alertLabels) Has(name string) bool {
	_, has := l[name]
	return has
}

// Get implements fields.Fields.
func (l alertLabels) Get(name string) string { return text(l[name]) }

// text is a JSON value for a person: a string without its quotes, anything else as it is.
func text(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}

func isAcknowledged(incident *v1alpha1.Incident) bool {
	return meta.IsStatusConditionTrue(incident.Status.Conditions, v1alpha1.ConditionAcknowledged)
}

// byUrgency orders Incidents: open, severe and not yet acknowledged first, then the newest.
func byUrgency(a, b *v1alpha1.Incident) int {
	return cmp.Or(
		cmp.Compare(boolRank(a.Status.State == v1alpha1.IncidentResolved), boolRank(b.Status.State == v1alpha1.IncidentResolved)),
		cmp.Compare(severityRank(a.Status.Alert.Severity), severityRank(b.Status.Alert.Severity)),
		cmp.Compare(boolRank(isAcknowledged(a)), boolRank(isAcknowledged(b))),
		-moment(a.Status.LastAlertTime).Compare(moment(b.Status.LastAlertTime)),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// severityRank is 0 for the worst.
func severityRank(severity v1alpha1.Severity) int {
	if i := slices.Index(severities, severity); i >= 0 {
		return i
	}
	return len(severities)
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}
