package cli

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// TestShortNamesAreClear checks that each short name is the beginning of its own name only.
func TestShortNamesAreClear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		names := rapid.SliceOfDistinct(rapid.Custom(func(t *rapid.T) types.NamespacedName {
			return types.NamespacedName{
				Namespace: rapid.SampledFrom([]string{"a", "a-b"}).Draw(t, "namespace"),
				Name:      rapid.StringMatching(`(m|m-o)-[ab]{1,8}`).Draw(t, "name"),
			}
		}), rapid.ID).Draw(t, "names")
		short := shortNames(names)
		for _, name := range names {
			g.Expect(name.Name).To(HavePrefix(short[name]))
			if short[name] == name.Name {
				continue // the whole name is always clear
			}
			for _, other := range names {
				if other != name && other.Namespace == name.Namespace {
					g.Expect(strings.HasPrefix(other.Name, short[name])).To(BeFalse(), "%s of %s", short[name], name)
				}
			}
		}
	})
}
