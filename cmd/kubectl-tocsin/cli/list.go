package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/live"
)

const severityWords = "one of critical, error, warning and info"

type filter struct {
	live.Filter
	allNamespaces bool
	states        []string
	labels        []string       // of Filter.Labels
	flags         *pflag.FlagSet // nil if there are none
}

// addFlags adds the flags of the filter except --state, which only "get" and "watch" have.
func (f *filter) addFlags(command *cobra.Command) {
	flags := command.Flags()
	f.flags = flags
	flags.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "Select incidents of all namespaces.")
	flags.Var(wordValue{enumeration: severityWords, list: &f.Severities}, "severity",
		"Select incidents with one of these severities, such as critical,error.")
	flags.StringSliceVarP(&f.Integrations, "integration", "i", nil, "Select incidents of one of these integrations.")
	flags.StringArrayVarP(&f.labels, "label", "l", nil,
		"Select incidents by alert labels, such as team=storage, team!=web, team or 'team in (a,b)'. If repeated, all must match.")
	flags.BoolVar(&f.Unacknowledged, "unacknowledged", false, "Select incidents that are not acknowledged.")
	flags.StringArrayVar(&f.Assignees, "assignee", nil,
		"Select incidents that are assigned to a person. If repeated, to one of them.")
	flags.BoolVar(&f.Unassigned, "unassigned", false, "Select incidents that are assigned to nobody.")
	command.MarkFlagsMutuallyExclusive("assignee", "unassigned")
}

// isSet reports whether a flag other than --all-namespaces and --state is set.
func (f *filter) isSet() bool {
	return f.Unacknowledged || f.Unassigned || len(f.Severities)+len(f.Integrations)+len(f.labels)+len(f.Assignees) > 0
}

// complete parses the flags.
func (f *filter) complete() error {
	if err := f.checkBlank(); err != nil {
		return err
	}
	for _, label := range f.labels {
		selector, err := live.ParseLabels(label)
		if err != nil {
			return fmt.Errorf("--label %q: %w", label, err)
		}
		f.Labels = append(f.Labels, selector)
	}
	return nil
}

// checkBlank returns an error if a filter has a blank value: "resolve --label "$SELECTOR"" would resolve all Incidents if the
// variable is not set.
func (f *filter) checkBlank() error {
	isBlank := func(value string) bool { return strings.TrimSpace(value) == "" }
	for _, one := range []struct {
		name   string
		values []string
	}{
		{"severity", f.Severities}, {"integration", f.Integrations}, {"label", f.labels}, {"assignee", f.Assignees},
	} {
		isGiven := f.flags != nil && f.flags.Changed(one.name)
		if slices.ContainsFunc(one.values, isBlank) || isGiven && len(one.values) == 0 {
			return fmt.Errorf("--%s needs a value that is not blank", one.name)
		}
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
	return f.wants(incident.Status.State) && f.Matches(incident)
}

func (f *filter) wants(state v1alpha1.IncidentState) bool {
	return len(f.states) == 0 || slices.Contains(f.states, string(state))
}

// listChunk is the limit of one list request: an Incident may have up to 256 KiB.
const listChunk = 500

// incidents returns the Incidents that match a filter, the most urgent first. With prune, it keeps only what a table shows. It
// returns a missingError if there can be none.
func (p *plugin) incidents(
	ctx context.Context, c *cluster, f *filter, prune bool, shows *progress,
) ([]*v1alpha1.Incident, error) {
	defer shows.clear()
	matching, err := f.list(ctx, c, prune, shows)
	if err != nil {
		return nil, err
	}
	return matching, p.verify(ctx, c, f, matching)
}

// list lists the Incidents that match, in chunks. After an error, it returns those of the chunks before.
func (f *filter) list(ctx context.Context, c *cluster, prune bool, shows *progress) (matching []*v1alpha1.Incident, err error) {
	defer func() { slices.SortFunc(matching, live.ByUrgency) }()
	listed := 0
	for page, err := range live.Pages(ctx, c, &v1alpha1.IncidentList{}, client.InNamespace(f.namespace(c)),
		client.Limit(listChunk), client.MatchingFields(f.selected())) {
		if err != nil {
			return matching, fmt.Errorf("listing incidents: %w", err)
		}
		listed += len(page.Items)
		shows.update("Listed %d incidents …", listed)
		for i := range page.Items {
			incident := &page.Items[i]
			if !f.matches(incident) {
				continue
			}
			if prune {
				copied := *incident // else one that matches keeps the whole chunk in memory
				pruneForTable(&copied)
				incident = &copied
			}
			matching = append(matching, incident)
		}
	}
	return matching, nil
}

// selected returns the fields by which the API server selects: those for which the filter has one value.
func (f *filter) selected() fields.Set {
	selected := fields.Set{}
	for field, values := range map[string][]string{
		"status.state":          f.states,
		"status.alert.severity": f.Severities,
		"spec.integrationName":  f.Integrations,
	} {
		if len(values) == 1 {
			selected[field] = values[0]
		}
	}
	return selected
}

// checkList returns an error if the Incidents cannot be listed at all, so that a command fails instead of retrying forever.
func (p *plugin) checkList(ctx context.Context, c *cluster, f *filter) error {
	if err := live.Check(ctx, c, f.namespace(c)); err != nil {
		return fmt.Errorf("listing incidents: %w", err)
	}
	return p.verify(ctx, c, f, nil)
}

// pruneForTable removes the fields of an Incident that no table and no filter needs.
func pruneForTable(incident *v1alpha1.Incident) {
	live.Prune(incident)
	incident.Annotations, incident.Status.Timeline = nil, nil
}
