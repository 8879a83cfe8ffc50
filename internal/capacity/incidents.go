package capacity

import (
	"hash/maphash"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// countedIncident says why an Incident counts: it is open, or a firing alert of it is stored or being stored. Otherwise ingest
// would accept an alert whose Incident the limit then forbids, and nobody would be told.
type countedIncident struct {
	open    *openIncident // as the cache has it; nil if it is Resolved or does not exist
	waiting int           // AlertEvents and reservations with firing alerts of it
}

func (i countedIncident) count() int64 {
	if i == (countedIncident{}) {
		return 0
	}
	return 1
}

// openIncident is an Incident that is not Resolved, as it was counted.
type openIncident struct {
	name string
	incidentGroup
	usage Usage
	muted bool // by a maintenance window
}

// incidentGroup is the group in which an Incident is counted; the state is empty until its status is written.
type incidentGroup struct {
	state    v1alpha1.IncidentState
	severity v1alpha1.Severity
}

// SetIncident counts an Incident that is not Resolved, or counts it anew.
func (c *Counts) SetIncident(incident *v1alpha1.Incident, _ bool) {
	group := incidentGroup{incident.Status.State, incident.Status.Alert.Severity}
	c.setIncident(incident, &openIncident{incident.Name, group, UsageOf(incident), incident.Status.Mute != nil})
}

// RemoveIncident no longer counts an Incident, unless alerts wait for it.
func (c *Counts) RemoveIncident(incident *v1alpha1.Incident) { c.setIncident(incident, nil) }

func (c *Counts) setIncident(incident *v1alpha1.Incident, open *openIncident) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changeIncident(incident.Namespace, c.hash(incident.Name), func(i *countedIncident) {
		c.countOpen(incident.Namespace, i.open, -1)
		c.countOpen(incident.Namespace, open, 1)
		i.open = open
	})
}

func (c *Counts) countOpen(namespace string, incident *openIncident, sign int64) {
	if incident == nil {
		return
	}
	c.groups[incident.incidentGroup] += int(sign)
	if incident.muted {
		c.muted += int(sign)
	}
	c.open.Add(namespace, incident.usage.Times(sign))
}

// changeIncident changes why an Incident is expected, and with it how many are.
func (c *Counts) changeIncident(namespace string, hash uint64, change func(*countedIncident)) {
	incidents := c.incidents[namespace]
	if incidents == nil {
		incidents = map[uint64]countedIncident{}
		c.incidents[namespace] = incidents
	}
	before := incidents[hash]
	now := before
	change(&now)
	if incidents[hash] = now; now.count() == 0 {
		delete(incidents, hash)
	}
	if len(incidents) == 0 {
		delete(c.incidents, namespace)
	}
	c.expected.Add(namespace, now.count()-before.count())
}

// hash returns what stands for the name of an Incident: a name takes many times the memory.
func (c *Counts) hash(name string) uint64 { return maphash.String(c.seed, name) }

// HasOpenIncident reports whether the Incident exists and is not Resolved.
func (c *Counts) HasOpenIncident(namespace, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.incidents[namespace][c.hash(name)].open != nil
}

// ExpectsIncident reports whether the Incident is not Resolved, or an alert waits that opens it.
func (c *Counts) ExpectsIncident(namespace, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.incidents[namespace][c.hash(name)].count() > 0
}

// ReserveIncidents returns the alerts of a request that may be stored. Alerts that do not fire may, and those of Incidents that
// are not Resolved. Others may unless new Incidents are blocked, if an alert that waits has counted their Incident already, or if
// the namespace may have another one. What this call counts stays counted until the write has ended and the informer has shown
// the AlertEvent, whose alerts then count by themselves.
func (c *Counts) ReserveIncidents(namespace string, alerts []v1alpha1.Alert, blocked bool) (storable []v1alpha1.Alert) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var reserved []uint64
	for i := range alerts {
		incident := c.hash(alerts[i].IncidentName)
		if known := c.incidents[namespace][incident]; alerts[i].Status == v1alpha1.AlertFiring && known.open == nil {
			if blocked || known.count() == 0 && !c.expected.Allows(namespace) {
				continue
			}
			c.wait(namespace, []uint64{incident}, 1)
			reserved = append(reserved, incident)
		}
		storable = append(storable, alerts[i])
	}
	if len(reserved) > 0 {
		time.AfterFunc(reservationTime, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.wait(namespace, reserved, -1)
		})
	}
	return storable
}

// waitingFor returns the Incidents of an AlertEvent's firing alerts, but for those into which they are folded. One that is being
// deleted is folded, or a user has given it up.
func (c *Counts) waitingFor(event *v1alpha1.AlertEvent, mark *queue.Mark) (waiting []uint64) {
	if !event.DeletionTimestamp.IsZero() {
		return nil
	}
	for i := range event.Alerts {
		alert := &event.Alerts[i]
		if name := event.IncidentNameFor(alert); alert.Status == v1alpha1.AlertFiring && !mark.Settles(name) {
			waiting = append(waiting, c.hash(name))
		}
	}
	return waiting
}

// wait changes how many AlertEvents and reservations each of the Incidents waits for.
func (c *Counts) wait(namespace string, incidents []uint64, more int) {
	for _, incident := range incidents {
		c.changeIncident(namespace, incident, func(i *countedIncident) { i.waiting += more })
	}
}

// MayOpen reports whether a fold may create another Incident in the namespace. It may for every alert that Reserve let be stored:
// that counted its Incident then, there are never more than fair.Limit.Fits lets there be, and the limit has slack for what other
// replicas let be stored meanwhile. So this bounds only what people create by hand.
func (c *Counts) MayOpen(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open.Incidents.Fits(namespace)
}

// Fits reports whether a status may be written over an Incident: it is Resolved, it is not larger, or the namespace has space.
func (c *Counts) Fits(read *v1alpha1.Incident, status *v1alpha1.IncidentStatus) bool {
	before := 0
	if read.Status.State != v1alpha1.IncidentResolved { // else it did not count
		before = alertcontent.Size(&read.Status.Alert)
	}
	if status.State == v1alpha1.IncidentResolved || alertcontent.Size(&status.Alert) <= before {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open.Bytes.Allows(read.Namespace)
}

// OfIntegration returns the names of an integration's Incidents.
func (c *Counts) OfIntegration(namespace, integration string) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, incident := range c.incidents[namespace] {
		if incident.open != nil && v1alpha1.IsIncidentName(incident.open.name, integration) {
			names = append(names, incident.open.name)
		}
	}
	return names
}

// Usage is a number of Incidents and about how many bytes they take.
type Usage struct{ Incidents, Bytes int64 }

// UsageOf is that of one Incident: about as many bytes as the API server stores of it, and as the cache takes.
func UsageOf(incident *v1alpha1.Incident) Usage {
	const others = 2 << 10
	size := others + alertcontent.Size(&incident.Status.Alert)
	for i := range incident.Status.UnarchivedEpisodes {
		size += len(incident.Status.UnarchivedEpisodes[i].Packed)
	}
	return Usage{1, int64(size)}
}

// Plus returns the sum of two usages.
func (u Usage) Plus(more Usage) Usage {
	return Usage{u.Incidents + more.Incidents, u.Bytes + more.Bytes}
}

// Times returns a multiple of the usage.
func (u Usage) Times(n int64) Usage { return Usage{n * u.Incidents, n * u.Bytes} }

// Usages is the usage of each namespace, and its limits.
type Usages struct{ Incidents, Bytes fair.Budget[string] }

// NewUsages returns usages of nothing. A namespace has the same share of both limits.
func NewUsages(incidents fair.Limit, bytes int64) Usages {
	return Usages{
		fair.Budget[string]{Limit: incidents, Capped: true},
		fair.Budget[string]{Limit: fair.Limit{All: bytes, Share: incidents.Share}, Capped: true},
	}
}

// Add notes that a namespace uses so much more, or less.
func (u *Usages) Add(namespace string, more Usage) {
	u.Incidents.Add(namespace, more.Incidents)
	u.Bytes.Add(namespace, more.Bytes)
}
