package forward

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// index knows the Incidents that the forwarding has to look at again and again: those that are open or were resolved a short
// while ago, and those that silences concern. Most Incidents are neither. An informer feeds it.
type index struct {
	mu        sync.Mutex
	incidents map[incidentKey]indexed
}

// indexed is an Incident in the index.
type indexed struct {
	integration string
	resolved    time.Time // zero while it is open
	silences    bool      // it has, had or is to have a silence
}

func newIndex() *index { return &index{incidents: map[incidentKey]indexed{}} }

// set indexes an Incident as it is now.
func (x *index) set(incident *v1alpha1.Incident, now time.Time) {
	key, status := keyOf(incident), &incident.Status
	entry := indexed{integration: incident.Spec.IntegrationName, silences: concernsSilences(status)}
	if status.State == v1alpha1.IncidentResolved && status.ResolvedTime != nil {
		entry.resolved = status.ResolvedTime.Time
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if entry.isOver(now.Add(-maxLease)) && !entry.silences {
		delete(x.incidents, key)
		return
	}
	x.incidents[key] = entry
}

func (x *index) remove(key incidentKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.incidents, key)
}

// active returns the Incidents that are open or were resolved after a time, which is at most maxLease ago.
func (x *index) active(since time.Time) []incidentKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	var keys []incidentKey
	forgotten := time.Now().Add(-maxLease - time.Minute)
	for key, entry := range x.incidents {
		switch {
		case !entry.isOver(since):
			keys = append(keys, key)
		case entry.isOver(forgotten) && !entry.silences:
			delete(x.incidents, key)
		}
	}
	return keys
}

// silenced returns the Incidents that silences concern.
func (x *index) silenced() []incidentKey {
	return x.filter(func(_ incidentKey, entry indexed) bool { return entry.silences })
}

// of returns the Incidents of an integration.
func (x *index) of(namespace, integration string) []incidentKey {
	return x.filter(func(key incidentKey, entry indexed) bool {
		return key.namespace == namespace && entry.integration == integration
	})
}

func (x *index) filter(selects func(incidentKey, indexed) bool) []incidentKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	var keys []incidentKey
	for key, entry := range x.incidents {
		if selects(key, entry) {
			keys = append(keys, key)
		}
	}
	return keys
}

// isOver reports whether the Incident was resolved at a time or before.
func (i indexed) isOver(at time.Time) bool { return !i.resolved.IsZero() && !i.resolved.After(at) }

// concernsSilences reports whether an Incident may want a silence, or has a condition about one.
func concernsSilences(status *v1alpha1.IncidentStatus) bool {
	acknowledged := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAcknowledged)
	return status.State == v1alpha1.IncidentOpen && acknowledged || hasSilence(status)
}

// hasSilence reports whether a silence was requested for an Incident or found.
func hasSilence(status *v1alpha1.IncidentStatus) bool {
	return status.Silence != nil || meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSilenced) != nil
}
