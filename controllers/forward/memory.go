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
	sets    []set       // the one that fires, and those that have ended and that the timeline may not tell, newest first
	labels  string      // of all sets
	changes []time.Time // when these changed lately
}

// update adds to the sets that are wanted those that this sender has to end, and remembers what is going to be posted. See want
// for held.
func (m memory) update(key incidentKey, sets []set, held bool, window time.Duration, now time.Time) []set {
	p := m[key]
	if p == nil {
		p = &posted{}
		m[key] = p
	}
	p.steady(sets, window, now)
	var remembered []set
	if len(sets) > 0 && sets[0].fires() {
		remembered = append(remembered, sets[0])
	}
	for _, old := range p.sets {
		if old.fires() && held {
			remembered = append(remembered, old)
			continue
		}
		if old.fires() {
			old.to = now
		}
		if now.Sub(old.to) < window && !slices.ContainsFunc(sets, old.isSame) {
			sets, remembered = append(sets, old), append(remembered, old)
		}
	}
	p.sets = remembered[:min(len(remembered), 1+maxEndedSets)]
	if len(p.sets)+len(p.changes) == 0 {
		delete(m, key)
	}
	return sets
}

// steady changes the labels of sets to those of before if they have changed maxLabelChanges times lately. Only the severity still
// changes: it has few values. Alertmanager keeps each set for half an hour, so a sender that changes the type with every alert
// would fill it.
func (p *posted) steady(sets []set, window time.Duration, now time.Time) {
	p.changes = slices.DeleteFunc(p.changes, func(at time.Time) bool { return now.Sub(at) >= window })
	switch {
	case len(sets) == 0 || sets[0].labels == p.labels:
	case len(p.changes) < maxLabelChanges:
		p.labels, p.changes = sets[0].labels, append(p.changes, now)
	default:
		for i := range sets {
			sets[i].labels = p.labels
		}
	}
}
