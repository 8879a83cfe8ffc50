package oracle

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// History is what the commits of an API server tell. It is not safe for concurrent use.
type History struct {
	options      Options
	commits      int
	events       map[string]*event        // by UID
	existing     map[incidentKey]*event   // AlertEvents that exist, by name
	byIncident   map[incidentKey][]*event // those with alerts of an Incident that are pending for it, in commit order
	concerned    map[incidentKey]bool     // Incidents that an AlertEvent was ever stored for
	ids          map[string]*event        // by the id of an alert: the first one that has it
	stored       map[string][]*event      // by Seq, in commit order, copies left out
	lives        map[incidentKey]*life    // those that last
	quietEnds    []quietEnd
	integrations map[incidentKey]*storedIntegration
	now          time.Time // of the commit that is entered
	copies       int
	findings     Findings
}

// NewHistory returns an empty history.
func NewHistory(options Options) *History {
	return &History{
		options:      options,
		events:       map[string]*event{},
		existing:     map[incidentKey]*event{},
		byIncident:   map[incidentKey][]*event{},
		concerned:    map[incidentKey]bool{},
		ids:          map[string]*event{},
		stored:       map[string][]*event{},
		lives:        map[incidentKey]*life{},
		integrations: map[incidentKey]*storedIntegration{},
	}
}

// Commit enters the next commit.
func (h *History) Commit(c Commit) {
	if strings.HasPrefix(c.Name, v1alpha1.CanaryName) {
		return // no alert of anybody
	}
	h.commits, h.now = h.commits+1, c.At
	c.ByUser = c.ByUser || c.Restored || c.Deleted && slices.Contains(h.options.DeletedNamespaces, c.Namespace)
	var err error
	switch c.Resource {
	case "alertevents":
		err = h.commitEvent(&c)
	case "incidents":
		err = h.commitIncident(&c)
	case "webhookintegrations":
		err = h.commitIntegration(&c)
	}
	if err != nil {
		h.findings.Add("F: %s %s/%s is committed in a form that cannot be read: %v", c.Resource, c.Namespace, c.Name, err)
	}
}

// Findings returns what the commits alone break, in the order in which they do.
func (h *History) Findings() Findings { return slices.Clone(h.findings) }

// Copies is the number of AlertEvents that were stored with the ids of an earlier one.
func (h *History) Copies() int { return h.copies }

func (h *History) commitIntegration(c *Commit) error {
	key := incidentKey{c.Namespace, c.Name}
	if c.Deleted {
		delete(h.integrations, key)
		return nil
	}
	stored := &storedIntegration{appeared: c.At}
	if before := h.integrations[key]; before != nil {
		stored.appeared = before.appeared
	}
	h.integrations[key] = stored
	return json.Unmarshal(c.Object, stored)
}

func (h *History) commitEvent(c *Commit) error {
	key := incidentKey{c.Namespace, c.Name}
	if c.Deleted {
		if e := h.existing[key]; e != nil {
			h.deleteEvent(e, c)
		}
		return nil
	}
	var stored storedEvent
	if err := json.Unmarshal(c.Object, &stored); err != nil {
		return err
	}
	e := h.events[stored.Metadata.UID]
	if e == nil {
		alerts, err := stored.alerts()
		if err != nil && !c.ByUser {
			return err
		}
		e = newEvent(c, &stored, alerts, h.commits)
		h.createEvent(e, c)
	}
	if stored.Metadata.Deleting != nil {
		h.beginDeletion(e, c)
	}
	h.mark(e, parseMark(stored.Metadata.Annotations), c)
	return nil
}

func (h *History) createEvent(e *event, c *Commit) {
	h.events[e.uid] = e
	h.existing[incidentKey{e.namespace, e.name}] = e
	for id, seq := range e.seqs {
		first := h.ids[id]
		switch {
		case e.restored: // it stands for nothing, so a later one is no copy of it
		case first == nil, h.freedKey(first, e):
			h.ids[id] = e
			if seq != "" {
				h.stored[seq] = append(h.stored[seq], e)
			}
		case e.copyOf == nil:
			e.copyOf = first
			h.copies++
		}
	}
	for _, name := range e.incidents() {
		key := incidentKey{e.namespace, name}
		h.concerned[key] = true
		h.byIncident[key] = append(h.byIncident[key], e)
		h.findUnmatched(key, c.At)
	}
}

// freedKey says whether the first AlertEvent had stayed for its idempotency key as long as it should when another one came, which
// is a new request then.
func (h *History) freedKey(first, e *event) bool {
	linger := h.options.KeyedLinger
	return linger > 0 && v1alpha1.IsKeyedEventName(e.name) && first.isGone() && e.committed.Sub(first.committed) >= linger
}

func (h *History) mark(e *event, marked map[string]bool, c *Commit) {
	for name := range marked {
		if e.isMarked(name) {
			continue
		}
		names := []string{name}
		if name == "*" {
			names = e.incidents()
		}
		for _, name := range names {
			switch {
			case e.isSettled(name):
			case c.ByUser:
				e.excused = true
			default:
				h.findings.Add("A: AlertEvent %s is marked as settled for %s, and is not", e, name)
			}
		}
	}
	for name := range e.marked {
		if !marked[name] && !marked["*"] && !c.ByUser {
			h.findings.Add("A: the operator took the mark for %s from AlertEvent %s", name, e)
		}
	}
	e.marked = marked
}

func (h *History) deleteEvent(e *event, c *Commit) {
	h.beginDeletion(e, c)
	e.until, e.ended = h.commits, c.At
	delete(h.existing, incidentKey{e.namespace, e.name})
	for _, name := range e.incidents() {
		h.forgetPending(e, name)
		h.findUnmatched(incidentKey{e.namespace, name}, c.At)
	}
}

// beginDeletion judges the deletion of an AlertEvent, by whoever asks for it first.
func (h *History) beginDeletion(e *event, c *Commit) {
	if e.deleting {
		return
	}
	e.deleting = true
	unsettled := e.unsettled()
	switch {
	case c.ByUser:
		e.removed, e.excused = true, e.excused || len(unsettled) > 0
	case len(unsettled) > 0:
		for _, name := range unsettled {
			h.findings.Add("A: the operator deleted AlertEvent %s, and its alerts of %s (%s) are in no ledger",
				e, name, statuses(e.alerts[name]))
		}
	case e.copyOf == nil && e.lingers() && !e.settledAt.IsZero() && c.At.Sub(e.settledAt) < h.options.KeyedLinger:
		h.findings.Add("C: AlertEvent %s was deleted %s after it was settled, and has an idempotency key",
			e, c.At.Sub(e.settledAt))
	}
}

func (h *History) forgetPending(e *event, name string) {
	key := incidentKey{e.namespace, name}
	h.byIncident[key] = slices.DeleteFunc(h.byIncident[key], func(other *event) bool { return other == e })
}

// findUnmatched notes which AlertEvents match nothing: the Incident is absent, and no older AlertEvent waits that could
// open it.
func (h *History) findUnmatched(key incidentKey, at time.Time) {
	if l := h.lives[key]; l != nil && l.stored.Status.State != "" {
		return
	}
	for _, e := range h.byIncident[key] {
		if e.mustNotCount(key.name) || e.mayCount(key.name) {
			continue
		}
		if e.canOpen(key.name) {
			return
		}
		if e.settled[key.name] == pending {
			e.settle(key.name, unmatched, at)
		}
	}
}

func statuses(alerts []told) string {
	texts := make([]string, 0, len(alerts))
	for _, a := range alerts {
		texts = append(texts, a.text("status"))
	}
	return strings.Join(texts, ", ")
}
