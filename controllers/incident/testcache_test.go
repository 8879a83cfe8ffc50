package incident

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/informers"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// testCache reads from the API server what a cache would have, and lags behind where a test says so.
type testCache struct {
	client.Reader
	frozen map[types.NamespacedName]*v1alpha1.Incident // what is shown of an Incident; nil: nothing
	hidden map[types.UID]bool                          // AlertEvents that are not shown yet
	stale  *v1alpha1.WebhookIntegration                // nil: the newest version is shown

	created map[types.UID]metav1.Time // creationTimestamps to show instead of the API server's

	memory *queue.Memory
	shows  map[types.UID]*v1alpha1.AlertEvent // what the memory was shown
	handed []handedOut
	date   func(client.Object) // of Incidents
}

// handedOut is an object that the cache has handed out without a copy, as the real one does, and what it was then.
type handedOut struct{ held, was runtime.Object }

// handOut remembers an object. What it points to is that which its reader has.
func (c *testCache) handOut(object runtime.Object) {
	switch object := object.(type) {
	case *v1alpha1.Incident:
		held := *object
		c.handed = append(c.handed, handedOut{&held, object.DeepCopy()})
	case *v1alpha1.AlertEvent:
		held := *object
		c.handed = append(c.handed, handedOut{&held, object.DeepCopy()})
	}
}

// modified returns the objects that a reader has modified.
func (c *testCache) modified() (modified []string) {
	for _, object := range c.handed {
		if !reflect.DeepEqual(object.held, object.was) {
			modified = append(modified, fmt.Sprintf("%+v was handed out as %+v", object.held, object.was))
		}
	}
	return modified
}

// watch shows the memory what a watch would: the AlertEvents that came, and before those the ones that went.
func (c *testCache) watch(events []v1alpha1.AlertEvent) {
	now := map[types.UID]bool{}
	for i := range events {
		now[events[i].UID] = true
	}
	for uid, event := range c.shows {
		if !now[uid] {
			delete(c.shows, uid)
			c.memory.NoteDeleted(event)
		}
	}
	for i := range events {
		event := events[i].DeepCopy()
		if shown := c.shows[event.UID]; shown != nil {
			informers.Handler(c.memory.NoteShown, c.memory.NoteDeleted).OnUpdate(shown, event)
		} else {
			c.memory.NoteShown(event, false)
		}
		c.shows[event.UID] = event
	}
}

func (c *testCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	incident, ok := object.(*v1alpha1.Incident)
	if !ok {
		if integration, ok := object.(*v1alpha1.WebhookIntegration); ok && c.stale != nil {
			c.stale.DeepCopyInto(integration)
			return nil
		}
		err := c.Reader.Get(ctx, key, object)
		if event, ok := object.(*v1alpha1.AlertEvent); ok && err == nil {
			_, err = c.memory.Cached.Condense(event)
		}
		return err
	}
	if frozen, isFrozen := c.frozen[key]; !isFrozen {
		if err := c.Reader.Get(ctx, key, incident); err != nil {
			return err
		}
	} else if frozen != nil {
		frozen.DeepCopyInto(incident)
	}
	if incident.Name == "" || incident.Status.State == v1alpha1.IncidentResolved {
		*incident = v1alpha1.Incident{}
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("incidents").GroupResource(), key.Name)
	}
	c.date(incident)
	_, err := clustercache.Condense(incident)
	c.handOut(incident)
	return err
}

// List filters by the indexes of setup.go.
func (c *testCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	selector := options.FieldSelector
	options.FieldSelector, options.UnsafeDisableDeepCopy = nil, nil
	if err := c.Reader.List(ctx, list, &options); err != nil {
		return err
	}
	if events, ok := list.(*v1alpha1.AlertEventList); ok {
		events.Items = slices.DeleteFunc(events.Items, func(event v1alpha1.AlertEvent) bool { return c.hidden[event.UID] })
		for i := range events.Items {
			if _, err := c.memory.Cached.Condense(&events.Items[i]); err != nil {
				return err
			}
			if created, ok := c.created[events.Items[i].UID]; ok {
				events.Items[i].CreationTimestamp = created
			}
		}
		c.watch(events.Items)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	var kept []runtime.Object
	for _, object := range objects {
		object, ok := object.(client.Object)
		if !ok {
			continue
		}
		if selector == nil || matchesIndex(object, selector.Requirements()[0].Field, selector.Requirements()[0].Value) {
			kept = append(kept, object)
			c.handOut(object)
		}
	}
	return meta.SetList(list, kept)
}

func matchesIndex(object client.Object, index, value string) bool {
	return index == replica.IncidentNameIndex && hasIncident(object, value)
}

// ghostReader shows an AlertEvent that may be gone.
type ghostReader struct {
	client.Reader
	ghost *v1alpha1.AlertEvent
}

func (r *ghostReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := r.Reader.List(ctx, list, opts...)
	if events, ok := list.(*v1alpha1.AlertEventList); ok {
		isGhost := func(event v1alpha1.AlertEvent) bool { return event.UID == r.ghost.UID }
		events.Items = append(slices.DeleteFunc(events.Items, isGhost), *r.ghost)
	}
	return err
}

// laggingReader shows one AlertEvent only.
type laggingReader struct {
	client.Reader
	event *v1alpha1.AlertEvent
}

func (r *laggingReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return meta.SetList(list, []runtime.Object{r.event})
}

func hasIncident(object client.Object, name string) bool {
	event, ok := object.(*v1alpha1.AlertEvent)
	if !ok {
		return false
	}
	_, has := replica.IncidentNames(event)[name]
	return has
}
