package main

import "github.com/tocsin-dev/tocsin/hack/lib/protocol"

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
	if m.breaks(protocol.CacheForList) {
		events |= m.from.shows(&folder)
	}
	work := m.concerns(m.from, events, k).without(folder.settled[k])
	idle := work == 0 && !m.mayEvict(known) && !known.isEmpty() && (m.from.left.rewrites == 0 || !known.status)
	if idle || !m.broken.Folds(known.known()) {
		return
	}
	folder.cache[k], folder.at, folder.target = *known, read, int8(k)
	if m.breaks(protocol.ListBeforeRead) {
		// The other way round: it listed when it began, and reads the Incident when it decides.
		folder.list = m.listFor(&folder, k)
	}
	m.add("process %d: reads version %d of Incident %d", p, known.version, k).state.processes[p] = folder
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
	if m.breaks(protocol.CacheForList) {
		return m.from.shows(p) &^ (m.from.alive() &^ m.from.existing(k))
	}
	return m.from.existing(k)
}

// lists lists the events, and decides by what the cache shows by then. What it shows matters only now, so this is when
// it is delivered: any part of what waits.
func (m *stepper) lists(p int) {
	folder := &m.from.processes[p]
	if k := int(folder.target); m.from.left.hasty > 0 && !folder.cache[k].exists && m.mayCreate(k) {
		// Its cache may show an event that is gone.
		if protocol.Creates(m.opening(k).wide(), (m.from.shows(folder) | m.from.alive()).wide()) {
			m.create(p, k).left.hasty--
		}
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

// listAt lists with a cache that shows some of the log. It learns from the marks what is settled.
func (m *stepper) listAt(p int, hidden set, to int8) {
	folder := m.from.processes[p]
	k := int(folder.target)
	folder.hidden = hidden
	m.from.deliver(&folder, to)
	shown := m.from.shows(&folder)
	if m.breaks(protocol.ListBeforeRead) {
		folder.cache[k] = m.from.incidents[k]
	} else {
		folder.list = m.listFor(&folder, k)
	}
	folder.view, folder.at = folder.list&shown, decided
	if m.breaks(protocol.MarksIgnored) {
		folder.view = m.from.alive() & shown
	} else {
		for i := range folder.settled {
			folder.settled[i] |= (m.from.alive() &^ m.from.existing(i)) & shown
		}
	}
	m.add("process %d: lists events %s, of which its cache shows %s", p, folder.list, folder.view).state.processes[p] = folder
}

// view is what a process goes by when it carries its fold out. hadTime says that half a minute has passed since its cache showed
// what it holds. That is enough for any other running process that remembers to delete a second copy, so if one would, that time
// does not pass.
func (m *stepper) view(p int, hadTime bool) protocol.View {
	folder := &m.from.processes[p]
	k := int(folder.target)
	v := protocol.View{
		Read: folder.cache[k].known(), Current: m.from.incidents[k].known(),
		Listed: m.concerns(m.from, folder.list, k).wide(), Shown: m.concerns(m.from, folder.view, k).wide(),
		Settled: folder.settled[k].wide(), Opening: m.opening(k).wide(), Capacity: m.capacity, Broken: m.broken,
	}
	for u := range v.Shown.All() {
		e := &m.from.events[u]
		if !m.breaks(protocol.NoMemory) && m.from.isDeletedBetween(u, folder.since, folder.seen) {
			v.Copies = v.Copies.With(u)
		}
		remembers := folder.since <= m.from.posts[e.post].sentAt
		if m.broken.Waits(e.doubt, remembers, hadTime && !m.anyRemembers(u)) {
			v.Held = v.Held.With(u)
		}
	}
	return v
}

// anyRemembers reports whether any process remembers that an event is a second copy.
func (m *stepper) anyRemembers(u int) bool {
	for i := range m.processes {
		if m.from.isDeletedBetween(u, m.from.processes[i].since, m.from.logged) {
			return true
		}
	}
	return false
}

// opening are the events that open an Incident.
func (m *stepper) opening(k int) set {
	var all set
	for u := range int(m.from.stored) {
		all.put(u, m.kindOf(u, k) == firing)
	}
	return all
}

func (m *stepper) kindOf(u, k int) kind { return m.messages[m.from.events[u].post].alerts[k] }

// carryOut carries a fold out: that of a process whose event that has to wait came more than half a minute ago, or not.
func (m *stepper) carryOut(p int) {
	late, early := m.view(p, true), m.view(p, false)
	m.carryOutBy(p, &late)
	if early.Held != late.Held {
		m.carryOutBy(p, &early)
	}
	if m.breaks(protocol.MarkBeforeWrite | protocol.DeleteBeforeWrite) {
		for _, step := range late.Steps(nil) {
			m.breakBefore(p, narrow(step.Fold))
		}
	}
}

// carryOutBy takes the steps that the protocol permits.
func (m *stepper) carryOutBy(p int, v *protocol.View) {
	folder := m.from.processes[p]
	k := int(folder.target)
	after := folder
	m.finish(&after)
	m.possible = v.Steps(m.possible[:0])
	for i := range m.possible {
		step := &m.possible[i]
		switch {
		case step.Kind == protocol.Create && m.mayCreate(k):
			m.create(p, k)
		case step.Kind == protocol.Create:
			m.add("process %d: cannot create Incident %d", p, k).state.processes[p] = after
		case step.Kind == protocol.Write && step.Fold.IsEmpty() && m.from.left.rewrites == 0:
		case step.Kind == protocol.Write:
			m.writes(p, step, after)
		case step.Kind == protocol.Delete && v.Read.Status && m.from.left.evictions == 0:
		case step.Kind == protocol.Delete:
			m.evict(p, k, after)
		case step.Kind == protocol.Settle:
			m.settles(p, step, after)
		default:
			m.add("process %d: starts over", p).state.processes[p] = after
		}
	}
}

func (m *stepper) mayCreate(k int) bool {
	isFull := m.limit > 0 && m.from.incidentCount() >= m.limit
	return !isFull && !m.from.refused.has(k) && !m.from.incidents[k].exists
}

// create creates the Incident without a status. The events are listed after that: the list has to be newer than the
// Incident, whatever was there before it.
func (m *stepper) create(p, k int) *state {
	next := &m.add("process %d: creates Incident %d", p, k).state
	version := next.incidents[k].version + 1
	next.incidents[k] = incident{exists: true, version: version}
	folder := &next.processes[p]
	folder.cache[k] = next.incidents[k]
	folder.at = created
	if !m.breaks(protocol.CreatedAfterList) {
		folder.at, folder.list, folder.view = read, 0, 0
	}
	return next
}

func (m *stepper) settles(p int, decided *protocol.Step, after process) {
	k := m.from.processes[p].target
	added := m.add("process %d: settles events %s for Incident %d without a write", p, decided.Settled(), k)
	after.settled[k] |= narrow(decided.Settled())
	added.state.processes[p] = after
	added.wrong = m.settleUnmatched(&added.state, int(k), narrow(decided.Unmatched))
}

func (m *stepper) breakBefore(p int, fold set) {
	k := int(m.from.processes[p].target)
	for u := range int(m.from.stored) {
		exists := fold.has(u) && m.from.existing(k).has(u)
		if exists && m.breaks(protocol.MarkBeforeWrite) {
			m.add("process %d: marks event %d for Incident %d before the write", p, u, k).state.events[u].marked.put(k, true)
		}
		if exists && m.breaks(protocol.DeleteBeforeWrite) {
			m.add("process %d: deletes event %d before the write", p, u).state.remove(u)
		}
	}
}
