package protocol_test

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/hack/lib/protocol"
)

// TestSets compares sets with maps.
func TestSets(t *testing.T) {
	draw := func(t *rapid.T, name string) (set protocol.Set, numbers map[int]bool) {
		numbers = map[int]bool{}
		for _, n := range rapid.SliceOf(rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(60, 130))).Draw(t, name) {
			set, numbers[n] = set.With(n), true
		}
		return set, numbers
	}
	rapid.Check(t, func(t *rapid.T) {
		a, inA := draw(t, "a")
		b, inB := draw(t, "b")
		expect := func(what string, got protocol.Set, has func(n int) bool) {
			var want []int
			set := protocol.Set{}
			for n := range 140 {
				if has(n) {
					want = append(want, n)
					set = set.With(n)
				}
				if got.Has(n) != has(n) {
					t.Fatalf("%s of %s and %s has %d: %t", what, a, b, n, got.Has(n))
				}
			}
			if members := slices.Collect(got.All()); !slices.Equal(members, want) || got.Len() != len(want) || got != set {
				t.Fatalf("%s of %s and %s is %s, of length %d", what, a, b, got, got.Len())
			}
		}
		expect("a", a, func(n int) bool { return inA[n] })
		expect("or", a.Or(b), func(n int) bool { return inA[n] || inB[n] })
		expect("and", a.And(b), func(n int) bool { return inA[n] && inB[n] })
		expect("without", a.Without(b), func(n int) bool { return inA[n] && !inB[n] })
		if a.Contains(b) != (len(a.Or(b).String()) == len(a.String())) {
			t.Fatalf("%s contains %s: %t", a, b, a.Contains(b))
		}
		sorted := slices.Sorted(maps.Keys(inA))
		expect("last", a.Last(3), func(n int) bool { return inA[n] && slices.Index(sorted, n) >= len(sorted)-3 })
		if n := 100; a.HasBefore(n) != (len(sorted) > 0 && sorted[0] < n) {
			t.Fatalf("%s has a number before %d: %t", a, n, a.HasBefore(n))
		}
	})
}
