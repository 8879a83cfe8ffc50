package main

import "github.com/tocsin-dev/tocsin/hack/lib/protocol"

// kind is what a post says to an Incident.
type kind byte

const (
	nothing kind = iota
	firing
	resolve
)

// message is one post: an alert for each Incident, or nothing.
type message struct {
	alerts   [maxIncidents]kind
	keyed    bool // with an idempotency key
	attempts int8 // to store it: the retries are marked
	lost     bool // the first attempt never reaches the API server
}

func (m *message) concerns() set {
	var all set
	for k, alert := range m.alerts {
		all.put(k, alert != nothing)
	}
	return all
}

// scope is one bounded configuration of the model.
type scope struct {
	name      string
	messages  []message // posted one after the other: each is sent when the one before is stored
	processes int
	capacity  int  // of a ledger
	opened    set  // Incidents that are open at the start
	refused   set  // Incidents that the API server refuses at first
	limit     int  // of Incidents, 0 for none: Resolved ones are then deleted to make room
	bare      set  // posts whose content it refuses: the status is written without
	lag       bool // caches show Incidents late, and the answer to a write of a status may be lost
	relist    bool // a cache that starts shows the events that exist in any order
	gap       bool // a watch may have a gap, which costs the memory of names: counts as a crash
	patience  bool // events are marked that are settled in part, though nothing needs the mark
	left      left
	broken    protocol.Rule
}

func (c *scope) breaks(rule protocol.Rule) bool { return c.broken&rule != 0 }

// concerns are the events that have an alert of an Incident.
func (c *scope) concerns(s *state, events set, incident int) set {
	for u := range int(s.stored) {
		if c.messages[s.events[u].post].alerts[incident] == nothing {
			events.put(u, false)
		}
	}
	return events
}

func (c *scope) retries() bool {
	for i := range c.messages {
		if c.messages[i].attempts > 1 {
			return true
		}
	}
	return false
}

func (c *scope) start() state {
	s := state{refused: c.refused, left: c.left}
	for k := range maxIncidents {
		if c.opened.has(k) {
			s.incidents[k] = incident{exists: true, status: true, open: true, version: 1}
		}
	}
	return s
}
