package fair

import (
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"
)

func TestNamespacesShareALimit(t *testing.T) {
	limit := Limit{All: 100, Share: 0.25}
	for name, test := range map[string]struct {
		own, all int64
		keys     int
		want     bool
	}{
		"a key within its share":                      {24, 24, 1, true},
		"a key at its share":                          {25, 25, 1, false},
		"a full limit and a key that fills it":        {24, 100, 5, false},
		"a full limit and a key with nothing":         {0, 100, 5, true},
		"a full limit and a key below its equal part": {9, 100, 5, true},
		"a full limit and a key at its equal part":    {10, 100, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(limit.Allows(test.own, test.all, test.keys)).To(Equal(test.want))
		})
	}
	g := NewWithT(t)
	g.Expect(Limit{All: 2, Share: 0.25}.Allows(0, 0, 0)).To(BeTrue(), "one is always allowed")
	g.Expect(Limit{All: 5, Share: 1}.Allows(4, 4, 1)).To(BeTrue(), "the whole limit for a single key")
}

func drawLimit(t *rapid.T) Limit {
	return Limit{
		All:   rapid.Int64Range(1, 200).Draw(t, "limit"),
		Share: rapid.SampledFrom([]float64{0.05, 0.25, 0.5, 1}).Draw(t, "share"),
	}
}

func TestWhateverNamespacesDoTheLimitHoldsAndNobodyElseIsRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := Budget[int]{Limit: drawLimit(t)}
		keys := map[int]bool{}
		for range rapid.IntRange(0, 600).Draw(t, "steps") {
			key := rapid.IntRange(0, 8).Draw(t, "key")
			if rapid.IntRange(0, 9).Draw(t, "dice") == 0 {
				budget.Add(key, -1)
				continue
			}
			keys[key] = true
			allowed := budget.Allows(key)
			if budget.Used(key) == 0 && !allowed {
				t.Fatalf("a key with nothing is refused: %v", budget)
			}
			if allowed {
				budget.Add(key, 1)
			}
			if budget.Used(key) > budget.Own() || allowed && budget.Sum() <= budget.All && budget.IsOver(key, 0) {
				t.Fatalf("key %d uses %d, its share is %d", key, budget.Used(key), budget.Own())
			}
			if budget.Sum() > budget.All+budget.All/2+int64(len(keys)) {
				t.Fatalf("%d are used of %d", budget.Sum(), budget.All)
			}
		}
		for key := range keys {
			budget.Set(key, 0)
		}
		if len(budget.used) > 0 || budget.Sum() != 0 {
			t.Fatalf("something is left: %v", budget)
		}
	})
}

func TestWhoUsesMostGivesWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := Budget[int]{Limit: drawLimit(t)}
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			key := rapid.IntRange(0, 8).Draw(t, "key")
			budget.Add(key, rapid.Int64Range(-20, 20).Draw(t, "more"))
			for from, over := budget.Excess(key); over; from, over = budget.Excess(key) {
				for other, used := range budget.used {
					if budget.Used(key) <= budget.Own() && used > budget.Used(from) {
						t.Fatalf("%d gives way, and %d uses more: %v", from, other, budget)
					}
				}
				budget.Add(from, -1)
			}
			if budget.Used(key) > budget.Own() || budget.Sum() > budget.All {
				t.Fatalf("too much is used: %v", budget)
			}
		}
	})
}
