package main

// writes writes the status on condition that the Incident is the one that was read.
func (m *stepper) writes(p int, plan plan, after process) {
	folder := &m.from.processes[p]
	k := int(folder.target)
	base, current := &folder.cache[k], &m.from.incidents[k]
	switch {
	case base.version != current.version && !m.breaks(noPrecondition):
		m.add(p, "process %d: the write of Incident %d conflicts", p, k).state.processes[p] = after
		return
	case m.from.refused.has(k):
		m.add(p, "process %d: the write of Incident %d is refused", p, k).state.processes[p] = after
		return
	}
	content := "with"
	if m.isBare(plan.fold) {
		content = "without"
	}
	added := m.add(p, "process %d: writes events %s to Incident %d, %s content", p, plan.fold, k, content)
	m.write(added, p, plan)
	if m.lag {
		lost := m.add(p, "process %d: writes events %s to Incident %d, and the answer is lost", p, plan.fold, k)
		m.write(lost, p, plan)
		lost.state.processes[p] = after
		added = &m.steps[len(m.steps)-2]
	}
	after.settled[k] |= plan.fold | plan.unmatched | plan.folded
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
func (m *stepper) write(added *step, p int, plan plan) {
	folder := &m.from.processes[p]
	k := int(folder.target)
	base, current := &folder.cache[k], &m.from.incidents[k]
	folded := *base
	folded.version = current.version + 1
	folded.ledger = m.ledgerAfter(folder, plan)
	for u := range int(m.from.stored) {
		if plan.fold.has(u) {
			added.wrong = firstOf(added.wrong, m.foldEvent(&folded, u, k))
		}
	}
	folded.bare = m.isBare(plan.fold)
	added.state.incidents[k] = folded
	added.wrong = firstOf(added.wrong,
		m.settleUnmatched(&added.state, k, plan.unmatched),
		m.checkPruning(current.ledger.without(folded.ledger), k),
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

// checkPruning checks the events whose entries leave a ledger.
func (m *stepper) checkPruning(pruned set, k int) string {
	return ifWrong(pruned&m.from.existing(k) != 0, "an entry leaves the ledger only after its event is gone or marked")
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
			waits := e.alive && m.kindOf(older, k) != nothing && !m.isDone(s, int(e.post), k)
			wrong = firstOf(wrong, ifWrong(waits, "no alert is settled as unmatched behind an older one that is not folded"))
		}
		g.unmatched.put(int(s.events[u].post), true)
	}
	return wrong
}

// isDone reports whether a post's alert for an Incident was counted or settled.
func (m *stepper) isDone(s *state, post, k int) bool { return s.done(k).has(post) }

// done are the posts whose alerts for an Incident's name were counted or settled.
func (s *state) done(k int) set {
	g := &s.ghost[k]
	return s.incidents[k].counted | g.past | g.forgiven | g.unmatched
}

// isEvictable reports whether nothing that exists needs the Incident or its ledger. Another process may have created an empty
// one for an event that this one's cache lacks, or that only this one knows to be settled: then it stays as long as the event.
func (m *stepper) isEvictable(p *process) bool {
	k := int(p.target)
	base := &p.cache[k]
	existing := m.concerns(m.from, p.view, k)
	if base.isEmpty() {
		return existing == 0 && p.view.contains(p.list)
	}
	return existing.without(p.settled[k]) == 0 && (base.ledger&p.list == 0 || m.breaks(evictedUnmarked))
}

// evict deletes an Incident for its age or the limit, or because nothing was folded into it.
func (m *stepper) evict(p, k int, after process) {
	added := m.add(p, "process %d: deletes Incident %d", p, k)
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
	if !m.from.isDeletedBetween(u, folder.since, m.from.logged) || m.breaks(noMemory) {
		return
	}
	m.from.deliver(&folder, m.from.logged)
	next := &m.add(p, "process %d: deletes event %d, a second copy", p, u).state
	next.remove(u)
	next.processes[p] = folder
}

func (m *stepper) release(p, u int) {
	e := &m.from.events[u]
	waiting := m.messages[e.post].concerns()
	settled := m.settledBy(p, u)
	switch {
	case !settled.contains(waiting) && (settled == 0 || !m.breaks(releasedInPart)):
	case m.messages[e.post].keyed && !e.linger:
		next := &m.add(p, "process %d: keeps event %d for its key, and marks it", p, u).state
		next.events[u].linger = true
		if !m.breaks(lingeringUnmarked) {
			next.events[u].marked |= waiting
		}
	default:
		m.add(p, "process %d: releases event %d", p, u).state.remove(u)
	}
}

// mark marks an event that is settled in part, if the ledger of an Incident needs the space, or the Incident was deleted
// or is to be.
func (m *stepper) mark(p, u int) {
	e := &m.from.events[u]
	settled := m.settledBy(p, u)
	if m.breaks(noMarks) || settled.contains(m.messages[e.post].concerns()) {
		return
	}
	for k := range maxIncidents {
		incident := &m.from.incidents[k]
		needed := 2*incident.ledger.len() > m.capacity || m.from.ghost[k].ended || m.mayEvict(incident)
		if settled.has(k) && !e.marked.has(k) && needed {
			m.add(p, "process %d: marks event %d as settled for Incident %d", p, u, k).state.events[u].marked.put(k, true)
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
