package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// listChunk is the limit of one list request: an Incident may have up to 256 KiB.
const listChunk = 500

const stateField = "status.state"

// listing lists the Incidents that match a filter, in chunks.
type listing struct {
	cluster  *cluster
	filter   *filter
	prune    bool // keep only what a table shows
	progress *progress

	version string // of the list; empty for the newest
	seen    map[types.UID]bool
}

// selector returns the fields by which the API server selects: those for which the filter has one value.
func (l *listing) selector() fields.Set {
	selector := fields.Set{}
	for field, values := range map[string][]string{
		stateField:              l.filter.states,
		"status.alert.severity": l.filter.severities,
		"spec.integrationName":  l.filter.integrations,
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
	options := &client.ListOptions{
		Namespace: l.filter.namespace(l.cluster), Limit: listChunk, Continue: next, FieldSelector: selector,
	}
	if l.version != "" && next == "" {
		options.Raw = &metav1.ListOptions{ResourceVersion: l.version, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	}
	list := &v1alpha1.IncidentList{}
	if err := l.cluster.List(ctx, list, options); err != nil {
		return nil, "", fmt.Errorf("listing incidents: %w", err)
	}
	l.progress.list(len(list.Items))
	if l.version == "" {
		l.version = list.ResourceVersion
	}
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

// first returns the Incidents to show first: all that match if they are few, otherwise the open ones. rest, if not nil,
// returns the others as they were at the same time.
func (l *listing) first(
	ctx context.Context,
) (incidents []*v1alpha1.Incident, rest func() ([]*v1alpha1.Incident, error), err error) {
	selector := l.selector()
	incidents, next, err := l.chunk(ctx, selector.AsSelector(), "")
	if err != nil || next == "" {
		return incidents, nil, err
	}
	if selector[stateField] != "" {
		others, err := l.all(ctx, selector.AsSelector(), next)
		return append(incidents, others...), nil, err
	}
	l.progress.reset()
	isOpen := fields.OneTermEqualSelector(stateField, string(v1alpha1.IncidentOpen))
	notOpen := fields.OneTermNotEqualSelector(stateField, string(v1alpha1.IncidentOpen))
	if len(selector) > 0 {
		isOpen = fields.AndSelectors(selector.AsSelector(), isOpen)
		notOpen = fields.AndSelectors(selector.AsSelector(), notOpen)
	}
	incidents, err = l.all(ctx, isOpen, "")
	if err != nil {
		return nil, nil, err
	}
	return incidents, func() ([]*v1alpha1.Incident, error) {
		others, err := l.all(ctx, notOpen, "")
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return others, err
		}
		// The API server no longer has that version: list all anew, which misses none.
		l.version, l.seen = "", map[types.UID]bool{}
		for _, incident := range incidents {
			l.seen[incident.UID] = true
		}
		return l.all(ctx, selector.AsSelector(), "")
	}, nil
}

// pruneForTable removes the fields of an Incident that no table and no filter needs.
func pruneForTable(incident *v1alpha1.Incident) {
	incident.ManagedFields, incident.Annotations = nil, nil
	alert := &incident.Status.Alert
	alert.Description, alert.Annotations, alert.Values, alert.Custom = "", nil, nil, nil
	incident.Status.Timeline, incident.Status.Ledger = nil, v1alpha1.Ledger{}
}
