package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

type result struct {
	states int
	wrong  string   // the invariant that is broken, empty if none
	trace  []string // the shortest steps that break it, one a line
}

// exploration is a breadth-first search through all states of a scope.
type exploration struct {
	*scope
	ids     map[state]int32
	states  []state
	parents []int32
	// The states that follow each one without another fault, healing ones in a list of their own.
	next, heals edges
}

// edges has the successors of each state, one after the other.
type edges struct{ targets, ends []int32 }

func (e *edges) of(id int) []int32 {
	begin := int32(0)
	if id > 0 {
		begin = e.ends[id-1]
	}
	return e.targets[begin:e.ends[id]]
}

var errTooMany = errors.New("too many states")

// explore visits every state that can be reached, and then checks what can be reached from each of them. It gives up when
// there are more states than most.
func (c *scope) explore(most int) (result, error) {
	x := &exploration{scope: c, ids: map[state]int32{}}
	x.visit(c.canonical(c.start()), -1)
	var steps []step
	for len(x.next.ends) < len(x.states) {
		id := len(x.next.ends)
		if len(x.states) > most {
			return result{states: len(x.states)}, errTooMany
		}
		steps = c.stepsFrom(&x.states[id], false, steps)
		for i := range steps {
			s := &steps[i]
			s.state = c.canonical(s.state)
			to, isNew := x.visit(s.state, int32(id))
			wrong := s.wrong
			if wrong == "" && isNew {
				wrong = c.check(&s.state)
			}
			if wrong != "" {
				return x.violated(id, &s.state, wrong), nil
			}
			switch {
			case s.fault:
			case s.heals:
				x.heals.targets = append(x.heals.targets, to)
			default:
				x.next.targets = append(x.next.targets, to)
			}
		}
		x.next.ends = append(x.next.ends, int32(len(x.next.targets)))
		x.heals.ends = append(x.heals.ends, int32(len(x.heals.targets)))
	}
	return x.checkLiveness(), nil
}

func (x *exploration) visit(s state, parent int32) (id int32, isNew bool) {
	if id, ok := x.ids[s]; ok {
		return id, false
	}
	id = int32(len(x.states))
	x.ids[s] = id
	x.states = append(x.states, s)
	x.parents = append(x.parents, parent)
	return id, true
}

// checkLiveness checks that from every state one can be reached in which no event is left, and one in which the
// Incidents that the API server does not refuse have all their alerts while it still refuses the others.
func (x *exploration) checkLiveness() result {
	wrong := "every event is released in the end"
	stuck := x.unable((*state).isEmpty, &x.next, &x.heals)
	if stuck < 0 && (x.refused != 0 || x.left.refusals > 0) {
		wrong = "no other Incident waits for one that is refused"
		stuck = x.unable(x.isServed, &x.next)
	}
	if stuck < 0 {
		return result{states: len(x.states)}
	}
	trace, _ := x.trace(stuck)
	return result{len(x.states), wrong, trace}
}

// isServed reports whether all alerts of the Incidents that are not refused were counted or settled.
func (x *exploration) isServed(s *state) bool {
	for u := range int(s.stored) {
		post := int(s.events[u].post)
		for k, alert := range x.messages[post].alerts {
			if alert != nothing && !s.refused.has(k) && !(s.done(k) | s.removed).has(post) {
				return false
			}
		}
	}
	return true
}

// unable returns the first state from which no goal can be reached, -1 if there is none. Most steps lead to states that were
// found later, so few rounds from the last one to the first suffice.
func (x *exploration) unable(goal func(*state) bool, along ...*edges) int {
	able := make([]bool, len(x.states))
	for id := range x.states {
		able[id] = goal(&x.states[id])
	}
	isAble := func(to int32) bool { return able[to] }
	for changed := true; changed; {
		changed = false
		for id := range slices.Backward(able) {
			for _, e := range along {
				if !able[id] && slices.ContainsFunc(e.of(id), isAble) {
					able[id], changed = true, true
				}
			}
		}
	}
	return slices.Index(able, false)
}

// trace returns the names of the steps that lead to a state. It takes them again from the start, because a state of the
// search does not tell which of the two processes was which.
func (x *exploration) trace(id int) ([]string, state) {
	if id == 0 {
		return nil, x.start()
	}
	names, from := x.trace(int(x.parents[id]))
	name, to := x.describe(&from, &x.states[id], "")
	return append(names, name), to
}

// describe returns the name of the step to a state, and the state before it is made canonical.
func (x *exploration) describe(from, to *state, wrong string) (string, state) {
	for _, s := range x.stepsFrom(from, true, nil) {
		if x.canonical(s.state) == *to && (wrong == "" || s.wrong == wrong || x.check(to) == wrong) {
			return s.name, s.state
		}
	}
	return "an unknown step", *to
}

// violated is the result of a step that leads from one state to another and breaks an invariant.
func (x *exploration) violated(from int, to *state, wrong string) result {
	names, last := x.trace(from)
	name, _ := x.describe(&last, to, wrong)
	return result{len(x.states), wrong, append(names, name)}
}

// canonical returns one state for all those that differ in nothing that matters. It drops what every process has seen of
// the log, unless the memory of names may need it. It exchanges the processes if the second one precedes the first:
// they are alike at the start, so states that differ only in that lead to states that differ only in that.
func (c *scope) canonical(s state) state {
	if !c.retries() {
		s.trim(c.processes)
	}
	if c.processes < 2 {
		return s
	}
	first, second := s.processes[0].encode(), s.processes[1].encode()
	if bytes.Compare(second[:], first[:]) < 0 {
		s.processes[0], s.processes[1] = s.processes[1], s.processes[0]
	}
	return s
}

// encode makes processes comparable.
func (p *process) encode() [8 + 7*maxIncidents]byte {
	var code [8 + 7*maxIncidents]byte
	copy(code[:], []byte{
		byte(p.seen), byte(p.since), byte(p.hidden), byte(p.at), byte(p.target), byte(p.list), byte(p.view),
	})
	for k := range maxIncidents {
		c := &p.cache[k]
		flags := bit(c.exists) | bit(c.open)<<1 | bit(c.deleting)<<2 | bit(c.status)<<3 | bit(c.bare)<<4
		copy(code[8+7*k:], []byte{
			byte(p.settled[k]), byte(flags), byte(c.version), byte(c.stamp), byte(c.ledger), byte(c.counted),
		})
	}
	return code
}

func (r *result) String() string {
	if r.wrong == "" {
		return fmt.Sprintf("%d states", r.states)
	}
	return fmt.Sprintf("violated after %d states: %s\n  %s", r.states, r.wrong, strings.Join(r.trace, "\n  "))
}
