package main

// check returns the invariant that a state breaks, empty if none.
func (c *scope) check(s *state) string {
	for k := range maxIncidents {
		var existing, stored set
		for u := range int(s.stored) {
			e := &s.events[u]
			if c.messages[e.post].alerts[k] == nothing {
				continue
			}
			stored.put(int(e.post), true)
			if e.alive && !e.marked.has(k) {
				existing.put(int(e.post), true)
			}
		}
		if stored&^(existing|s.done(k)|s.removed) != 0 {
			return "nothing is lost"
		}
	}
	if s.isEmpty() {
		return c.checkFinal(s)
	}
	return ""
}

// isEmpty reports whether nothing is left to do.
func (s *state) isEmpty() bool {
	for p := range s.posts {
		if s.posts[p].flying != 0 {
			return false
		}
	}
	for k := range s.incidents {
		if s.incidents[k].deleting || s.incidents[k].isEmpty() {
			return false
		}
	}
	return s.alive() == 0
}

// checkFinal compares a state in which nothing is left to do with the replay of the posts in commit order. Incidents
// that were deleted have no such replay, nor those of which a user deleted events.
func (c *scope) checkFinal(s *state) string {
	for k := range maxIncidents {
		if s.ghost[k].ended || s.removed != 0 {
			continue
		}
		var counted, seen set
		status, open := c.opened.has(k), c.opened.has(k)
		for u := range int(s.stored) {
			post := int(s.events[u].post)
			alert := c.messages[post].alerts[k]
			if seen.has(post) || alert == nothing {
				continue
			}
			seen.put(post, true)
			if alert == firing || status {
				status, open = true, alert == firing
				counted.put(post, true)
			}
		}
		// A resolve from before the Incident may be counted when it was found late.
		got := &s.incidents[k]
		settled := got.counted | s.ghost[k].unmatched
		if got.status != status || got.open != open || !got.counted.contains(counted) || !settled.contains(seen) {
			return "the final state equals the replay in commit order"
		}
	}
	return ""
}

func ifWrong(wrong bool, invariant string) string {
	if wrong {
		return invariant
	}
	return ""
}
