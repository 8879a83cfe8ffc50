package oracle

import (
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestLives(t *testing.T) {
	tellAll(t, map[string]story{
		"an Incident that a user deleted is opened anew": {tell: func(s *script) {
			live(s)
			s.end(true)
			live(s)
		}},
		"an alert that was not folded before the deletion opens it anew": {tell: func(s *script) {
			live(s)
			s.sent("late", an("firing", "k"))
			s.end(true)
			s.fold("k", []string{"late"})
			s.release("late")
		}},
		"a user deletes the only ledger that tells of a fold, and it is repeated": {tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.end(true)
			s.fold("k", []string{"a"})
			s.release("a")
		}},
		"it is repeated while a finalizer holds the AlertEvent, which a user deleted": {tell: func(s *script) {
			heldBy(s, Commit{ByUser: true})
			s.fold("k", []string{"a"})
		}},
		"it is repeated while a finalizer holds the AlertEvent, which the operator deleted": {found: "A: ", tell: func(s *script) {
			heldBy(s, Commit{})
			s.fold("k", []string{"a"})
		}},
		"it is repeated though a mark tells of the fold": {found: "A: ", tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.mark("a", "1/*")
			s.end(true)
			s.fold("k", []string{"a"})
			s.release("a")
		}},
		"it is repeated though the operator deleted the ledger": {found: "A: ", tell: func(s *script) {
			s.sent("a", an("firing", "k"), an("resolved", "k"))
			s.fold("k", []string{"a"})
			s.end(false)
			s.fold("k", []string{"a"})
			s.release("a")
		}},
		"the ledger of the next life lists it, and does not count it": {tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.end(true)
			s.sent("b", an("firing", "k"))
			s.incident("k").ledger = []map[string]string{{"uid": s.events["a"].uid, "name": "a"}}
			s.fold("k", []string{"b"})
			s.release("a", "b")
		}},
		"a user restores an Incident with the ledger of another cluster": {tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.incidents["k"] = &scriptIncident{uid: "restored", meta: map[string]any{}, model: &modelIncident{}}
			m := s.incidents["k"].model
			m.begin(told{alert: an("firing", "k"), received: start, integration: integration}, "Opened")
			m.count, m.episodeCount, m.heard = 3, 3, start
			s.incidents["k"].status = m.status([]map[string]string{{"uid": "foreign", "name": "foreign"}})
			s.commitIncident("k", Commit{Created: true, ByUser: true})
			s.fold("k", []string{"a"})
			s.release("a")
		}},
		"the operator deletes an Open Incident": {found: "B: ", tell: func(s *script) {
			live(s)
			s.end(false)
		}},
		"the operator deletes a Resolved Incident": {tell: func(s *script) {
			live(s)
			s.sent("z", an("resolved", "k"))
			s.fold("k", []string{"z"})
			s.release("z")
			s.end(false)
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

// heldBy has an AlertEvent folded, deleted and held by a finalizer, and a user delete the Incident.
func heldBy(s *script, deletion Commit) {
	s.sent("a", an("firing", "k"))
	s.fold("k", []string{"a"})
	s.events["a"].meta["deletionTimestamp"] = stamp(s.now)
	s.commitEvent("a", deletion)
	s.end(true)
}

func TestLiveness(t *testing.T) {
	waits := func(status string, condition string) func(s *script) {
		return func(s *script) {
			conditions := []map[string]any{{"type": condition, "status": status}}
			s.Commit(Commit{
				Resource: "webhookintegrations", Namespace: ns, Name: integration, Created: true,
				Object: encode(map[string]any{"status": map[string]any{"conditions": conditions}}),
			})
			s.sent("a", an("firing", "k"))
		}
	}
	options := Options{HealTime: time.Minute, KeyedLinger: 10 * time.Minute}
	free := options
	free.MayWait = func(string, string) bool { return false }
	keyed := v1alpha1.KeyedEventName(integration, "a")
	settled := func(s *script) {
		s.store("a", Commit{Name: keyed, ByUser: true}, an("firing", "k"))
		s.fold("k", []string{"a"})
	}
	released := func(after time.Duration) func(s *script) {
		return func(s *script) {
			settled(s)
			s.tick(after)
			s.release("a")
		}
	}
	again := func(s *script) {
		s.store("a", Commit{Name: keyed, ByUser: true}, an("firing", "k", "id", "1"))
		s.fold("k", []string{"a"})
		s.mark("a", "1/*")
		s.tick(10 * time.Minute)
		s.release("a")
		s.store("b", Commit{Name: keyed, ByUser: true}, an("firing", "k", "id", "1"))
	}
	stays, prompt := options, Options{FoldTime: 10 * time.Second}
	stays.MayStay = func(string) bool { return true }
	prompt.MayWait = free.MayWait
	prompt.Undisturbed = func(string, time.Time, time.Time) bool { return true }
	disturbed := prompt
	disturbed.Undisturbed = func(string, time.Time, time.Time) bool { return false }
	foldedAfter := func(d time.Duration) func(s *script) {
		return func(s *script) {
			s.sent("a", an("firing", "k"))
			s.tick(d)
			s.fold("k", []string{"a"})
			s.release("a")
		}
	}
	tellAll(t, map[string]story{
		"it is folded late, and nothing was in the way":   {options: prompt, found: "E: ", tell: foldedAfter(20 * time.Second)},
		"it is not folded, and nothing was in the way":    {options: prompt, found: "E: ", tell: waits("False", "AlertsFolded")},
		"it is folded late, and something was in the way": {options: disturbed, tell: foldedAfter(20 * time.Second)},
		"it is folded soon":                               {options: prompt, tell: foldedAfter(time.Second)},
		"it is folded, and may stay where nothing can be deleted": {options: stays, tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
		}},
		"it waits, and nothing shows why":                                        {options: options, found: "E: ", tell: waits("True", "AlertsFolded")},
		"it waits, and AlertsFolded shows why":                                   {options: options, tell: waits("False", "AlertsFolded")},
		"it waits, and Ready is False":                                           {options: options, found: "E: ", tell: waits("False", "Ready")},
		"it waits for an Incident that nothing keeps from being written":         {options: free, found: "E: ", tell: waits("False", "AlertsFolded")},
		"it stays for its idempotency key, and no mark tells that it is settled": {options: options, found: "C: ", tell: settled},
		"it stays for its idempotency key, marked": {options: options, tell: func(s *script) {
			settled(s)
			s.mark("a", "1/*")
		}},
		"it stays in the place of another, which a user deleted": {options: options, tell: func(s *script) {
			s.store("a", Commit{Name: keyed, ByUser: true}, an("firing", "k", "id", "1"))
			s.lose("a")
			s.store("b", Commit{Name: keyed, ByUser: true}, an("firing", "k", "id", "1"))
			s.fold("k", []string{"b"})
			s.mark("b", "1/*")
		}},
		"it stood in the place of another, which a user deleted": {options: options, tell: func(s *script) {
			s.store("a", Commit{Name: keyed, ByUser: true}, an("firing", "k", "id", "1"))
			s.lose("a")
			s.store("b", Commit{Name: keyed, ByUser: true}, an("firing", "k", "id", "1"))
			s.fold("k", []string{"b"})
			s.mark("b", "1/*")
			s.release("b")
		}},
		"it is deleted before its key may go": {options: options, found: "C: ", tell: released(time.Minute)},
		"it is deleted when its key may go":   {options: options, tell: released(10 * time.Minute)},
		"its key comes again when it may, and counts": {options: options, tell: func(s *script) {
			again(s)
			s.fold("k", []string{"b"})
			s.mark("b", "1/*")
		}},
		"its key comes again when it may, soon after the first was restored and discarded": {options: options, tell: func(s *script) {
			s.store("a", Commit{Name: keyed, ByUser: true}, an("firing", "k", "id", "1"))
			s.fold("k", []string{"a"})
			s.mark("a", "1/*")
			s.tick(10 * time.Minute)
			s.release("a")
			s.store("restored", Commit{Name: keyed, ByUser: true, Restored: true}, an("firing", "k", "id", "1"))
			s.release("restored")
			s.store("b", Commit{Name: keyed, ByUser: true}, an("firing", "k", "id", "1"))
			s.fold("k", []string{"b"})
			s.mark("b", "1/*")
		}},
		"its key comes again when it may, and is taken for a second copy": {options: options, found: "A: ", tell: func(s *script) {
			again(s)
			s.release("b")
		}},
		"it stays longer than for its key": {options: options, found: "C: ", tell: func(s *script) {
			settled(s)
			s.tick(11 * time.Minute)
		}},
		"it stays, and a finalizer is the reason": {options: options, tell: func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.events["a"].meta["deletionTimestamp"] = stamp(s.now)
			s.commitEvent("a", Commit{})
		}},
	})
}
