package oracle

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const generatedName = "01890000-0000-7000-8000-000000000001"

// story is a history and what is to be found in it: the beginning of a finding, or nothing.
type story struct {
	options Options
	tell    func(s *script)
	found   string
}

func tellAll(t *testing.T, stories map[string]story) {
	t.Helper()
	for name, c := range stories {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newScript(c.options)
			c.tell(s)
			found := s.found()
			if c.found == "" {
				g.Expect(found).To(BeEmpty())
				return
			}
			g.Expect(found).To(ContainElement(ContainSubstring(c.found)))
			g.Expect(found[0][:1]).To(Equal(strings.TrimPrefix(c.found, " ")[:1]))
		})
	}
}

// live has one key go through its life cycle, rightly.
func live(s *script) {
	for _, status := range []string{"firing", "acknowledged", "unacknowledged", "resolved", "firing"} {
		name := s.next("event-")
		s.sent(name, an(status, "k", "title", "T "+name))
		s.fold("k", []string{name})
		s.release(name)
		s.tick(time.Minute)
	}
}

func TestExactlyOnce(t *testing.T) {
	tellAll(t, map[string]story{
		"a life cycle is right": {tell: live},
		"one AlertEvent has alerts of two Incidents, and one of them twice": {tell: func(s *script) {
			s.sent("a", an("firing", "k"), an("firing", "l"), an("resolved", "k"))
			s.fold("k", []string{"a"})
			s.fold("l", []string{"a"})
			s.release("a")
		}},
		"it is deleted when one of two Incidents has it": {found: "A: the operator deleted", tell: func(s *script) {
			s.sent("a", an("firing", "k"), an("firing", "l"))
			s.fold("k", []string{"a"})
			s.release("a")
		}},
		"one alert of an AlertEvent is not counted": {found: "A: ", tell: func(s *script) {
			s.sent("a", an("firing", "k"), an("firing", "k"))
			s.fold("k", []string{"a"}, func(status map[string]any) { status["alertCount"] = 1 })
		}},
		"an alert counts twice": {found: "A: ", tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.fold("k", []string{"a"})
			s.release("a")
		}},
		"the ledger drops an AlertEvent that exists": {found: "A: team-a/", tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.prune("k", "a")
			s.release("a")
		}},
		"the ledger drops an AlertEvent that is gone": {tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.release("a")
			s.prune("k", "a")
		}},
		"the ledger drops one that is marked as settled": {tell: func(s *script) {
			s.sent("a", an("firing", "k"), an("firing", "l"))
			s.fold("k", []string{"a"})
			s.mark("a", "7/"+incidentName("k"))
			s.prune("k", "a")
			s.fold("l", []string{"a"})
			s.release("a")
		}},
		"one that is not settled is marked": {found: "A: AlertEvent team-a/a is marked", tell: func(s *script) {
			s.sent("a", an("firing", "k"), an("firing", "l"))
			s.fold("k", []string{"a"})
			s.mark("a", "7/*")
			s.fold("l", []string{"a"})
			s.release("a")
		}},
		"a mark is taken back": {found: "A: the operator took the mark", tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.mark("a", "7/"+incidentName("k"))
			s.mark("a", "")
			s.release("a")
		}},
		"a count goes down": {found: "A: team-a/", tell: func(s *script) {
			live(s)
			s.fold("k", nil, func(status map[string]any) { status["alertCount"] = 1 })
		}},
		"a ledger names an AlertEvent that was never stored": {found: "A: ", tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"}, func(status map[string]any) {
				within(status, "ledger")["events"] = []map[string]string{{"uid": "other", "name": "other"}}
			})
		}},
		"an Incident has too much content": {found: "B: ", tell: func(s *script) {
			s.sent("a", an("firing", "k", "description", strings.Repeat("x", maxIncidentBytes)))
			s.fold("k", []string{"a"})
			s.release("a")
		}},
		"an Incident comes without any alert": {found: "F: ", tell: func(s *script) { s.incident("k") }},
	})
}

func TestOrder(t *testing.T) {
	outOfOrder := func(s *script) {
		s.sent("a", an("firing", "k"))
		s.sent("b", an("firing", "k"))
		s.sent("c", an("firing", "k"))
		s.fold("k", []string{"a", "c"})
		s.fold("k", []string{"b"})
		s.release("a", "b", "c")
	}
	tellAll(t, map[string]story{
		"an AlertEvent is folded after a later one": {tell: outOfOrder, found: "B: "},
		"the cache sees them in that order":         {tell: outOfOrder, options: Options{LooseOrder: true}},
		"a resolve that comes late ends nothing": {options: Options{LooseOrder: true}, found: "B: ", tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.sent("b", an("resolved", "k"))
			s.sent("c", an("firing", "k"))
			s.fold("k", []string{"a", "c"})
			s.fold("k", []string{"b"}, func(status map[string]any) { status["state"] = "Resolved" })
			s.release("a", "b", "c")
		}},
		"an edit of the metadata does not move it": {tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.sent("b", an("resolved", "k"))
			s.events["a"].meta["labels"] = map[string]string{"by": "user"}
			s.commitEvent("a", Commit{ByUser: true})
			s.fold("k", []string{"a", "b"})
			s.release("a", "b")
		}},
		"an edit of the metadata moves it": {found: "B: ", tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.sent("b", an("firing", "k"))
			s.commitEvent("a", Commit{ByUser: true})
			s.fold("k", []string{"b"})
			s.fold("k", []string{"a"})
			s.release("a", "b")
		}},
	})
}

func TestUnmatched(t *testing.T) {
	tellAll(t, map[string]story{
		"a resolve of an unknown key matches nothing": {tell: func(s *script) {
			s.sent("a", an("resolved", "k"))
			s.release("a")
		}},
		"the ledger of a later Incident lists it, and does not count it": {tell: func(s *script) {
			s.sent("a", an("resolved", "k"))
			s.sent("b", an("firing", "k"))
			s.fold("k", []string{"a", "b"})
			s.release("a", "b")
		}},
		"a resolve is dropped behind a firing that waits": {found: "A: the operator deleted", tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.sent("b", an("resolved", "k"))
			s.release("b")
			s.fold("k", []string{"a"})
			s.release("a")
		}},
		"a resolve is dropped after its Incident was deleted": {tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.release("a")
			s.sent("b", an("resolved", "k"))
			s.end(true)
			s.release("b")
		}},
		"an alert is dropped whose key is not that of its Incident": {tell: func(s *script) {
			s.store("a", Commit{ByUser: true}, an("firing", "k", "incidentName", incidentName("l")))
			s.release("a")
		}},
	})
}

func TestReportsOfUsers(t *testing.T) {
	opened := func(s *script) {
		s.sent("a", an("firing", "k"))
		s.fold("k", []string{"a"})
		s.release("a")
	}
	byName := map[string]any{"status": "acknowledged", "incidentName": incidentName("k"), "by": "maria"}
	tellAll(t, map[string]story{
		"a report names its Incident, has no id and is not counted": {tell: func(s *script) {
			opened(s)
			s.store("b", Commit{ByUser: true}, byName)
			s.fold("k", []string{"b"})
			s.release("b")
		}},
		"a report is counted": {found: "A: ", tell: func(s *script) {
			opened(s)
			s.store("b", Commit{ByUser: true}, byName)
			s.fold("k", []string{"b"}, func(status map[string]any) { status["alertCount"] = 2 })
			s.release("b")
		}},
		"a report is not in the digest": {found: "A: ", tell: func(s *script) {
			opened(s)
			digest := within(s.incidents["k"].status, "ledger")["digest"]
			s.store("b", Commit{ByUser: true}, byName)
			s.fold("k", []string{"b"}, func(status map[string]any) { within(status, "ledger")["digest"] = digest })
			s.release("b")
		}},
		"a request for a silence is dropped": {found: "A: the operator deleted", tell: func(s *script) {
			opened(s)
			s.store("b", Commit{ByUser: true}, an("silenced", "k", "silenceFor", "1h"))
			s.release("b")
		}},
		"a report of an Incident that is not there": {tell: func(s *script) {
			s.store("b", Commit{ByUser: true}, byName)
			s.release("b")
		}},
	})
}

func TestSecondCopies(t *testing.T) {
	copied := func(s *script, released bool) {
		s.sent("a", an("firing", "k"))
		s.events["a"].name = "a"
		s.fold("k", []string{"a"})
		if released {
			s.release("a")
		} else {
			s.lose("a")
		}
		s.store("again", Commit{Name: "a"}, s.events["a"].alerts...)
	}
	remembers := func(does bool) Options { return Options{Remembers: func(time.Time) bool { return does }} }
	waits := func(s *script) {
		s.Commit(Commit{
			Resource: "webhookintegrations", Namespace: ns, Name: integration, Created: true,
			Object: encode(map[string]any{"status": map[string]any{"conditions": []map[string]any{{"type": "AlertsFolded", "status": "False"}}}}),
		})
		s.sent("a", an("resolved", "k"))
		s.events["a"].name = "a"
		s.release("a")
		s.sent("b", an("firing", "k"))
		s.store("again", Commit{Name: "a"}, s.events["a"].alerts...)
	}
	counts := func(s *script) {
		copied(s, true)
		s.fold("k", []string{"again"})
		s.release("again")
	}
	tellAll(t, map[string]story{
		"a second copy counts, and no replica remembers the first":                                         {options: remembers(false), tell: counts},
		"a second copy counts, and a replica remembers the first":                                          {options: remembers(true), found: "A: ", tell: counts},
		"a second copy waits with alerts that are to open an Incident, and no replica remembers the first": {options: remembers(false), tell: waits},
		"a second copy waits with alerts that are to open an Incident, and a replica remembers the first":  {options: remembers(true), found: "C: ", tell: waits},
		"a second copy is deleted": {tell: func(s *script) {
			copied(s, true)
			s.release("again")
		}},
		"a second copy counts": {found: "A: ", tell: counts},
		"a second copy stays":  {found: "C: ", tell: func(s *script) { copied(s, true) }},
		"the first copy was folded before a user deleted it": {found: "A: ", tell: func(s *script) {
			copied(s, false)
			s.fold("k", []string{"again"})
			s.release("again")
		}},
		"the first copy was folded and not marked when a user deleted it, and it had an idempotency key": {tell: func(s *script) {
			keyed := Commit{Name: v1alpha1.KeyedEventName(integration, "1"), ByUser: true}
			s.store("a", keyed, an("firing", "k", "id", "1"))
			s.fold("k", []string{"a"})
			s.lose("a")
			s.store("again", keyed, s.events["a"].alerts...)
			s.fold("k", []string{"again"})
			s.lose("again")
		}},
		"a user deleted the first copy before it was folded, and the second one counts": {tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.lose("a")
			s.store("again", Commit{Name: "a"}, s.events["a"].alerts...)
			s.fold("k", []string{"again"})
			s.release("again")
		}},
		"a user deleted the first copy before it was folded, and the second one is deleted": {tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.lose("a")
			s.store("again", Commit{Name: "a"}, s.events["a"].alerts...)
			s.release("again")
		}},
		"a restored AlertEvent is deleted": {tell: func(s *script) {
			s.store("old", Commit{Name: generatedName, ByUser: true, Restored: true}, an("resolved", "k", "id", "old"))
			s.release("old")
		}},
		"a restored AlertEvent counts": {found: "A: ", tell: func(s *script) {
			s.store("old", Commit{Name: generatedName, ByUser: true, Restored: true}, an("firing", "k", "id", "old"))
			s.fold("k", []string{"old"})
			s.release("old")
		}},
	})
}
