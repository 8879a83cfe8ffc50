package main

// folds takes a process's fold one step further: read the Incident, list the events and decide, create the Incident,
// write. Deciding and listing are one step because a decision by an older cache knows less; writing is a step of its
// own because the cache may show more by then.
func (m *stepper) folds(p int) {
	folder := &m.from.processes[p]
	switch folder.at {
	case idle:
		for k := range maxIncidents {
			m.begin(p, k)
		}
	case read:
		m.lists(p)
	case decided, created:
		m.carryOut(p)
	}
}

// begin reads an Incident if there may be something to do for it: the newest version, or the one that its cache shows.
func (m *stepper) begin(p, k int) {
	m.beginWith(p, k, &m.from.incidents[k])
	if cached := &m.from.processes[p].cache[k]; m.lag && *cached != m.from.incidents[k] {
		m.beginWith(p, k, cached)
	}
}

func (m *stepper) beginWith(p, k int, known *incident) {
	folder := m.from.processes[p]
	events := m.from.alive()
	if m.breaks(cacheForList) {
		events |= m.from.shows(&folder)
	}
	work := m.concerns(m.from, events, k).without(folder.settled[k])
	idle := work == 0 && !m.mayEvict(known) && !known.isEmpty()
	if idle || known.deleting && !m.breaks(foldedTerminating) {
		return
	}
	folder.cache[k], folder.at, folder.target = *known, read, int8(k)
	if m.breaks(listBeforeRead) {
		// The other way round: it listed when it began, and reads the Incident when it decides.
		folder.list = m.listFor(&folder, k)
	}
	m.add(p, "process %d: reads version %d of Incident %d", p, known.version, k).state.processes[p] = folder
}

// finish ends a fold. Where caches show Incidents at once, the one that was read is of no more use.
func (m *stepper) finish(p *process) {
	if !m.lag {
		p.cache = [maxIncidents]incident{}
	}
	p.at, p.target, p.list, p.view = idle, 0, 0, 0
}

// mayEvict reports whether an Incident may be deleted for its age or the limit.
func (m *stepper) mayEvict(known *incident) bool {
	return m.from.left.evictions > 0 && known.status && !known.open && !known.deleting
}

// listFor are the events that are listed for an Incident.
func (m *stepper) listFor(p *process, k int) set {
	if m.breaks(cacheForList) {
		return m.from.shows(p) &^ (m.from.alive() &^ m.from.existing(k))
	}
	return m.from.existing(k)
}

// lists lists the events, and decides by what the cache shows by then. What it shows matters only now, so this is when
// it is delivered: any part of what waits.
func (m *stepper) lists(p int) {
	folder := &m.from.processes[p]
	if k := int(folder.target); m.from.left.hasty > 0 && !folder.cache[k].exists && m.mayCreate(k) && m.maySeeFiring(folder, k) {
		m.create(p, k).left.hasty--
	}
	for hidden := folder.hidden; ; hidden = (hidden - 1) & folder.hidden {
		to := m.from.logged
		if hidden != 0 {
			to = folder.seen // what follows a list waits for all of it
		}
		for ; to >= folder.seen; to-- {
			m.listAt(p, hidden, to)
		}
		if hidden == 0 {
			return
		}
	}
}

// maySeeFiring reports whether the cache may show an event that would open an Incident, perhaps one that is gone.
func (m *stepper) maySeeFiring(p *process, k int) bool {
	shown := m.from.shows(p) | m.from.alive()
	for u := range int(m.from.stored) {
		if shown.has(u) && m.kindOf(u, k) == firing {
			return true
		}
	}
	return false
}

// listAt lists with a cache that shows some of the log. It learns from the marks what is settled.
func (m *stepper) listAt(p int, hidden set, to int8) {
	folder := m.from.processes[p]
	k := int(folder.target)
	folder.hidden = hidden
	m.from.deliver(&folder, to)
	shown := m.from.shows(&folder)
	if m.breaks(listBeforeRead) {
		folder.cache[k] = m.from.incidents[k]
	} else {
		folder.list = m.listFor(&folder, k)
	}
	folder.view, folder.at = folder.list&shown, decided
	if m.breaks(marksIgnored) {
		folder.view = m.from.alive() & shown
	} else {
		for i := range folder.settled {
			folder.settled[i] |= (m.from.alive() &^ m.from.existing(i)) & shown
		}
	}
	m.add(p, "process %d: lists events %s, of which its cache shows %s", p, folder.list, folder.view).state.processes[p] = folder
}

// plan is what a fold decides.
type plan struct {
	fold      set // events
	unmatched set // events that match no Incident
	folded    set // events that the ledger has
	create    bool
}

// decide folds the events in commit order, up to one that has to wait. passed says that half a minute has passed since the
// process's cache showed that one.
func (m *stepper) decide(p *process, passed bool) plan {
	k := int(p.target)
	base := &p.cache[k]
	plan := plan{folded: base.ledger & p.view}
	status := base.status
	pending := m.concerns(m.from, p.view, k).without(base.ledger | p.settled[k])
	for u := range int(m.from.stored) {
		switch {
		case !pending.has(u) || m.isSecondCopy(p, u):
		case m.waits(p, u, passed):
			if !m.breaks(waitingOvertaken) {
				return plan
			}
		case m.kindOf(u, k) == resolve && !status:
			plan.unmatched.put(u, true)
		case m.isFull(p, plan):
			return plan
		default:
			plan.create = plan.create || !base.exists
			plan.fold.put(u, true)
			status = true
		}
	}
	return plan
}

func (m *stepper) kindOf(u, k int) kind { return m.messages[m.from.events[u].post].alerts[k] }

// isFull reports whether a plan's ledger has no space for another event. Those from before the Incident need theirs once
// it is open.
func (m *stepper) isFull(p *process, plan plan) bool {
	used := (p.cache[p.target].ledger&p.list | plan.fold).len()
	if plan.fold != 0 {
		used += m.before(p, plan).len()
	}
	return used >= m.capacity && !m.breaks(noLedgerLimit)
}

// before are the events that came before the Incident and still exist.
func (m *stepper) before(p *process, plan plan) set {
	k := int(p.target)
	if p.cache[k].status {
		return 0
	}
	return (plan.unmatched | m.concerns(m.from, p.settled[k]&p.list, k)).without(plan.fold)
}

// ledgerAfter is the ledger that a plan writes: the entries of events that still exist, and those folded now. The
// events from before the Incident enter it with the first one, the newest for which there is space.
func (m *stepper) ledgerAfter(p *process, plan plan) set {
	after := p.cache[p.target].ledger&p.list | plan.fold
	if m.breaks(prunedEarly) {
		after = plan.fold
	}
	for before := m.before(p, plan); before != 0 && after.len() < m.capacity; {
		u := before.newest()
		before.put(u, false)
		after.put(u, true)
	}
	return after
}

// isSecondCopy reports whether the process remembers that another event of this name was deleted.
func (m *stepper) isSecondCopy(p *process, u int) bool {
	return !m.breaks(noMemory) && m.from.isDeletedBetween(u, p.since, p.seen)
}

// waits reports whether an event may be the second copy of one that was deleted before the process began to remember.
// Half a minute from when the process sees the event is enough for any other running process that remembers to delete the copy,
// so if one would, that time does not pass.
func (m *stepper) waits(p *process, u int, passed bool) bool {
	e := &m.from.events[u]
	if !e.doubt || m.breaks(youngDoesNotWait) || p.since <= m.from.posts[e.post].sentAt {
		return false
	}
	for i := range m.processes {
		if m.from.isDeletedBetween(u, m.from.processes[i].since, m.from.logged) {
			return true
		}
	}
	return !passed
}

// carryOut carries a plan out: that of a process whose event that has to wait came more than half a minute ago, or not.
func (m *stepper) carryOut(p int) {
	folder := &m.from.processes[p]
	plan := m.decide(folder, true)
	m.carryOutPlan(p, plan)
	if early := m.decide(folder, false); early != plan {
		m.carryOutPlan(p, early)
	}
	if m.breaks(markBeforeWrite | deleteBeforeWrite) {
		m.breakBefore(p, plan.fold)
	}
}

func (m *stepper) carryOutPlan(p int, plan plan) {
	folder := m.from.processes[p]
	k := int(folder.target)
	after := folder
	m.finish(&after)
	base, current := &folder.cache[k], &m.from.incidents[k]
	isCurrent := base.version == current.version
	switch {
	case plan.unmatched != 0 && !m.breaks(absenceByCache) && !isCurrent:
		m.add(p, "process %d: starts over, because Incident %d is another one", p, k).state.processes[p] = after
	case plan.unmatched != 0 && m.lacksOlder(&folder, plan.unmatched):
		m.add(p, "process %d: starts over, because its cache lacks an older event", p).state.processes[p] = after
	case plan.create && !m.mayCreate(k):
		m.add(p, "process %d: cannot create Incident %d", p, k).state.processes[p] = after
	case plan.create:
		m.create(p, k)
	case plan.fold != 0:
		m.writes(p, plan, after)
	default:
		if isCurrent && (m.mayEvict(base) || base.isEmpty()) && m.isEvictable(&folder) {
			m.evict(p, k, after)
		}
		m.settles(p, plan, after)
	}
}

// lacksOlder reports whether the list has an event that is older than one without an Incident, and by which the
// process did not decide.
func (m *stepper) lacksOlder(p *process, unmatched set) bool {
	view := p.view
	if m.breaks(olderOfCache) {
		view = m.from.alive() // by now
	}
	for u := range int(m.from.stored) {
		if unmatched.has(u) && p.list.without(view|p.settled[p.target]).before(u) != 0 {
			return true
		}
	}
	return false
}

func (m *stepper) mayCreate(k int) bool {
	isFull := m.limit > 0 && m.from.incidentCount() >= m.limit
	return !isFull && !m.from.refused.has(k) && !m.from.incidents[k].exists
}

// create creates the Incident without a status. The events are listed after that: the list has to be newer than the
// Incident, whatever was there before it.
func (m *stepper) create(p, k int) *state {
	next := &m.add(p, "process %d: creates Incident %d", p, k).state
	version := next.incidents[k].version + 1
	next.incidents[k] = incident{exists: true, version: version}
	folder := &next.processes[p]
	folder.cache[k] = next.incidents[k]
	folder.at = created
	if !m.breaks(createdAfterList) {
		folder.at, folder.list, folder.view = read, 0, 0
	}
	return next
}

// settles notes what needs no write.
func (m *stepper) settles(p int, plan plan, after process) {
	k := m.from.processes[p].target
	added := m.add(p, "process %d: settles events %s for Incident %d without a write", p, plan.unmatched|plan.folded, k)
	after.settled[k] |= plan.unmatched | plan.folded
	added.state.processes[p] = after
	added.wrong = m.settleUnmatched(&added.state, int(k), plan.unmatched)
}

// breakBefore marks or deletes before the write.
func (m *stepper) breakBefore(p int, fold set) {
	k := int(m.from.processes[p].target)
	for u := range int(m.from.stored) {
		exists := fold.has(u) && m.from.existing(k).has(u)
		if exists && m.breaks(markBeforeWrite) {
			m.add(p, "process %d: marks event %d for Incident %d before the write", p, u, k).state.events[u].marked.put(k, true)
		}
		if exists && m.breaks(deleteBeforeWrite) {
			m.add(p, "process %d: deletes event %d before the write", p, u).state.remove(u)
		}
	}
}
