// Package replica is what every replica keeps, whether it leads or not: how well alerts can be stored and how right its clock is,
// and which AlertEvents its watch has shown (see package queue). How many objects there are, package capacity counts.
package replica

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/admission"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// IncidentNameIndex is the index of the cache that finds AlertEvents by the names of the Incidents that their alerts belong to.
const IncidentNameIndex = "tocsin.incidentName"

// Index adds the index to the manager's cache.
func Index(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.AlertEvent{}, IncidentNameIndex,
		func(object client.Object) []string {
			if event, ok := object.(*v1alpha1.AlertEvent); ok {
				return slices.Collect(maps.Keys(IncidentNames(event)))
			}
			return nil
		})
	if err != nil {
		return fmt.Errorf("indexing by %s: %w", IncidentNameIndex, err)
	}
	return nil
}

// IncidentNames returns the names of the Incidents that the event's alerts belong to, each with whether all its alerts in
// the event are firing.
func IncidentNames(event *v1alpha1.AlertEvent) map[string]bool {
	names := make(map[string]bool, len(event.Alerts))
	for i := range event.Alerts {
		alert := &event.Alerts[i]
		name := event.IncidentNameFor(alert)
		firing, known := names[name]
		names[name] = (firing || !known) && alert.Status == v1alpha1.AlertFiring
	}
	return names
}

// EventsOf returns the AlertEvents that have alerts of an Incident. They must not be modified.
func EventsOf(ctx context.Context, cache client.Reader, incident types.NamespacedName) ([]*v1alpha1.AlertEvent, error) {
	var list v1alpha1.AlertEventList
	err := cache.List(ctx, &list, client.InNamespace(incident.Namespace),
		client.MatchingFields{IncidentNameIndex: incident.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("reading the AlertEvents: %w", err)
	}
	events := make([]*v1alpha1.AlertEvent, len(list.Items))
	for i := range list.Items {
		events[i] = &list.Items[i]
	}
	return events, nil
}

// NewClient makes a client beside the manager's: it reads from the quorum, and no rate limit on this side
// holds it up; the number of folds at a time bounds it.
func NewClient(mgr ctrl.Manager) (client.WithWatch, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS = -1
	live, err := client.NewWithWatch(config, client.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		// What is written is made of typed structs, so the API server need not look for unknown fields.
		FieldValidation: metav1.FieldValidationIgnore,
	})
	if err != nil {
		return nil, fmt.Errorf("making the client of the fold: %w", err)
	}
	return live, nil
}

// DeleteEvent deletes exactly this AlertEvent. deleted is false if it is gone, and another one of its name is left alone.
func DeleteEvent(ctx context.Context, live client.Writer, ref queue.Ref) (deleted bool, err error) {
	event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
	err = live.Delete(ctx, event, client.Preconditions{UID: &ref.UID})
	switch {
	case admission.IsOutdated(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("deleting the AlertEvent %s: %w", ref.Name, err)
	}
	return true, nil
}
