package cli

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

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
