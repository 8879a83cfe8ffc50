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
			s.mark("a", "7/"+incidentName("k"), Commit{})
			s.prune("k", "a")
			s.fold("l", []string{"a"})
			s.release("a")
		}},
		"one that is not settled is marked": {found: "A: AlertEvent team-a/a is marked", tell: func(s *script) {
			s.sent("a", an("firing", "k"), an("firing", "l"))
			s.fold("k", []string{"a"})
			s.mark("a", "7/*", Commit{})
			s.fold("l", []string{"a"})
			s.release("a")
		}},
		"a mark is taken back": {found: "A: the operator took the mark", tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.mark("a", "7/"+incidentName("k"), Commit{})
			s.mark("a", "", Commit{})
			s.release("a")
		}},
		"a count goes down": {found: "A: team-a/", tell: func(s *script) {
			live(s)
			s.fold("k", nil, func(status map[string]any) { status["alertCount"] = 1 })
		}},
		"a ledger names an AlertEvent that was never stored": {found: "A: ", tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"}, func(status map[string]any) {
				status["ledger"].(map[string]any)["events"] = []map[string]string{{"uid": "other"}} //nolint:forcetypeassert // the script's
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
			s.end("k", true)
			s.release("b")
		}},
		"an alert is dropped whose key is not that of its Incident": {tell: func(s *script) {
			s.store("a", Commit{ByUser: true}, an("firing", "k", "incidentName", incidentName("l")))
			s.release("a")
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
	tellAll(t, map[string]story{
		"a second copy is deleted": {tell: func(s *script) {
			copied(s, true)
			s.release("again")
		}},
		"a second copy counts": {found: "A: ", tell: func(s *script) {
			copied(s, true)
			s.fold("k", []string{"again"})
			s.release("again")
		}},
		"a second copy stays": {found: "C: ", tell: func(s *script) { copied(s, true) }},
		"the first copy was folded before a user deleted it": {found: "A: ", tell: func(s *script) {
			copied(s, false)
			s.fold("k", []string{"again"})
			s.release("again")
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

func TestLives(t *testing.T) {
	tellAll(t, map[string]story{
		"an Incident that a user deleted is opened anew": {tell: func(s *script) {
			live(s)
			s.end("k", true)
			live(s)
		}},
		"an alert that was not folded before the deletion opens it anew": {tell: func(s *script) {
			live(s)
			s.sent("late", an("firing", "k"))
			s.end("k", true)
			s.fold("k", []string{"late"})
			s.release("late")
		}},
		"an alert counts in two lives": {found: "A: ", tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.end("k", true)
			s.fold("k", []string{"a"})
			s.release("a")
		}},
		"the ledger of the next life lists it, and does not count it": {tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.end("k", true)
			s.sent("b", an("firing", "k"))
			s.incident("k").ledger = []map[string]string{{"uid": s.events["a"].uid, "name": "a"}}
			s.fold("k", []string{"b"})
			s.release("a", "b")
		}},
		"the operator deletes an Open Incident": {found: "B: ", tell: func(s *script) {
			live(s)
			s.end("k", false)
		}},
		"the operator deletes a Resolved Incident": {tell: func(s *script) {
			live(s)
			s.sent("z", an("resolved", "k"))
			s.fold("k", []string{"z"})
			s.release("z")
			s.end("k", false)
		}},
		"an alert is folded into an Incident that is being deleted": {found: "B: ", tell: func(s *script) {
			live(s)
			s.incidents["k"].meta["deletionTimestamp"] = stamp(s.now)
			s.commitIncident("k", Commit{ByUser: true})
			s.sent("z", an("firing", "k"))
			s.fold("k", []string{"z"})
			s.release("z")
		}},
		"a user deletes an AlertEvent before it is folded": {tell: func(s *script) {
			live(s)
			s.sent("z", an("resolved", "k"))
			s.lose("z")
			s.sent("y", an("firing", "k"))
			s.fold("k", []string{"y"})
			s.release("y")
		}},
		"a user deletes it, and it is folded all the same": {tell: func(s *script) {
			live(s)
			s.sent("z", an("resolved", "k"))
			s.lose("z")
			s.fold("k", []string{"z"})
		}},
	})
}

func TestLiveness(t *testing.T) {
	waits := func(status string, condition string) func(s *script) {
		return func(s *script) {
			s.Commit(Commit{Resource: "webhookintegrations", Namespace: ns, Name: integration, Created: true, Object: encode(map[string]any{
				"status": map[string]any{"conditions": []map[string]any{{"type": condition, "status": status}}},
			})})
			s.sent("a", an("firing", "k"))
		}
	}
	options := Options{HealTime: time.Minute, KeyedLinger: 10 * time.Minute}
	keyed := v1alpha1.KeyedEventName(integration, "a")
	settled := func(s *script) {
		s.store("a", Commit{Name: keyed, ByUser: true}, an("firing", "k"))
		s.fold("k", []string{"a"})
	}
	tellAll(t, map[string]story{
		"it waits, and nothing shows why":      {options: options, found: "E: ", tell: waits("True", "AlertsFolded")},
		"it waits, and AlertsFolded shows why": {options: options, tell: waits("False", "AlertsFolded")},
		"it waits, and Ready shows why":        {options: options, tell: waits("False", "Ready")},
		"it stays for its idempotency key":     {options: options, tell: settled},
		"it is deleted before its key may go":  {options: options, found: "C: ", tell: func(s *script) { settled(s); s.tick(time.Minute); s.release("a") }},
		"it is deleted when its key may go":    {options: options, tell: func(s *script) { settled(s); s.tick(10 * time.Minute); s.release("a") }},
		"it stays longer than for its key":     {options: options, found: "C: ", tell: func(s *script) { settled(s); s.tick(11 * time.Minute) }},
		"it stays, and a finalizer is the reason": {options: options, tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.events["a"].meta["deletionTimestamp"] = stamp(s.now)
			s.commitEvent("a", Commit{})
		}},
	})
}
