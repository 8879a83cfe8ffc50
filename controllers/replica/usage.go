package replica

import (
	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// Usage is a number of Incidents and about how many bytes they take.
type Usage struct{ Incidents, Bytes int64 }

// Add adds the usage of an Incident, or subtracts it if the sign is -1.
func (u *Usage) Add(incident *v1alpha1.Incident, sign int64) {
	of := usageOf(incident)
	u.Incidents += sign * of.Incidents
	u.Bytes += sign * of.Bytes
}

// usageOf is that of one Incident: about as many bytes as the API server stores of it, and as the cache takes.
func usageOf(incident *v1alpha1.Incident) Usage {
	const others = 2 << 10
	size := others + alertcontent.Size(&incident.Status.Alert)
	for i := range incident.Status.UnarchivedEpisodes {
		size += len(incident.Status.UnarchivedEpisodes[i].Packed)
	}
	return Usage{1, int64(size)}
}

// Usages is the usage of each namespace, and its limits.
type Usages struct{ Incidents, Bytes fair.Budget[string] }

// NewUsages returns usages of nothing. A namespace has the same share of both limits.
func NewUsages(incidents fair.Limit, bytes int64) Usages {
	return Usages{
		fair.Budget[string]{Limit: incidents}, fair.Budget[string]{Limit: fair.Limit{All: bytes, Share: incidents.Share}},
	}
}

// Add notes that a namespace uses so much more, or less.
func (u *Usages) Add(namespace string, more Usage) {
	u.Incidents.Add(namespace, more.Incidents)
	u.Bytes.Add(namespace, more.Bytes)
}
