package oracle

import (
	"slices"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// post stores an AlertEvent and has its record changed. The alert is folded and released.
func post(change func(record *Record, s *script)) func(s *script) {
	return func(s *script) {
		record := s.sent("a", an("firing", "k"))
		s.fold("k", []string{"a"})
		s.release("a")
		change(record, s)
	}
}

// keyed stores an AlertEvent for a request with an idempotency key, and has its record changed before it is folded.
func keyed(change func(record *Record, s *script)) func(s *script) {
	return func(s *script) {
		alert := an("firing", "k", "id", "first", "labels", map[string]any{SeqLabel: "one"})
		record := &Record{
			Namespace: ns, Integration: integration, IdempotencyKey: "key",
			Alerts:     []Sent{{"one", "k", "firing"}},
			Deliveries: []Delivery{{Outcome: Acknowledged, IDs: []string{"first"}}},
		}
		s.records = append(s.records, record)
		s.store("a", Commit{Name: v1alpha1.KeyedEventName(integration, "key")}, alert)
		s.fold("k", []string{"a"})
		s.mark("a", "1/*")
		change(record, s)
	}
}

// storeAgain stores the alert of keyed once more, with another id.
func storeAgain(s *script) {
	s.store("b", Commit{Name: s.events["a"].name}, an("firing", "k", "id", "second", "labels", map[string]any{SeqLabel: "one"}))
	s.fold("k", []string{"b"})
	s.mark("b", "2/*")
}

func TestAnswers(t *testing.T) {
	tellAll(t, map[string]story{
		"an acknowledged alert is not stored": {found: "A: ", tell: post(func(_ *Record, s *script) {
			s.records = append(s.records, &Record{
				Namespace: ns, Integration: integration,
				Alerts: []Sent{{"lost", "k", "firing"}}, Deliveries: []Delivery{{Outcome: Acknowledged}},
			})
		})},
		"it was acknowledged and lost with the old etcd": {
			options: Options{LostFrom: start, LostUntil: start.Add(time.Hour)},
			tell: func(s *script) {
				s.records = append(s.records, &Record{
					Namespace: ns, Integration: integration, Alerts: []Sent{{"lost", "k", "firing"}},
					Deliveries: []Delivery{{Outcome: Acknowledged, Began: start.Add(time.Minute), Ended: start.Add(2 * time.Minute)}},
				})
			},
		},
		"a refused alert is stored": {found: "D: ", tell: post(func(record *Record, _ *script) {
			record.Deliveries[0] = Delivery{Outcome: Refused}
		})},
		"an alert of an unknown outcome is stored": {tell: post(func(record *Record, _ *script) {
			record.Deliveries[0] = Delivery{Outcome: Unknown}
		})},
		"one alert of two is stored": {found: "A: ", tell: post(func(record *Record, _ *script) {
			record.Alerts = append(record.Alerts, Sent{"other", "k", "firing"})
			record.Deliveries[0].IDs = nil
		})},
		"the answer has another id": {found: "A: ", tell: post(func(record *Record, _ *script) {
			record.Deliveries[0].IDs = []string{"other"}
		})},
		"an alert is stored with another status": {found: "A: ", tell: post(func(record *Record, _ *script) {
			record.Alerts[0].Status = "resolved"
		})},
		"an alert is stored in another namespace": {found: "F: ", tell: post(func(record *Record, _ *script) {
			record.Namespace = "team-b"
		})},
		"an alert was sent by nobody": {found: "F: ", tell: post(func(_ *Record, s *script) { s.records = nil })},
		"an alert is stored twice": {found: "A: ", tell: post(func(_ *Record, s *script) {
			labels := s.events["a"].alerts[0]["labels"]
			s.store("b", Commit{}, an("firing", "k", "id", "second", "labels", labels))
			s.fold("k", []string{"b"})
			s.release("b")
		})},
	})
}

func TestPartialAnswers(t *testing.T) {
	partial := func(notStored int) func(s *script) {
		return post(func(record *Record, _ *script) {
			record.Alerts = append(record.Alerts, Sent{"new", "l", "firing"})
			record.Deliveries[0] = Delivery{Outcome: Partial, NotStored: notStored}
		})
	}
	tellAll(t, map[string]story{
		"as many are stored as the answer says": {tell: partial(1)},
		"the answer says that fewer are":        {tell: partial(2), found: "A: "},
		"the answer does not say how many":      {tell: partial(0)},
	})
}

func TestIdempotencyKeys(t *testing.T) {
	again := func(outcome Outcome, ids ...string) func(record *Record, s *script) {
		return func(record *Record, _ *script) {
			record.Deliveries = append(record.Deliveries, Delivery{Outcome: outcome, IDs: ids})
		}
	}
	other := func(outcome Outcome, ids ...string) func(record *Record, s *script) {
		return func(_ *Record, s *script) {
			s.records = append(s.records, &Record{
				Namespace: ns, Integration: integration, IdempotencyKey: "key",
				Alerts: []Sent{{"two", "k", "firing"}}, Deliveries: []Delivery{{Outcome: outcome, IDs: ids}},
			})
		}
	}
	withoutKey := func(_ *Record, s *script) {
		other(Conflict)(nil, s)
		s.records[len(s.records)-1].IdempotencyKey = ""
	}
	tellAll(t, map[string]story{
		"a copy gets the answer to the first":  {tell: keyed(again(Acknowledged, "first"))},
		"a copy gets another answer":           {tell: keyed(again(Acknowledged, "second")), found: "A: "},
		"a copy is refused":                    {tell: keyed(again(Refused))},
		"a copy gets a conflict":               {tell: keyed(again(Conflict)), found: "D: "},
		"other content gets a conflict":        {tell: keyed(other(Conflict))},
		"a request without a key gets one":     {found: "D: ", tell: post(withoutKey)},
		"other content is acknowledged":        {tell: keyed(other(Acknowledged, "first")), found: "A: "},
		"the first copy was not stored at all": {tell: func(s *script) { other(Conflict)(nil, s) }, found: "D: "},
		"a copy is stored while the first is kept": {found: "A: ", tell: keyed(func(record *Record, s *script) {
			again(Acknowledged, "second")(record, s)
			storeAgain(s)
		})},
		"a copy is stored after the first is gone": {tell: keyed(func(record *Record, s *script) {
			again(Acknowledged, "second")(record, s)
			s.release("a")
			storeAgain(s)
		})},
		"a copy is stored that nobody sent": {found: "A: ", tell: keyed(func(_ *Record, s *script) {
			s.release("a")
			storeAgain(s)
		})},
		"a second copy of the write is deleted": {tell: keyed(func(_ *Record, s *script) {
			s.release("a")
			s.store("b", Commit{Name: s.events["a"].name}, s.events["a"].alerts...)
			s.release("b")
		})},
		"a second copy of the write counts": {found: "A: ", tell: keyed(func(_ *Record, s *script) {
			s.release("a")
			s.store("b", Commit{Name: s.events["a"].name}, s.events["a"].alerts...)
			s.fold("k", []string{"b"})
		})},
	})
}

func TestSilence(t *testing.T) {
	// end resolves the Incident because no alert came, with a time that is wrong by so much.
	end := func(s *script, wrong time.Duration) {
		s.incidents["k"].model.endQuiet(s.now.Add(wrong))
		s.fold("k", nil, func(status map[string]any) {
			status["conditions"] = []map[string]any{{"type": "Resolved", "status": "True", "reason": "AutoResolved"}}
		})
	}
	quiet := func(at time.Duration) func(s *script) {
		return func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.release("a")
			s.tick(2 * time.Minute)
			end(s, at)
		}
	}
	tried := func(before time.Duration, outcomes ...Outcome) func(s *script) {
		return func(s *script) {
			at := start.Add(2 * time.Minute).Add(-before)
			record := &Record{Namespace: ns, Integration: integration, Alerts: []Sent{{"tried", "k", "firing"}}}
			for _, outcome := range outcomes {
				record.Deliveries = append(record.Deliveries, Delivery{Outcome: outcome, Began: at, Ended: at.Add(time.Second)})
			}
			s.records = append(s.records, record)
			if slices.Contains(outcomes, Conflict) {
				record.IdempotencyKey = "key"
				s.sent("x", an("firing", "other")).IdempotencyKey = "key"
				s.fold("other", []string{"x"})
				s.release("x")
			}
			quiet(0)(s)
		}
	}
	repeated := func(outcome Outcome) func(s *script) {
		return func(s *script) {
			quiet(0)(s)
			at := start.Add(90 * time.Second)
			record := s.records[0]
			record.Deliveries = append(record.Deliveries, Delivery{Outcome: outcome, Began: at, Ended: at.Add(time.Second)})
		}
	}
	// another sends one more alert within the time, of which nothing is folded.
	another := func(outcome Outcome, then func(s *script)) func(s *script) {
		return func(s *script) {
			s.sent("a", an("firing", "k"))
			s.fold("k", []string{"a"})
			s.release("a")
			s.tick(90 * time.Second)
			record := s.sent("b", an("firing", "k"))
			record.Deliveries = []Delivery{{Outcome: outcome, Began: s.now.Add(-time.Second), Ended: s.now}}
			then(s)
			s.tick(30 * time.Second)
			end(s, 0)
		}
	}
	options := Options{AutoResolveAfter: func(string, string) time.Duration { return time.Minute }}
	tellAll(t, map[string]story{
		"nobody sent anything":                  {options: options, tell: quiet(0)},
		"a request was refused meanwhile":       {options: options, tell: tried(30*time.Second, Refused), found: "B: "},
		"a request was refused before":          {options: options, tell: tried(90*time.Second, Refused)},
		"its key is that of another":            {options: options, tell: tried(30*time.Second, Unknown, Conflict)},
		"nothing is known of a request":         {options: options, tell: tried(30*time.Second, Unknown, Refused), found: "B: "},
		"a request was repeated that is stored": {options: options, tell: repeated(Acknowledged)},
		"an alert waits to be folded":           {options: options, tell: another(Acknowledged, func(*script) {}), found: "B: "},
		"a user deleted an alert that waited":   {options: options, tell: another(Acknowledged, func(s *script) { s.lose("b") })},
		"a user deleted one that was refused":   {options: options, tell: another(Refused, func(s *script) { s.lose("b") }), found: "B: "},
		"the clock of the leader is far ahead":  {options: options, tell: quiet(time.Hour), found: "B: "},
		"the clock of the leader is far behind": {options: options, tell: quiet(-time.Hour), found: "B: "},
	})
}
