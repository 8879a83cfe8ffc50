package main

import (
	"math/bits"

	"github.com/tocsin-dev/tocsin/hack/lib/protocol"
)

// The bounds of every scope: they give state its fixed size.
const (
	maxProcesses = 2
	maxIncidents = 2
	maxPosts     = 4
	maxEvents    = 6
	maxLog       = 2 * maxEvents
)

// set is a set of events, by their UIDs, or of posts: bit n stands for number n.
type set uint8

func one(n int) set                  { return 1 << n }
func (s set) has(n int) bool         { return s>>n&1 == 1 }
func (s set) len() int               { return bits.OnesCount8(uint8(s)) }
func (s set) newest() int            { return bits.Len8(uint8(s)) - 1 }
func (s set) wide() protocol.Set     { return protocol.SetOf(uint64(s)) }
func (s set) String() string         { return s.wide().String() }
func narrow(s protocol.Set) set      { return set(s.Bits()) }
func (s set) without(other set) set  { return s &^ other }
func (s set) contains(all set) bool  { return all&^s == 0 }
func (s *set) put(n int, value bool) { *s = *s&^one(n) | bit(value)<<n }

func bit(value bool) set {
	if value {
		return 1
	}
	return 0
}

// state is everything that a step can depend on, and what the invariants have to remember. It is comparable.
type state struct {
	events    [maxEvents]event
	stored    int8         // how many events were ever stored; an event's index is its UID and its place in commit order
	base      set          // events that existed before the log
	log       [maxLog]int8 // what watches deliver: u+1 when event u was stored, -(u+1) when it was deleted
	logged    int8
	incidents [maxIncidents]incident
	processes [maxProcesses]process
	posts     [maxPosts]post
	refused   set  // Incidents that the API server refuses to create or to write
	removed   set  // posts whose events a user deleted
	left      left // faults that may still come
	ghost     [maxIncidents]ghost
}

// event is an AlertEvent. Its name is the number of its post.
type event struct {
	post   int8
	alive  bool
	doubt  bool // marked as a retry, or stored long after its alerts were received
	linger bool // keyed, settled, and kept for its key
	marked set  // Incidents for which it is marked as settled
}

// incident is an Incident. All versions of one name are numbered through, over deletions.
type incident struct {
	exists, open, deleting bool
	status                 bool // the first status is written
	bare                   bool // the status was written without content
	version                int8
	stamp                  int8 // newest event that is folded, plus one
	ledger                 set  // events
	counted                set  // posts
}

// known is what the protocol goes by.
func (i *incident) known() protocol.Incident {
	return protocol.Incident{
		Exists: i.exists, Status: i.status, Open: i.open, Deleting: i.deleting, Version: int64(i.version), Ledger: i.ledger.wide(),
	}
}

// process is a replica. Each may lead at any time, also several at once: nothing depends on the lease.
type process struct {
	seen    int8 // entries of the log that its cache shows
	since   int8 // the entry of the log from which on it remembers deletions
	hidden  set  // events of its last list that its cache does not show yet
	at      phase
	target  int8 // the Incident that it folds
	list    set  // events that are listed for the target
	view    set  // those of them that the cache showed when it decided
	settled [maxIncidents]set
	cache   [maxIncidents]incident
}

type phase int8

const (
	idle    phase = iota
	read          // the Incident
	decided       // listed, and decided by the list and the cache
	created       // created the Incident, whose status it is to write
)

// post is what one sender posts, stored as one AlertEvent.
type post struct {
	sent   int8
	flying set  // attempts that the API server has not processed: 0 is the first one, others are retries
	sentAt int8 // entries in the log when the first attempt was sent
}

// left is how many more faults, or steps that nothing calls for, may come of each kind.
type left struct {
	crashes, terms, refusals, deletions, evictions int8
	removals                                       int8 // events that users delete
	touches                                        int8 // changes of an Incident's metadata by users
	hasty                                          int8 // Incidents that are created because of events that the cache still shows
	rewrites                                       int8 // statuses that are written for what the time changes
}

// ghost is what happened to the alerts of an Incident's name, by their posts. The steps depend on no more of it than that
// an Incident was deleted.
type ghost struct {
	past      set  // counted in an Incident that was evicted, or deleted by a user
	forgiven  set  // a user deleted the Incident while their AlertEvent was neither gone nor marked: they may count again
	unmatched set  // settled as matching no Incident
	ended     bool // an Incident of the name was deleted
}

func (s *state) alive() set {
	var all set
	for u := range int(s.stored) {
		all.put(u, s.events[u].alive)
	}
	return all
}

// existing are the events that are not marked for an Incident.
func (s *state) existing(incident int) set {
	all := s.alive()
	for u := range int(s.stored) {
		if s.events[u].marked.has(incident) {
			all.put(u, false)
		}
	}
	return all
}

// isEmpty reports whether an Incident was created, and nothing was written to it.
func (i *incident) isEmpty() bool { return i.exists && !i.status }

func (s *state) incidentCount() int {
	count := 0
	for k := range s.incidents {
		if s.incidents[k].exists {
			count++
		}
	}
	return count
}

func (s *state) append(entry int8) {
	s.log[s.logged] = entry
	s.logged++
}

func (s *state) store(post int, doubt bool) {
	s.events[s.stored] = event{post: int8(post), alive: true, doubt: doubt}
	s.stored++
	s.append(s.stored)
}

func (s *state) remove(u int) {
	s.events[u].alive = false
	s.append(-int8(u) - 1)
}

// shows are the events in a process's cache.
func (s *state) shows(p *process) set {
	all := s.base
	for _, entry := range s.log[:p.seen] {
		if entry > 0 {
			all.put(int(entry)-1, true)
		} else {
			all.put(int(-entry)-1, false)
		}
	}
	return all.without(p.hidden)
}

// isDeletedBetween reports whether an event of the same name as u was deleted in a part of the log.
func (s *state) isDeletedBetween(u int, from, to int8) bool {
	for i := from; i < to; i++ {
		entry := s.log[i]
		if entry < 0 && int(-entry)-1 != u && s.events[-entry-1].post == s.events[u].post {
			return true
		}
	}
	return false
}

// trim drops the part of the log that every process has seen.
func (s *state) trim(processes int) {
	seen := s.logged
	for p := range processes {
		seen = min(seen, s.processes[p].seen)
	}
	s.base = s.shows(&process{seen: seen})
	var rest [maxLog]int8
	copy(rest[:], s.log[seen:s.logged])
	s.log = rest
	s.logged -= seen
	for p := range processes {
		s.processes[p].seen -= seen
	}
}

// deliver shows a process's cache the entries of the log up to one.
func (s *state) deliver(p *process, to int8) {
	for ; p.seen < to; p.seen++ {
		if entry := s.log[p.seen]; entry < 0 {
			p.forget(int(-entry) - 1)
		}
	}
}

// forget drops what a process knew of an event that is gone.
func (p *process) forget(u int) {
	for k := range p.settled {
		p.settled[k].put(u, false)
	}
}
