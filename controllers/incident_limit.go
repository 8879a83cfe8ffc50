package controllers

import (
	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// usages is how many Incidents each namespace has, and about how many bytes they take. Both are limited.
type usages struct{ incidents, bytes fair.Budget[string] }

func (o *Options) usages(bytes int64) usages {
	limit := func(all int64) fair.Budget[string] {
		return fair.Budget[string]{Limit: fair.Limit{All: all, Share: o.NamespaceShare}}
	}
	return usages{incidents: limit(int64(o.MaxIncidents)), bytes: limit(bytes)}
}

// none returns the same limits, without Incidents.
func (u *usages) none() usages {
	return usages{fair.Budget[string]{Limit: u.incidents.Limit}, fair.Budget[string]{Limit: u.bytes.Limit}}
}

// add notes that a namespace has more Incidents, or fewer.
func (u *usages) add(namespace string, more usage, sign int64) {
	u.incidents.Add(namespace, sign*more.incidents)
	u.bytes.Add(namespace, sign*more.bytes)
}

// isOver reports whether a namespace has more than its share, or with a part also almost as much: its share without one part in
// so many.
func (u *usages) isOver(namespace string, part int64) bool {
	for _, budget := range []*fair.Budget[string]{&u.incidents, &u.bytes} {
		headroom := int64(0)
		if part > 0 {
			headroom = budget.Own() / part
		}
		if budget.IsOver(namespace, headroom) {
			return true
		}
	}
	return false
}

// allows reports whether the namespace may have another Incident that is not Resolved.
func (c *storeCounts) allows(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open.incidents.Allows(namespace)
}

// fits reports whether a status may be written over an Incident: it is Resolved, it is not larger, or the namespace has space.
func (c *storeCounts) fits(read *v1alpha1.Incident, status *v1alpha1.IncidentStatus) bool {
	before := 0
	if read.Status.State != v1alpha1.IncidentResolved { // else it did not count
		before = alertcontent.Size(&read.Status.Alert)
	}
	if status.State == v1alpha1.IncidentResolved || alertcontent.Size(&status.Alert) <= before {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open.bytes.Allows(read.Namespace)
}
