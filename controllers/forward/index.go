package forward

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// index knows the Incidents that the forwarding has to look at again and again: those that are open or were resolved a short
// while ago, and those that silences concern. Most Incidents are neither.
type index struct {
	mu        sync.Mutex
	incidents map[incidentKey]indexed
}

// indexed is an Incident in the index.
type indexed struct {
	version     string // its resourceVersion, or that of its end as the cache showed it
	integration string
	resolved    time.Time // zero while it is open
	gone        bool      // the cache showed its end, and nothing has told what became of it
	silences    bool      // it has, had or is to have a silence
}

func newIndex() *index { return &index{incidents: map[incidentKey]indexed{}} }

// set indexes an Incident as it is now, unless that is known, or a newer version, and reports whether it did.
func (x *index) set(incident *v1alpha1.Incident, now time.Time) bool {
	key, status := keyOf(incident), &incident.Status
	entry := indexed{
		version: incident.ResourceVersion, integration: incident.Spec.IntegrationName, silences: concernsSilences(status),
	}
	if status.State == v1alpha1.IncidentResolved && status.ResolvedTime != nil {
		entry.resolved = status.ResolvedTime.Time
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	known, ok := x.incidents[key]
	if ok && (fold.NewerVersion(known.version, entry.version) || known.version == entry.version && !known.gone) {
		return false
	}
	if entry.isOver(now.Add(-maxLease)) && !entry.silences {
		delete(x.incidents, key)
	} else {
		x.incidents[key] = entry
	}
	return true
}

// gone notes that the cache shows an Incident no longer: it is Resolved or deleted, in this version. It reports whether that is
// news.
func (x *index) gone(incident *v1alpha1.Incident, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	known, ok := x.incidents[keyOf(incident)]
	if ok && !fold.NewerVersion(incident.ResourceVersion, known.version) {
		return false
	}
	known.version, known.integration, known.resolved, known.gone = incident.ResourceVersion, incident.Spec.IntegrationName, now, true
	x.incidents[keyOf(incident)] = known
	return true
}

// missing notes that there is no Incident of that name. Its alerts still have to end.
func (x *index) missing(key incidentKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if known, ok := x.incidents[key]; ok {
		known.silences = false
		x.incidents[key] = known
	}
}

// version returns the version of an Incident; not ok if it is not indexed.
func (x *index) version(key incidentKey) (version string, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	entry, ok := x.incidents[key]
	return entry.version, ok
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
