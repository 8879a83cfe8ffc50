package fair

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"
)

func keyOf(item string) string { return item[:1] }

// turnsModel judges whose turn it is.
type turnsModel struct {
	*rapid.T
	turns   Turns[string]
	waiting map[string]bool           // whether it is urgent, by item
	atWork  map[string]int            // by key
	behind  map[string]map[string]int // turns of other keys that a key has waited for with nothing at work
	urgent  map[string]int            // urgent turns of a key in a row, while ordinary items wait
}

func (m *turnsModel) waits(key string, urgent bool) bool {
	for item, isUrgent := range m.waiting {
		if keyOf(item) == key && isUrgent == urgent {
			return true
		}
	}
	return false
}

func (m *turnsModel) next() {
	item, ok := m.turns.Next()
	if !ok {
		for item := range m.waiting {
			if m.atWork[keyOf(item)] < m.turns.PerKey {
				m.Fatalf("%s is not handed out", item)
			}
		}
		return
	}
	isUrgent, waited := m.waiting[item]
	if !waited {
		m.Fatalf("%s did not wait", item)
	}
	delete(m.waiting, item)
	key := keyOf(item)
	for _, other := range []string{"a", "b", "c"} {
		if other == key || m.atWork[other] > 0 || !m.waits(other, true) && !m.waits(other, false) {
			continue
		}
		if m.behind[other] == nil {
			m.behind[other] = map[string]int{}
		}
		if m.behind[other][key]++; m.behind[other][key] > 1 {
			m.Fatalf("%s waits for a second turn of %s", other, key)
		}
	}
	delete(m.behind, key)
	if m.atWork[key]++; m.atWork[key] > m.turns.PerKey {
		m.Fatalf("%s has %d at work", key, m.atWork[key])
	}
	if m.urgent[key]++; !isUrgent || !m.waits(key, false) {
		m.urgent[key] = 0
	}
	if m.urgent[key] >= ordinaryPart {
		m.Fatalf("urgent items keep the others of %s out", key)
	}
}

func TestNoKeyWaitsForASecondTurnOfAnotherOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &turnsModel{
			T: t, turns: Turns[string]{PerKey: rapid.IntRange(1, 3).Draw(t, "per key")}, waiting: map[string]bool{},
			atWork: map[string]int{}, behind: map[string]map[string]int{}, urgent: map[string]int{},
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			item := fmt.Sprintf("%c%d", 'a'+rapid.IntRange(0, 2).Draw(t, "key"), rapid.IntRange(0, 5).Draw(t, "item"))
			key := keyOf(item)
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				urgent := rapid.Bool().Draw(t, "urgent")
				m.turns.Add(key, item, urgent)
				m.waiting[item] = m.waiting[item] || urgent
			case 2:
				_, waited := m.waiting[item]
				if m.turns.Remove(key, item) != waited {
					t.Fatalf("%s waited: %v", item, waited)
				}
				if delete(m.waiting, item); !m.waits(key, true) && !m.waits(key, false) {
					delete(m.behind, key)
				}
			case 3:
				m.next()
			case 4:
				if m.atWork[key] > 0 {
					m.atWork[key]--
					m.turns.Done(key)
				}
			}
			if !m.waits(key, false) {
				m.urgent[key] = 0
			}
			available := 0
			for item := range m.waiting {
				if m.atWork[keyOf(item)] < m.turns.PerKey {
					available++
				}
			}
			if m.turns.MayWork(key) != (m.atWork[key] < m.turns.PerKey) {
				t.Fatalf("%s has %d at work", key, m.atWork[key])
			}
			if m.turns.Available() != available {
				t.Fatalf("%d are available, not %d", m.turns.Available(), available)
			}
		}
		for len(m.waiting) > 0 {
			for key, n := range m.atWork {
				for range n {
					m.turns.Done(key)
				}
				m.atWork[key] = 0
			}
			m.next()
		}
		for key, n := range m.atWork {
			for range n {
				m.turns.Done(key)
			}
		}
		if !m.turns.IsEmpty() || len(m.turns.ring) > 0 {
			t.Fatalf("%d keys are left", len(m.turns.lines))
		}
	})
}

func TestItemsOfAKeyKeepTheirOrder(t *testing.T) {
	g := NewWithT(t)
	turns := Turns[string]{PerKey: 10}
	for _, item := range []string{"a1", "a2", "a3", "a4"} {
		turns.Add("a", item, false)
	}
	turns.Add("a", "a3", true)
	turns.Add("a", "a4", true)
	turns.Add("a", "a3", true)
	turns.Add("a", "a3", false)
	turns.Remove("a", "a1")
	turns.Add("a", "a1", false)
	var taken []string
	for item, ok := turns.Next(); ok; item, ok = turns.Next() {
		taken = append(taken, item)
	}
	g.Expect(taken).To(Equal([]string{"a3", "a4", "a2", "a1"}))
}

func TestInTurns(t *testing.T) {
	g := NewWithT(t)
	g.Expect(InTurns([]string{"a1", "a2", "a3", "b1", "c1", "b2"}, keyOf)).To(Equal([]string{"a1", "b1", "c1", "a2", "b2", "a3"}))
	g.Expect(InTurns(nil, keyOf)).To(BeEmpty())
}

func BenchmarkTurns(b *testing.B) {
	for _, keys := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			turns, names := Turns[int]{PerKey: 4}, make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprint(i)
			}
			for i := range 20_000 {
				turns.Add(names[i%keys], i, i%3 > 0)
			}
			for i := 20_000; b.Loop(); i++ {
				item, _ := turns.Next()
				turns.Add(names[item%keys], i/keys*keys+item%keys, i%3 > 0)
				turns.Done(names[item%keys])
			}
		})
	}
}
