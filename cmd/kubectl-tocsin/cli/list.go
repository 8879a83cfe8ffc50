package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/history"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/live"
)

var (
	// severities lists all severities, the most severe first.
	severities    = v1alpha1.Severities()
	severityNames = []string{"critical", "error", "warning", "info"}
	stateNames    = []string{string(v1alpha1.IncidentOpen), string(v1alpha1.IncidentResolved)}
)

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

// listChunk is the limit of one list request: an Incident may have up to 256 KiB.
const listChunk = 500

const stateField = "status.state"

// incidents returns the Incidents that match a filter, the most urgent first. It returns a missingError if there can be none.
func (p *plugin) incidents(ctx context.Context, c *cluster, f *filter, shows *progress) ([]*v1alpha1.Incident, error) {
	defer shows.clear()
	l := &listing{cluster: c, filter: f, progress: shows}
	all, err := l.all(ctx, l.selector().AsSelector(), "")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, byUrgency)
	return all, p.verify(ctx, c, f, all)
}

// checkList returns an error if the Incidents cannot be listed at all, so that a command fails instead of retrying forever.
func (p *plugin) checkList(ctx context.Context, c *cluster, f *filter) error {
	if err := live.Check(ctx, c, f.namespace(c)); err != nil {
		return fmt.Errorf("listing incidents: %w", err)
	}
	return p.verify(ctx, c, f, nil)
}

// listing lists the Incidents that match a filter, in chunks.
type listing struct {
	cluster  *cluster
	filter   *filter
	prune    bool // keep only what a table shows
	progress *progress
	seen     map[types.UID]bool // already listed
}

// selector returns the fields by which the API server selects: those for which the filter has one value.
func (l *listing) selector() fields.Set {
	selector := fields.Set{}
	for field, values := range map[string][]string{
		stateField:              l.filter.states,
		"status.alert.severity": l.filter.Severities,
		"spec.integrationName":  l.filter.Integrations,
	} {
		if len(values) == 1 {
			selector[field] = values[0]
		}
	}
	return selector
}

// chunk lists the next chunk of the selected Incidents, and returns those that match.
func (l *listing) chunk(
	ctx context.Context, selector fields.Selector, next string,
) (matching []*v1alpha1.Incident, following string, err error) {
	list := &v1alpha1.IncidentList{}
	err = l.cluster.List(ctx, list, &client.ListOptions{
		Namespace: l.filter.namespace(l.cluster), Limit: listChunk, Continue: next, FieldSelector: selector,
	})
	if err != nil {
		return nil, "", fmt.Errorf("listing incidents: %w", err)
	}
	l.progress.list(len(list.Items))
	for i := range list.Items {
		incident := &list.Items[i]
		if l.seen[incident.UID] || !l.filter.matches(incident) {
			continue
		}
		if l.prune {
			copied := *incident // else one that matches keeps the whole chunk in memory
			pruneForTable(&copied)
			incident = &copied
		}
		matching = append(matching, incident)
	}
	return matching, list.Continue, nil
}

// all lists the remaining chunks.
func (l *listing) all(ctx context.Context, selector fields.Selector, next string) ([]*v1alpha1.Incident, error) {
	var all []*v1alpha1.Incident
	for {
		incidents, following, err := l.chunk(ctx, selector, next)
		if err != nil {
			return nil, err
		}
		all = append(all, incidents...)
		if next = following; next == "" {
			return all, nil
		}
	}
}

// first returns the Incidents to show first: all that match if one request lists them or the filter selects by state,
// otherwise the open ones.
func (l *listing) first(ctx context.Context) (incidents []*v1alpha1.Incident, complete bool, err error) {
	selector := l.selector()
	incidents, next, err := l.chunk(ctx, selector.AsSelector(), "")
	if err != nil || next == "" {
		return incidents, true, err
	}
	if selector[stateField] != "" {
		others, err := l.all(ctx, selector.AsSelector(), next)
		return append(incidents, others...), true, err
	}
	l.progress.reset()
	selector[stateField] = string(v1alpha1.IncidentOpen)
	incidents, err = l.all(ctx, selector.AsSelector(), "")
	return incidents, false, err
}

// rest returns the Incidents that match and are not among the first. It lists all, also the open ones: Incidents may have
// changed their state since.
func (l *listing) rest(ctx context.Context, first []*v1alpha1.Incident) ([]*v1alpha1.Incident, error) {
	l.progress.reset()
	l.seen = map[types.UID]bool{}
	for _, incident := range first {
		l.seen[incident.UID] = true
	}
	return l.all(ctx, l.selector().AsSelector(), "")
}

// pruneForTable removes the fields of an Incident that no table and no filter needs.
func pruneForTable(incident *v1alpha1.Incident) {
	incident.ManagedFields, incident.Annotations = nil, nil
	alert := &incident.Status.Alert
	alert.Description, alert.Annotations, alert.Values, alert.Custom = "", nil, nil, nil
	incident.Status.Timeline, incident.Status.Ledger = nil, v1alpha1.Ledger{}
}
