package v1alpha1_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestNamespacesShareALimit(t *testing.T) {
	capacity := v1alpha1.Capacity{Limit: 100, Share: 0.25}
	for name, test := range map[string]struct {
		own, total int64
		namespaces int
		want       bool
	}{
		"a namespace within its share":                      {24, 24, 1, true},
		"a namespace at its share":                          {25, 25, 1, false},
		"a full limit and a namespace that fills it":        {24, 100, 5, false},
		"a full limit and a namespace with nothing":         {0, 100, 5, true},
		"a full limit and a namespace below its equal part": {9, 100, 5, true},
		"a full limit and a namespace at its equal part":    {10, 100, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(capacity.Allows(test.own, test.total, test.namespaces)).To(Equal(test.want))
		})
	}
	g := NewWithT(t)
	g.Expect(v1alpha1.Capacity{Limit: 2, Share: 0.25}.Allows(0, 0, 0)).To(BeTrue(), "one is always allowed")
	g.Expect(v1alpha1.Capacity{Limit: 5, Share: 1}.Allows(4, 4, 1)).To(BeTrue(), "the whole limit for a single namespace")
}

func TestWhateverNamespacesDoTheLimitHoldsAndNobodyElseIsRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := v1alpha1.Capacity{
			Limit: rapid.Int64Range(1, 200).Draw(t, "limit"),
			Share: rapid.SampledFrom([]float64{0.05, 0.25, 0.5, 1}).Draw(t, "share"),
		}
		held := map[int]int64{}
		total := int64(0)
		for range rapid.IntRange(0, 600).Draw(t, "steps") {
			namespace := rapid.IntRange(0, 8).Draw(t, "namespace")
			if rapid.IntRange(0, 9).Draw(t, "dice") == 0 && held[namespace] > 0 {
				held[namespace]--
				total--
				continue
			}
			namespaces := len(held)
			if _, ok := held[namespace]; !ok {
				namespaces++
			}
			allowed := capacity.Allows(held[namespace], total, namespaces)
			if held[namespace] == 0 && !allowed {
				t.Fatalf("a namespace with nothing is refused: %v, %d held", held, total)
			}
			if allowed {
				held[namespace]++
				total++
			}
			if held[namespace] > capacity.Own() {
				t.Fatalf("namespace %d holds %d, its share is %d", namespace, held[namespace], capacity.Own())
			}
			if total > capacity.Limit+capacity.Limit/2+int64(len(held)) {
				t.Fatalf("%d are held of %d", total, capacity.Limit)
			}
		}
	})
}
