package commit

import (
	"hash/maphash"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/marks"
)

// +kubebuilder:rbac:groups=tocsin.dev,resources=incidents,verbs=get;list;watch

// presence says why an Incident counts: it is not Resolved, or a firing alert of it is stored or being stored. If such an alert
// did not count, it could find no place later, and wait in its AlertEvent unseen. Capacity keeps hashes of the names: 50,000 of
// them take about 2 MiB.
type presence struct {
	isOpen  bool
	waiting int // AlertEvents and reservations with firing alerts of it
}

func (p presence) count() int64 {
	if p == (presence{}) {
		return 0
	}
	return 1
}

// SetIncident counts an Incident.
func (c *Capacity) SetIncident(incident *v1alpha1.Incident, _ bool) { c.setIncident(incident, true) }

// RemoveIncident no longer counts an Incident, unless alerts wait for it.
func (c *Capacity) RemoveIncident(incident *v1alpha1.Incident) { c.setIncident(incident, false) }

func (c *Capacity) setIncident(incident *v1alpha1.Incident, isOpen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changeIncident(incident.Namespace, c.hash(incident.Namespace, incident.Name), func(p *presence) { p.isOpen = isOpen })
}

// HasOpenIncident reports whether the Incident exists and is not Resolved.
func (c *Capacity) HasOpenIncident(namespace, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.incidents[c.hash(namespace, name)].isOpen
}

// Reserve returns the alerts of a request that may be stored. Alerts that do not fire may, and those of Incidents that are not
// Resolved. Others may unless new Incidents are blocked, if an alert that waits has counted their Incident already, or if the
// namespace may have another one. What this call counts stays counted until the write has ended and the informer has shown the
// AlertEvent, whose alerts then count by themselves.
func (c *Capacity) Reserve(namespace string, alerts []v1alpha1.Alert, blocked bool) (storable []v1alpha1.Alert) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var reserved []uint64
	for i := range alerts {
		incident := c.hash(namespace, alerts[i].IncidentName)
		if known := c.incidents[incident]; alerts[i].Status == v1alpha1.AlertFiring && !known.isOpen {
			if blocked || known.count() == 0 && !c.budget.Allows(namespace) {
				continue
			}
			c.wait(namespace, []uint64{incident}, 1)
			reserved = append(reserved, incident)
		}
		storable = append(storable, alerts[i])
	}
	if len(reserved) > 0 {
		time.AfterFunc(Timeout+maxWatchDelay, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.wait(namespace, reserved, -1)
		})
	}
	return storable
}

func (c *Capacity) hash(namespace, name string) uint64 {
	return maphash.Comparable(c.seed, types.NamespacedName{Namespace: namespace, Name: name})
}

// waitingFor returns the Incidents of an AlertEvent's firing alerts, but for those into which they are folded. One that is being
// deleted is folded, or a user has given it up.
func (c *Capacity) waitingFor(event *v1alpha1.AlertEvent) (waiting []uint64) {
	if !event.DeletionTimestamp.IsZero() {
		return nil
	}
	mark, _ := marks.Of(event)
	for i := range event.Spec.Alerts {
		alert := &event.Spec.Alerts[i]
		if name := event.IncidentNameFor(alert); alert.Status == v1alpha1.AlertFiring && !mark.Settles(name) {
			waiting = append(waiting, c.hash(event.Namespace, name))
		}
	}
	return waiting
}

// wait changes how many AlertEvents and reservations each of the Incidents waits for.
func (c *Capacity) wait(namespace string, incidents []uint64, more int) {
	for _, incident := range incidents {
		c.changeIncident(namespace, incident, func(p *presence) { p.waiting += more })
	}
}

func (c *Capacity) changeIncident(namespace string, incident uint64, change func(*presence)) {
	before := c.incidents[incident]
	now := before
	change(&now)
	if c.incidents[incident] = now; now.count() == 0 {
		delete(c.incidents, incident)
	}
	c.budget.Add(namespace, now.count()-before.count())
}
