package forward

import (
	"encoding/json"
	"slices"
	"time"
)

// memory is what one sender has posted: the sets that fire in its Alertmanager. A set that differs from the one that an
// Incident has now is ended by it. The timeline tells a new leader the same about severities; the memory knows of
// other labels, of Incidents that were deleted, and of those that are no longer forwarded.
type memory map[incidentKey]*posted

// posted are the sets of one Incident.
type posted struct {
	firing labelSet // empty: none
	since  time.Time
	ended  []endedSet // which the timeline may not tell, newest last

	labels  labelSet    // of all sets, without the severity
	changes []time.Time // when these changed lately
}

// update adds to w the sets that this sender has to end, and remembers what is going to be posted.
func (m memory) update(key incidentKey, w wanted, window time.Duration, now time.Time) wanted {
	p := m[key]
	if p == nil {
		p = &posted{}
		m[key] = p
	}
	w = p.steady(w, window, now)
	if p.firing != "" && p.firing != w.firing && !w.held {
		p.ended = append(p.ended, endedSet{labels: p.firing, from: p.since, to: now})
		p.firing = ""
	}
	if w.firing != "" {
		p.firing, p.since = w.firing, w.since
	}
	p.ended = slices.DeleteFunc(p.ended, func(set endedSet) bool {
		return set.labels == w.firing || slices.ContainsFunc(w.ended, set.isSame) || now.Sub(set.to) >= window
	})
	if excess := len(p.ended) - maxEndedSets; excess > 0 {
		p.ended = slices.Delete(p.ended, 0, excess)
	}
	if !p.mustEnd() && len(p.changes) == 0 {
		delete(m, key)
	}
	for _, set := range slices.Backward(p.ended) {
		if !slices.ContainsFunc(w.ended, set.isSame) {
			w.ended = append(w.ended, set)
		}
	}
	return w
}

// steady returns what is wanted, with the labels of before if they have changed maxLabelChanges times lately. Only the severity
// still changes: it has few values. Alertmanager keeps each set for half an hour, so a sender that changes the type with every
// alert would fill it.
func (p *posted) steady(w wanted, window time.Duration, now time.Time) wanted {
	p.changes = slices.DeleteFunc(p.changes, func(at time.Time) bool { return now.Sub(at) >= window })
	labels := w.firing
	if labels == "" && len(w.ended) > 0 {
		labels = w.ended[0].labels
	}
	if labels = labels.asSevereAs(""); labels == "" || labels == p.labels {
		return w
	}
	if len(p.changes) < maxLabelChanges {
		p.labels, p.changes = labels, append(p.changes, now)
		return w
	}
	if w.firing != "" {
		w.firing = p.labels.asSevereAs(w.firing)
	}
	w.ended = slices.Clone(w.ended)
	for i := range w.ended {
		w.ended[i].labels = p.labels.asSevereAs(w.ended[i].labels)
	}
	return w
}

// mustEnd reports whether there are sets to end.
func (p *posted) mustEnd() bool { return p != nil && (p.firing != "" || len(p.ended) > 0) }

// asSevereAs returns the labels with the severity of others, which may be none.
func (s labelSet) asSevereAs(others labelSet) labelSet {
	var labels, from map[string]string
	if json.Unmarshal([]byte(s), &labels) != nil {
		return s
	}
	_ = json.Unmarshal([]byte(others), &from)
	delete(labels, labelSeverity)
	if severity := from[labelSeverity]; severity != "" {
		labels[labelSeverity] = severity
	}
	encoded, err := json.Marshal(labels)
	if err != nil {
		return s // strings always encode
	}
	return labelSet(encoded)
}
