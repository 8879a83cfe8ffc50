package fair

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"
)

func keyOf(item string) string { return item[:1] }

// turnsModel judges whose turn it is.
type turnsModel struct {
	*rapid.T
	turns   Turns[string]
	waiting map[string]bool            // whether it is urgent, by item
	atWork  map[string][]*Turn[string] // by key, in any order
	behind  map[string]map[string]int  // turns of other keys that a key has waited for with nothing at work
	urgent  map[string]int             // urgent turns of a key in a row, while ordinary items wait
}

func (m *turnsModel) waits(key string, urgent bool) bool {
	for item, isUrgent := range m.waiting {
		if keyOf(item) == key && isUrgent == urgent {
			return true
		}
	}
	return false
}

// taken returns how many places a key has, or all of them.
func (m *turnsModel) taken(keys ...string) (taken int) {
	for _, key := range keys {
		for _, turn := range m.atWork[key] {
			if !turn.gaveUp {
				taken++
			}
		}
	}
	return taken
}

// mayWork reports whether a key may have another item at work.
func (m *turnsModel) mayWork(key string) bool {
	all, keys := 0, 1
	for other, turns := range m.atWork {
		if all += len(turns); other != key && len(turns) > 0 {
			keys++
		}
	}
	return m.taken("a", "b", "c") < m.turns.Places && m.taken(key) < ownPlaces(m.turns.Places) &&
		m.turns.limit.Allows(int64(len(m.atWork[key])), int64(all), keys)
}

func (m *turnsModel) next() {
	var free []string
	hangs := map[string]bool{}
	for _, key := range []string{"a", "b", "c"} {
		if line := m.turns.lines[key]; line != nil {
			hangs[key] = line.hangs
		}
		if m.mayWork(key) && (m.waits(key, true) || m.waits(key, false)) {
			free = append(free, key)
		}
	}
	item, turn, ok := m.turns.Next()
	if !ok {
		if len(free) > 0 {
			m.Fatalf("%v are not handed out", free)
		}
		return
	}
	isUrgent, waited := m.waiting[item]
	if !waited {
		m.Fatalf("%s did not wait", item)
	}
	delete(m.waiting, item)
	key := keyOf(item)
	if !slices.Contains(free, key) {
		m.Fatalf("%s may have no more at work than %d", key, len(m.atWork[key]))
	}
	for _, other := range free {
		if other == key || len(m.atWork[other]) > 0 {
			continue
		}
		if len(m.atWork[key]) > 0 {
			m.Fatalf("%s has something at work and goes before %s", key, other)
		}
		if hangs[other] || hangs[key] {
			continue // see TestItemsThatHangLeaveAPlaceToEveryOtherKey
		}
		if m.behind[other] == nil {
			m.behind[other] = map[string]int{}
		}
		if m.behind[other][key]++; m.behind[other][key] > 1 {
			m.Fatalf("%s waits for a second turn of %s", other, key)
		}
	}
	delete(m.behind, key)
	m.atWork[key] = append(m.atWork[key], turn)
	if m.urgent[key]++; !isUrgent || !m.waits(key, false) {
		m.urgent[key] = 0
	}
	if m.urgent[key] >= ordinaryPart {
		m.Fatalf("urgent items keep the others of %s out", key)
	}
}

// end ends the first turn of a key, if it has one.
func (m *turnsModel) end(key string) {
	if turns := m.atWork[key]; len(turns) > 0 {
		turns[0].Done()
		m.atWork[key] = turns[1:]
	}
}

// endAll hands everything out, and ends all turns.
func (m *turnsModel) endAll() {
	m.turns.Places = max(1, m.turns.Places)
	for {
		for key := range m.atWork {
			for len(m.atWork[key]) > 0 {
				m.end(key)
			}
		}
		if len(m.waiting) == 0 {
			return
		}
		m.next()
	}
}

func TestNoKeyWaitsForASecondTurnOfAnotherOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		places := rapid.IntRange(1, 7).Draw(t, "places")
		m := &turnsModel{
			T: t, turns: NewTurns[string](places), waiting: map[string]bool{}, atWork: map[string][]*Turn[string]{},
			behind: map[string]map[string]int{}, urgent: map[string]int{},
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			item := fmt.Sprintf("%c%d", 'a'+rapid.IntRange(0, 2).Draw(t, "key"), rapid.IntRange(0, 5).Draw(t, "item"))
			key := keyOf(item)
			switch rapid.IntRange(0, 7).Draw(t, "what") {
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
			case 3, 4:
				m.next()
			case 5:
				m.end(key)
			case 6:
				if turns := m.atWork[key]; len(turns) > 0 {
					turns[len(turns)-1].Yield()
				}
			case 7:
				m.turns.Places = rapid.IntRange(0, places).Draw(t, "places now")
			}
			if !m.waits(key, false) {
				m.urgent[key] = 0
			}
			available := 0
			for item := range m.waiting {
				if m.mayWork(keyOf(item)) {
					available++
				}
			}
			if m.turns.MayWork(key) != m.mayWork(key) {
				t.Fatalf("%s has %d at work", key, len(m.atWork[key]))
			}
			if m.turns.Available() != available {
				t.Fatalf("%d are available, not %d", m.turns.Available(), available)
			}
		}
		m.endAll()
		if !m.turns.IsEmpty() || len(m.turns.ring) > 0 || m.turns.taken+m.turns.busy+m.turns.AtWork() > 0 {
			t.Fatalf("%d keys are left", len(m.turns.lines))
		}
	})
}

func TestItemsThatHangLeaveAPlaceToEveryOtherKey(t *testing.T) {
	for _, places := range []int{1, 2, 8, 16} {
		g := NewWithT(t)
		turns := NewTurns[string](places)
		for key := range 20 {
			for i := range 100 {
				turns.Add(fmt.Sprint("hangs ", key), fmt.Sprint(key, " ", i), true)
			}
		}
		for hanging := true; hanging; {
			var turn *Turn[string]
			if _, turn, hanging = turns.Next(); hanging {
				turn.Yield()
			}
		}
		g.Expect(turns.AtWork()).To(BeNumerically(">=", 20))
		g.Expect(turns.AtWork()).To(BeNumerically("<=", MaxAtWork(places)+20))
		turns.Add("calm", "item", false)
		item, _, _ := turns.Next()
		g.Expect(item).To(Equal("item"))
	}
}

func TestItemsOfAKeyKeepTheirOrder(t *testing.T) {
	g := NewWithT(t)
	turns := NewTurns[string](10)
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
	for item, _, ok := turns.Next(); ok; item, _, ok = turns.Next() {
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
			turns, names := NewTurns[int](4), make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprint(i)
			}
			for i := range 20_000 {
				turns.Add(names[i%keys], i, i%3 > 0)
			}
			for i := 20_000; b.Loop(); i++ {
				item, turn, _ := turns.Next()
				turns.Add(names[item%keys], i/keys*keys+item%keys, i%3 > 0)
				turn.Done()
			}
		})
	}
}
