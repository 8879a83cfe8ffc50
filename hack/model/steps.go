package main

import (
	"fmt"
	"slices"

	"github.com/tocsin-dev/tocsin/hack/lib/protocol"
)

// step is a state that follows another one.
type step struct {
	state state
	fault bool   // it may never come
	heals bool   // the API server no longer refuses an Incident
	wrong string // the invariant that the step itself breaks
	name  string // empty unless named
}

// stepper collects the steps from a state.
type stepper struct {
	*scope
	from  *state
	named bool
	steps []step

	possible []protocol.Step // for carryOutBy
}

// stepsFrom returns all steps from a state, in an order that depends on nothing else.
func (c *scope) stepsFrom(from *state, named bool, into []step) []step {
	m := stepper{scope: c, from: from, named: named, steps: into[:0]}
	m.ingest()
	m.users()
	for p := range c.processes {
		m.faults(p)
		m.folds(p)
		m.releases(p)
	}
	return m.steps
}

// add returns a new step, at first with the state from which it starts.
func (m *stepper) add(format string, args ...any) *step {
	m.steps = append(m.steps, step{state: *m.from})
	added := &m.steps[len(m.steps)-1]
	if m.named {
		added.name = fmt.Sprintf(format, args...)
	}
	return added
}

func (m *stepper) addFault(format string, args ...any) *step {
	added := m.add(format, args...)
	added.fault = true
	return added
}

// ingest sends attempts and has the API server process them, in any order. That the answer of one is lost needs no
// step of its own: a retry is possible in any case. Nor does a single attempt need two: nothing sees it under way.
func (m *stepper) ingest() {
	for p := range m.messages {
		posted := &m.from.posts[p]
		if p > 0 && !m.isStored(p-1) {
			break
		}
		if m.messages[p].attempts == 1 && posted.sent == 0 {
			next := &m.addFault("post %d is stored as event %d", p, m.from.stored).state
			next.posts[p].sent++
			next.store(p, false)
		} else if posted.sent < m.messages[p].attempts {
			next := &m.addFault("the sender of post %d makes attempt %d", p, posted.sent+1).state
			if posted.sent == 0 {
				next.posts[p].sentAt = next.logged
			}
			next.posts[p].flying.put(int(posted.sent), posted.sent > 0 || !m.messages[p].lost)
			next.posts[p].sent++
		}
		for attempt := range int(posted.sent) {
			if posted.flying.has(attempt) {
				m.land(p, attempt)
			}
		}
	}
}

// land has the API server process an attempt.
func (m *stepper) land(p, attempt int) {
	for u := range int(m.from.stored) {
		if e := &m.from.events[u]; e.alive && int(e.post) == p {
			next := &m.add("attempt %d of post %d finds event %d", attempt+1, p, u).state
			next.posts[p].flying.put(attempt, false)
			return
		}
	}
	// A first attempt that is stored after a retry was sent shows by its times that it is late.
	doubt := attempt > 0 || m.from.posts[p].sent > 1 && !m.breaks(protocol.LateAttemptTrusted)
	next := &m.add("attempt %d of post %d is stored as event %d", attempt+1, p, m.from.stored).state
	next.posts[p].flying.put(attempt, false)
	next.store(p, doubt)
}

func (m *stepper) isStored(p int) bool {
	return slices.ContainsFunc(m.from.events[:m.from.stored], func(e event) bool { return int(e.post) == p })
}

// users are the user who deletes or changes Incidents and events, and whoever limits the quota or frees it.
func (m *stepper) users() {
	for u := range int(m.from.stored) {
		if e := &m.from.events[u]; m.from.left.removals > 0 && e.alive {
			next := &m.addFault("a user deletes event %d", u).state
			next.left.removals--
			next.removed.put(int(e.post), true)
			next.remove(u)
		}
	}
	for k := range maxIncidents {
		incident := &m.from.incidents[k]
		if m.from.left.deletions > 0 && incident.exists && !incident.deleting {
			next := &m.addFault("a user deletes Incident %d", k).state
			next.left.deletions--
			next.incidents[k].deleting = true
			next.incidents[k].version++
		}
		if m.from.left.touches > 0 && incident.exists {
			next := &m.addFault("a user labels Incident %d", k).state
			next.left.touches--
			next.incidents[k].version++
		}
		if incident.deleting {
			next := &m.add("Incident %d has no finalizer left and is gone", k).state
			next.forgive(k)
			next.end(k)
		}
		if m.from.left.refusals > 0 && !m.from.refused.has(k) {
			next := &m.addFault("the API server refuses Incident %d from now on", k).state
			next.left.refusals--
			next.refused.put(k, true)
		}
		if m.from.refused.has(k) {
			added := m.add("the API server no longer refuses Incident %d", k)
			added.heals = true
			added.state.refused.put(k, false)
		}
	}
}

// forgive permits to count again what a user deleted, unless an AlertEvent is gone or says that it was counted.
func (s *state) forgive(incident int) {
	for u := range int(s.stored) {
		e := &s.events[u]
		if e.alive && !e.linger && !e.marked.has(incident) && s.incidents[incident].counted.has(int(e.post)) {
			s.ghost[incident].forgiven.put(int(e.post), true)
			s.incidents[incident].counted.put(int(e.post), false)
		}
	}
}

// end deletes an Incident. Its absence has a version, too.
func (s *state) end(k int) {
	s.ghost[k].ended = s.ghost[k].ended || s.incidents[k].status
	s.ghost[k].past |= s.incidents[k].counted
	s.incidents[k] = incident{version: s.incidents[k].version + 1}
}

// faults ends a process, its term or its watch.
func (m *stepper) faults(p int) {
	process := &m.from.processes[p]
	if m.from.left.crashes > 0 {
		next := &m.addFault("process %d: ends, and another one starts in its place", p).state
		next.left.crashes--
		next.processes[p] = m.restarted(next)
		if m.gap {
			next := &m.addFault("process %d: its watch of AlertEvents has a gap, and lists anew", p).state
			next.left.crashes--
			m.relists(next, p)
		}
	}
	if m.from.left.terms > 0 && (process.at != idle || process.settled != [maxIncidents]set{}) {
		next := &m.addFault("process %d: its term ends, and it leads again", p).state
		next.left.terms--
		m.endTerm(&next.processes[p])
	}
}

func (m *stepper) restarted(s *state) process {
	fresh := process{seen: s.logged}
	if m.retries() {
		fresh.since = s.logged
	}
	if m.relist {
		fresh.hidden = s.alive()
	}
	if m.lag {
		fresh.cache = s.incidents
	}
	return fresh
}

func (m *stepper) relists(s *state, p int) {
	relisted := &s.processes[p]
	known := s.shows(relisted)
	relisted.seen = s.logged
	if m.retries() {
		relisted.since = s.logged
	}
	if m.relist {
		relisted.hidden = s.alive().without(known)
	}
	for k := range relisted.settled {
		relisted.settled[k] &= s.alive()
	}
}

func (m *stepper) endTerm(p *process) {
	m.finish(p)
	p.settled = [maxIncidents]set{}
	if m.breaks(protocol.MemoryOfOneTerm) {
		p.since = p.seen
	}
}
