package forward

import (
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
}

// update adds to w the sets that this sender has to end, and remembers what is going to be posted.
func (m memory) update(key incidentKey, w wanted, window time.Duration, now time.Time) wanted {
	p := m[key]
	if p == nil {
		if w.firing != "" {
			m[key] = &posted{firing: w.firing, since: w.since}
		}
		return w
	}
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
	if p.firing == "" && len(p.ended) == 0 {
		delete(m, key)
	}
	for _, set := range slices.Backward(p.ended) {
		if !slices.ContainsFunc(w.ended, set.isSame) {
			w.ended = append(w.ended, set)
		}
	}
	return w
}
