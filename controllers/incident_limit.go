package controllers

import "github.com/tocsin-dev/tocsin/api/v1alpha1"

// incidentLimit says how many Incidents a namespace may have that are not Resolved.
type incidentLimit struct {
	capacity v1alpha1.Capacity
	counts   *storeCounts
}

// allows reports whether the namespace may have another Incident.
func (l *incidentLimit) allows(namespace string) bool {
	own, all, namespaces := l.counts.countIncidents(namespace)
	if own == 0 {
		namespaces++
	}
	return l.capacity.Allows(own, all, namespaces)
}
