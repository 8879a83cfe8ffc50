package main

import (
	"cmp"

	"github.com/tocsin-dev/tocsin/hack/lib/protocol"
)

// writes writes the status on condition that the Incident is the one that was read.
func (m *stepper) writes(p int, decided *protocol.Step, after process) {
	fold := narrow(decided.Fold)
	folder := &m.from.processes[p]
	k := int(folder.target)
	base, current := &folder.cache[k], &m.from.incidents[k]
	switch {
	case base.version != current.version && !m.breaks(protocol.NoPrecondition):
		m.add("process %d: the write of Incident %d conflicts", p, k).state.processes[p] = after
		return
	case m.from.refused.has(k):
		m.add("process %d: the write of Incident %d is refused", p, k).state.processes[p] = after
		return
	}
	content := "with"
	if m.isBare(fold) {
		content = "without"
	}
	added := m.add("process %d: writes events %s to Incident %d, %s content", p, fold, k, content)
	m.write(added, p, decided)
	if m.lag {
		lost := m.add("process %d: writes events %s to Incident %d, and the answer is lost", p, fold, k)
		m.write(lost, p, decided)
		lost.state.processes[p] = after
		added = &m.steps[len(m.steps)-2]
	}
	after.settled[k] |= narrow(decided.Settled())
	if m.lag {
		after.cache[k] = added.state.incidents[k]
	}
	added.state.processes[p] = after
}

// isBare reports whether the content of the newest event is refused.
func (m *stepper) isBare(fold set) bool {
	return fold != 0 && m.bare.has(int(m.from.events[fold.newest()].post))
}

// write stores the folded Incident, and checks what the write itself must not do.
func (m *stepper) write(added *step, p int, decided *protocol.Step) {
	folder := &m.from.processes[p]
	k := int(folder.target)
	base, current := &folder.cache[k], &m.from.incidents[k]
	folded := *base
	folded.version = current.version + 1
	folded.ledger = narrow(decided.Ledger)
	for u := range decided.Fold.All() {
		added.wrong = cmp.Or(added.wrong, m.foldEvent(&folded, u, k))
	}
	if decided.Fold.IsEmpty() {
		added.state.left.rewrites--
	} else {
		folded.bare = m.isBare(narrow(decided.Fold))
	}
	added.state.incidents[k] = folded
	added.wrong = cmp.Or(added.wrong,
		m.settleUnmatched(&added.state, k, narrow(decided.Unmatched)),
		ifWrong(current.ledger.without(folded.ledger)&m.from.existing(k) != 0,
			"an entry leaves the ledger only after its event is gone or marked"),
		ifWrong(folded.ledger.len() > m.capacity, "the ledger is bounded"),
		ifWrong(current.deleting, "nothing is folded into an Incident that is being deleted"))
}

// foldEvent folds an event. One that is older than what was folded counts, and changes no state.
func (m *stepper) foldEvent(into *incident, u, k int) string {
	post := int(m.from.events[u].post)
	twice := into.counted.has(post) || m.from.ghost[k].past.has(post)
	into.counted.put(post, true)
	into.status = true
	if int8(u)+1 > into.stamp {
		into.stamp = int8(u) + 1
		into.open = m.kindOf(u, k) == firing
	}
	return ifWrong(twice, "nothing is counted twice")
}

// settleUnmatched notes events that match no Incident.
func (m *stepper) settleUnmatched(s *state, k int, unmatched set) string {
	g := &s.ghost[k]
	wrong := ""
	for u := range int(s.stored) {
		if !unmatched.has(u) {
			continue
		}
		for older := range u {
			e := &s.events[older]
			waits := e.alive && m.kindOf(older, k) != nothing && !s.done(k).has(int(e.post))
			wrong = cmp.Or(wrong, ifWrong(waits, "no alert is settled as unmatched behind an older one that is not folded"))
		}
		g.unmatched.put(int(s.events[u].post), true)
	}
	return wrong
}

// done are the posts whose alerts for an Incident's name were counted or settled.
func (s *state) done(k int) set {
	g := &s.ghost[k]
	return s.incidents[k].counted | g.past | g.forgiven | g.unmatched
}

// evict deletes an Incident for its age or the limit, or because nothing was folded into it.
func (m *stepper) evict(p, k int, after process) {
	added := m.add("process %d: deletes Incident %d", p, k)
	next := &added.state
	if m.from.incidents[k].status {
		added.fault = m.limit == 0
		next.left.evictions--
	}
	next.end(k)
	next.processes[p] = after
}

// releases marks events, and deletes those whose every alert is settled, and second copies.
func (m *stepper) releases(p int) {
	for u := range int(m.from.stored) {
		if !m.from.events[u].alive {
			continue
		}
		m.deleteSecondCopy(p, u)
		m.release(p, u)
		m.mark(p, u)
	}
}

// deleteSecondCopy deletes an event if the process's cache may show it, and the end of another one of its name.
func (m *stepper) deleteSecondCopy(p, u int) {
	folder := m.from.processes[p]
	if !m.broken.DeletesCopy(m.from.isDeletedBetween(u, folder.since, m.from.logged)) {
		return
	}
	m.from.deliver(&folder, m.from.logged)
	next := &m.add("process %d: deletes event %d, a second copy", p, u).state
	next.remove(u)
	next.processes[p] = folder
}

func (m *stepper) release(p, u int) {
	e := &m.from.events[u]
	waiting := m.messages[e.post].concerns()
	settled := m.settledBy(p, u)
	switch {
	case !m.broken.Releases(settled.wide(), waiting.wide()):
	case m.messages[e.post].keyed && !e.linger:
		next := &m.add("process %d: keeps event %d for its key, and marks it", p, u).state
		next.events[u].linger = true
		if !m.breaks(protocol.LingeringUnmarked) {
			next.events[u].marked |= waiting
		}
	default:
		m.add("process %d: releases event %d", p, u).state.remove(u)
	}
}

// mark marks an event that is settled in part, if the ledger of an Incident needs the space, or the Incident was deleted
// or is to be, or after a while.
func (m *stepper) mark(p, u int) {
	e := &m.from.events[u]
	settled := m.settledBy(p, u)
	if settled.contains(m.messages[e.post].concerns()) {
		return
	}
	for k := range maxIncidents {
		incident := &m.from.incidents[k]
		wanted := 2*incident.ledger.len() > m.capacity || m.from.ghost[k].ended || m.mayEvict(incident) || m.patience
		if wanted && !e.marked.has(k) && m.broken.Marks(settled.wide(), k) {
			m.add("process %d: marks event %d as settled for Incident %d", p, u, k).state.events[u].marked.put(k, true)
		}
	}
}

// settledBy are the Incidents for which a process knows that an event is settled.
func (m *stepper) settledBy(p, u int) set {
	var all set
	for k := range maxIncidents {
		all.put(k, m.from.processes[p].settled[k].has(u))
	}
	return all
}
