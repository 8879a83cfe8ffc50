package controllers

import "github.com/tocsin-dev/tocsin/api/v1alpha1"

// capacities bound a usage.
type capacities struct{ incidents, bytes v1alpha1.Capacity }

func (o *Options) capacities(bytes int64) capacities {
	return capacities{
		incidents: v1alpha1.Capacity{Limit: int64(o.MaxIncidents), Share: o.NamespaceShare},
		bytes:     v1alpha1.Capacity{Limit: bytes, Share: o.NamespaceShare},
	}
}

// incidentLimit says how many Incidents a namespace may have that are not Resolved, and of how many bytes: every replica caches
// them.
type incidentLimit struct {
	capacities
	counts *storeCounts
}

func newIncidentLimit(counts *storeCounts, options Options) *incidentLimit {
	return &incidentLimit{options.capacities(maxOpenBytes), counts}
}

// allows reports whether the namespace may have another Incident.
func (l *incidentLimit) allows(namespace string) bool {
	own, all, namespaces := l.counts.usage(namespace)
	if own.incidents == 0 {
		namespaces++
	}
	return l.incidents.Allows(own.incidents, all.incidents, namespaces)
}

// fits reports whether a status may be written over an Incident: it is Resolved, it is not larger, or the namespace has space.
func (l *incidentLimit) fits(read *v1alpha1.Incident, status *v1alpha1.IncidentStatus) bool {
	before := 0
	if read.Status.State != v1alpha1.IncidentResolved { // else it did not count
		before = read.Status.Alert.EncodedSize()
	}
	if status.State == v1alpha1.IncidentResolved || status.Alert.EncodedSize() <= before {
		return true
	}
	own, all, namespaces := l.counts.usage(read.Namespace)
	return l.bytes.Allows(own.bytes, all.bytes, max(1, namespaces))
}
