package fold

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

var (
	errSimConflict = errors.New("conflict")
	errSimExists   = errors.New("already exists")
)

// simCluster is an API server of the simulation: linearizable, with optimistic concurrency, and with the
// past versions that lagging caches may still show.
type simCluster struct {
	version   int
	uids      int
	events    map[types.UID]*v1alpha1.AlertEvent // as they are now
	all       []*v1alpha1.AlertEvent             // every event that ever was, as it was created, in commit order
	deleted   map[types.UID]simDeletion
	incidents map[string][]*v1alpha1.Incident // every version by name, oldest first; nil where there was none
}

// simDeletion is when an event was deleted.
type simDeletion struct {
	version int
	at      time.Time
}

func newSimCluster() *simCluster {
	return &simCluster{
		version:   90, // so that the numbers get a digit more on the way
		events:    map[types.UID]*v1alpha1.AlertEvent{},
		deleted:   map[types.UID]simDeletion{},
		incidents: map[string][]*v1alpha1.Incident{},
	}
}

func (c *simCluster) stamp(meta *metav1.ObjectMeta) {
	c.version++
	meta.ResourceVersion = fmt.Sprint(c.version)
	if meta.UID == "" {
		c.uids++
		meta.UID = types.UID(fmt.Sprintf("uid-%d", c.uids))
	}
}

func (c *simCluster) createEvent(event *v1alpha1.AlertEvent) error {
	for _, other := range c.events {
		if other.Name == event.Name {
			return errSimExists
		}
	}
	c.stamp(&event.ObjectMeta)
	c.events[event.UID] = event.DeepCopy()
	c.all = append(c.all, event)
	return nil
}

// find returns an event that there is or was.
func (c *simCluster) find(uid types.UID) *v1alpha1.AlertEvent {
	return c.all[slices.IndexFunc(c.all, func(event *v1alpha1.AlertEvent) bool { return event.UID == uid })]
}

func (c *simCluster) deleteEvent(uid types.UID, now time.Time) {
	c.version++
	c.deleted[uid] = simDeletion{c.version, now}
	delete(c.events, uid)
}

// annotate updates the metadata of the version of an event that was read.
func (c *simCluster) annotate(read *v1alpha1.AlertEvent, key, value string) error {
	now := c.events[read.UID]
	if now == nil || now.ResourceVersion != read.ResourceVersion {
		return errSimConflict
	}
	written := now.DeepCopy()
	if written.Annotations == nil {
		written.Annotations = map[string]string{}
	}
	written.Annotations[key] = value
	c.stamp(&written.ObjectMeta)
	c.events[read.UID] = written
	return nil
}

// firstOf returns the first event of the same generated name if the event is a second copy of it; nil otherwise.
func (c *simCluster) firstOf(event *v1alpha1.AlertEvent) *v1alpha1.AlertEvent {
	if !v1alpha1.IsGeneratedEventName(event.Name) {
		return nil
	}
	for _, first := range c.all {
		if first.UID == event.UID {
			return nil
		}
		if first.Name == event.Name {
			return first
		}
	}
	return nil
}

// listEvents is the quorum list of the events that exist for an Incident.
func (c *simCluster) listEvents(incident string) map[string]bool {
	exist := map[string]bool{}
	for uid, event := range c.events {
		if mark, ok := queue.MarkOf(event); !ok || !mark.Settles(incident) {
			exist[string(uid)] = true
		}
	}
	return exist
}

func (c *simCluster) incident(name string) *v1alpha1.Incident {
	versions := c.incidents[name]
	if len(versions) == 0 {
		return nil
	}
	return versions[len(versions)-1]
}

// staleIncident is the Incident as a cache that lags by so many versions shows it.
func (c *simCluster) staleIncident(name string, lag int) *v1alpha1.Incident {
	versions := c.incidents[name]
	if lag >= len(versions) {
		return nil
	}
	return versions[len(versions)-1-lag]
}

func (c *simCluster) createIncident(name string, spec v1alpha1.IncidentSpec, created metav1.Time) (*v1alpha1.Incident, error) {
	if c.incident(name) != nil {
		return nil, errSimExists
	}
	incident := &v1alpha1.Incident{Spec: spec}
	incident.Name, incident.Generation, incident.CreationTimestamp = name, 1, created
	c.stamp(&incident.ObjectMeta)
	c.incidents[name] = append(c.incidents[name], incident)
	return incident, nil
}

// updateStatus writes a status over the version that was read, as it comes back from JSON.
func (c *simCluster) updateStatus(read *v1alpha1.Incident, status v1alpha1.IncidentStatus) (*v1alpha1.Incident, error) {
	now := c.incident(read.Name)
	if now == nil || now.UID != read.UID || now.ResourceVersion != read.ResourceVersion {
		return nil, errSimConflict
	}
	encoded, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	written := now.DeepCopy()
	written.Status = v1alpha1.IncidentStatus{}
	if err := json.Unmarshal(encoded, &written.Status); err != nil {
		return nil, err
	}
	c.stamp(&written.ObjectMeta)
	c.incidents[read.Name] = append(c.incidents[read.Name], written)
	return written, nil
}

func (c *simCluster) deleteIncident(name string) {
	if c.incident(name) != nil {
		c.version++
		c.incidents[name] = append(c.incidents[name], nil)
	}
}

// existing returns the events that exist, in commit order.
func (c *simCluster) existing() []*v1alpha1.AlertEvent {
	var events []*v1alpha1.AlertEvent
	for _, event := range c.all {
		if now := c.events[event.UID]; now != nil {
			events = append(events, now)
		}
	}
	return events
}

// incidentsOf returns the names of the Incidents that an event has alerts for.
func incidentsOf(event *v1alpha1.AlertEvent) []string {
	var names []string
	for i := range event.Alerts {
		names = append(names, event.IncidentNameFor(&event.Alerts[i]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
