package forward

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	events "github.com/tocsin-dev/tocsin/internal/queue"
)

// incidentKey names an Incident, or an integration.
type incidentKey struct{ namespace, name string }

func keyOf(incident *v1alpha1.Incident) incidentKey {
	return incidentKey{incident.Namespace, incident.Name}
}

// index knows the integrations, and the Incidents that the forwarding has to look at again and again: those that are open or
// were resolved a short while ago, and those that silences concern. Most Incidents are neither.
type index struct {
	mu           sync.Mutex
	incidents    map[incidentKey]indexed
	integrations map[incidentKey]*v1alpha1.WebhookIntegration // must not be modified
}

// indexed is an Incident in the index.
type indexed struct {
	open        *v1alpha1.Incident // the object of the cache, which must not be modified; nil: it is Resolved or deleted
	version     string             // its resourceVersion, or that of its end as the cache showed it
	integration string
	resolved    time.Time // zero while it is open
	silences    bool      // it is acknowledged, or has or is to have a silence
}

func newIndex() *index {
	return &index{incidents: map[incidentKey]indexed{}, integrations: map[incidentKey]*v1alpha1.WebhookIntegration{}}
}

// set indexes an Incident as it is now, unless that is known, or a newer version, or it was resolved before since. It returns
// what was known.
func (x *index) set(incident *v1alpha1.Incident, since time.Time) (before indexed, news bool) {
	key, status := keyOf(incident), &incident.Status
	entry := indexed{
		version: incident.ResourceVersion, integration: incident.Spec.IntegrationName, silences: concernsSilences(status),
	}
	if status.State == v1alpha1.IncidentResolved && status.ResolvedTime != nil {
		entry.resolved = status.ResolvedTime.Time
	} else {
		entry.open = incident
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	before, ok := x.incidents[key]
	same := before.version == entry.version && before.resolved.Equal(entry.resolved)
	if ok && (same || events.NewerVersion(before.version, entry.version)) {
		return before, false
	}
	x.incidents[key] = entry
	x.tidy(key, since)
	return before, true
}

// gone notes that the cache shows an Incident no longer: it is Resolved or deleted, in this version. It reports whether that is
// news.
func (x *index) gone(incident *v1alpha1.Incident, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	known, ok := x.incidents[keyOf(incident)]
	isNew := events.NewerVersion(incident.ResourceVersion, known.version)
	isShown := known.open != nil && incident.ResourceVersion == known.version // the cache missed how it went
	if ok && !isNew && !isShown {
		return false
	}
	x.incidents[keyOf(incident)] = indexed{
		version: incident.ResourceVersion, integration: incident.Spec.IntegrationName, resolved: now, silences: known.silences,
	}
	return true
}

// missing notes that an Incident does not exist. What a sender has posted about it still ends, see memory.
func (x *index) missing(key incidentKey, version string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.incidents[key].version == version {
		delete(x.incidents, key)
	}
}

// get returns an Incident and its integration, nil if there is none; not ok if the Incident is not indexed.
func (x *index) get(key incidentKey) (entry indexed, integration *v1alpha1.WebhookIntegration, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	entry, ok = x.incidents[key]
	return entry, x.integrations[incidentKey{key.namespace, entry.integration}], ok
}

// replaceIntegration sets an integration, nil if it was deleted, and returns what it was.
func (x *index) replaceIntegration(key incidentKey, integration *v1alpha1.WebhookIntegration) *v1alpha1.WebhookIntegration {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.integrations[key]
	if x.integrations[key] = integration; integration == nil {
		delete(x.integrations, key)
	}
	return before
}

// isOpen reports whether an Incident is open.
func (x *index) isOpen(key incidentKey) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.incidents[key].open != nil
}

// active returns the Incidents that are open, and those that were resolved after a time. It forgets what was resolved before.
func (x *index) active(since time.Time) (open, ended []incidentKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, entry := range x.incidents {
		switch {
		case entry.open != nil:
			open = append(open, key)
		case !entry.isOver(since):
			ended = append(ended, key)
		default:
			x.tidy(key, since)
		}
	}
	return open, ended
}

// silenced returns the Incidents that silences concern.
func (x *index) silenced() []incidentKey {
	return x.filter(func(_ incidentKey, entry indexed) bool { return entry.silences })
}

// of returns the Incidents of an integration.
func (x *index) of(integration incidentKey) []incidentKey {
	return x.filter(func(key incidentKey, entry indexed) bool {
		return incidentKey{key.namespace, entry.integration} == integration
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

// tidy forgets an Incident that was resolved before a time, unless silences concern it.
func (x *index) tidy(key incidentKey, since time.Time) {
	if entry := x.incidents[key]; entry.isOver(since) && !entry.silences {
		delete(x.incidents, key)
	}
}

// isOver reports whether the Incident was resolved at a time or before.
func (i indexed) isOver(at time.Time) bool { return !i.resolved.IsZero() && !i.resolved.After(at) }

// concernsSilences reports whether an Incident may want a silence, or has a condition about one.
func concernsSilences(status *v1alpha1.IncidentStatus) bool {
	acknowledged := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAcknowledged)
	return status.State == v1alpha1.IncidentOpen && acknowledged || hasSilence(status)
}

// hasSilence reports whether a silence was requested for an Incident or found, and is not known to be over. Where one is over, a
// new one is found by the alerts that it covers.
func hasSilence(status *v1alpha1.IncidentStatus) bool {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSilenced)
	return status.Silence != nil || condition != nil && condition.Reason != v1alpha1.ReasonNotSilenced
}
