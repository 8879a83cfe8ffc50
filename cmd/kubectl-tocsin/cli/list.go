package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/history"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/live"
)

// severities lists all severities, the most severe first.
var severities = v1alpha1.Severities()

const severityWords = "one of critical, error, warning and info"

type filter struct {
	history.Filter
	allNamespaces bool
	states        []string
	labels        []string // of Filter.Labels
}

// addFlags adds the flags of the filter except --state, which only "get" and "watch" have.
func (f *filter) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "Select incidents of all namespaces.")
	flags.Var(wordValue{enumeration: severityWords, list: &f.Severities}, "severity",
		"Select incidents with one of these severities, such as critical,error.")
	flags.StringSliceVarP(&f.Integrations, "integration", "i", nil, "Select incidents of one of these integrations.")
	flags.StringArrayVarP(&f.labels, "label", "l", nil,
		"Select incidents by alert labels, such as team=storage, team!=web, team or 'team in (a,b)'. If repeated, all must match.")
	flags.BoolVar(&f.Unacknowledged, "unacknowledged", false, "Select incidents that are not acknowledged.")
}

// isSet reports whether a flag other than --all-namespaces and --state is set.
func (f *filter) isSet() bool {
	return f.Unacknowledged || len(f.Severities)+len(f.Integrations)+len(f.labels) > 0
}

// complete parses the flags.
func (f *filter) complete() error {
	for _, label := range f.labels {
		selector, err := history.ParseLabels(label)
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

// place completes a sentence about an empty list.
func (f *filter) place(c *cluster) string {
	if f.allNamespaces {
		return ""
	}
	return " in namespace " + c.namespace + "; -A lists those of all namespaces"
}

func (f *filter) matches(incident *v1alpha1.Incident) bool {
	return (len(f.states) == 0 || slices.Contains(f.states, string(incident.Status.State))) && f.MatchesIncident(incident)
}

// listChunk is the limit of one list request: an Incident may have up to 256 KiB.
const listChunk = 500

const stateField = "status.state"

// incidents returns the Incidents that match a filter, the most urgent first. It returns a missingError if there can be none.
func (p *plugin) incidents(ctx context.Context, c *cluster, f *filter, shows *progress) ([]*v1alpha1.Incident, error) {
	defer shows.clear()
	l := &listing{cluster: c, filter: f, progress: shows}
	all, _, err := l.list(ctx, l.selected(), false)
	if err != nil {
		return nil, err
	}
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
	seen     sets.Set[types.UID] // already listed
}

// selected returns the fields by which the API server selects: those for which the filter has one value.
func (l *listing) selected() fields.Set {
	selected := fields.Set{}
	for field, values := range map[string][]string{
		stateField:              l.filter.states,
		"status.alert.severity": l.filter.Severities,
		"spec.integrationName":  l.filter.Integrations,
	} {
		if len(values) == 1 {
			selected[field] = values[0]
		}
	}
	return selected
}

// list lists the Incidents that have the selected fields and match, the most urgent first. If firstChunk is set and there are
// more than one request lists, it stops there; complete is false then.
func (l *listing) list(
	ctx context.Context, selected fields.Set, firstChunk bool,
) (matching []*v1alpha1.Incident, complete bool, err error) {
	defer func() { slices.SortFunc(matching, live.ByUrgency) }()
	listed := 0
	for page, err := range live.Pages(ctx, l.cluster, &v1alpha1.IncidentList{}, client.InNamespace(l.filter.namespace(l.cluster)),
		client.Limit(listChunk), client.MatchingFields(selected)) {
		if err != nil {
			return nil, false, fmt.Errorf("listing incidents: %w", err)
		}
		listed += len(page.Items)
		l.progress.update("Listed %d incidents …", listed)
		for i := range page.Items {
			incident := &page.Items[i]
			if l.seen.Has(incident.UID) || !l.filter.matches(incident) {
				continue
			}
			if l.prune {
				copied := *incident // else one that matches keeps the whole chunk in memory
				pruneForTable(&copied)
				incident = &copied
			}
			matching = append(matching, incident)
		}
		if firstChunk && page.Continue != "" {
			return matching, false, nil
		}
	}
	return matching, true, nil
}

// first returns all Incidents that match if one request lists them or the filter selects by state, otherwise the open ones.
func (l *listing) first(ctx context.Context) (incidents []*v1alpha1.Incident, complete bool, err error) {
	selected := l.selected()
	incidents, complete, err = l.list(ctx, selected, selected[stateField] == "")
	if err != nil || complete {
		return incidents, complete, err
	}
	selected[stateField] = string(v1alpha1.IncidentOpen)
	incidents, _, err = l.list(ctx, selected, false)
	return incidents, false, err
}

// rest returns the Incidents that match and are not among the first. It lists all: they may have changed their state since.
func (l *listing) rest(ctx context.Context, first []*v1alpha1.Incident) ([]*v1alpha1.Incident, error) {
	l.seen = sets.New[types.UID]()
	for _, incident := range first {
		l.seen.Insert(incident.UID)
	}
	incidents, _, err := l.list(ctx, l.selected(), false)
	return incidents, err
}

// pruneForTable removes the fields of an Incident that no table and no filter needs.
func pruneForTable(incident *v1alpha1.Incident) {
	live.Prune(incident)
	incident.Annotations, incident.Status.Timeline = nil, nil
}
