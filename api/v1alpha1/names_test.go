package v1alpha1_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/validation"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// The names are the API: an Incident and the sender's next alert meet by nothing else.
func TestNamesNeverChange(t *testing.T) {
	g := NewWithT(t)
	g.Expect(v1alpha1.IncidentName("prometheus", "disk/db-1")).To(Equal("prometheus-htyerfqyyti4zhdcznusvhdlv5"))
	g.Expect(v1alpha1.IncidentName("a", "")).To(Equal("a-nkuy4f6bbhoy4kxchjdyz22i4g"))
	g.Expect(v1alpha1.KeyedEventName("prometheus", "disk/db-1")).To(Equal("key-htyerfqyyti4zhdcznusvhdlv5"))
	g.Expect(tokens.Hash("foo")).To(Equal("2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"))
	g.Expect(tokens.Hash("foo")).To(Equal(fmt.Sprintf("%x", sha256.Sum256([]byte("foo")))))
}

func TestNamesDoNotCollideWhenPartsShift(t *testing.T) {
	g := NewWithT(t)
	seen := map[string]string{}
	for _, parts := range [][2]string{
		{"ab", "c"}, {"a", "bc"}, {"abc", ""}, {"a-b", "c"}, {"a", "b-c"}, {"a", "-b-c"}, {"a", "b\x00c"}, {"a", "B-C"},
		{"a", "bc "}, {"a", " bc"}, {"a.b", "c"}, {"a", ".b-c"}, {"a", "\x00\x00\x00\x00\x00\x00\x00\x01b"},
	} {
		hash := strings.TrimPrefix(v1alpha1.IncidentName(parts[0], parts[1]), parts[0]+"-")
		g.Expect(seen).NotTo(HaveKey(hash), "%q and %q", parts, seen[hash])
		seen[hash] = fmt.Sprintf("%q", parts)
	}
}

// integrationName generates the names that the API server lets a WebhookIntegration have.
func integrationName() *rapid.Generator[string] {
	return rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|[a-z0-9][-a-z0-9]{0,20}[a-z0-9](\.[a-z0-9]{1,10}){1,3}`).
		Filter(func(name string) bool {
			return len(name) <= 63 && len(validation.NameIsDNSSubdomain(name, false)) == 0
		})
}

func TestNamesAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		integration, key := integrationName().Draw(t, "integration"), rapid.String().Draw(t, "key")
		for _, name := range []string{v1alpha1.IncidentName(integration, key), v1alpha1.KeyedEventName(integration, key)} {
			g.Expect(validation.NameIsDNSSubdomain(name, false)).To(BeEmpty(), name)
			g.Expect(len(name)).To(BeNumerically("<=", 63+1+26))
		}
		g.Expect(v1alpha1.IncidentName(integration, key)).To(HavePrefix(integration + "-"))
		g.Expect(v1alpha1.IsIncidentName(v1alpha1.IncidentName(integration, key), integration)).To(BeTrue())
		for _, other := range []string{integration + "-a", integration[:len(integration)-1], integration[1:] + "a"} {
			g.Expect(v1alpha1.IsIncidentName(v1alpha1.IncidentName(other, key), integration)).To(Equal(other == integration), other)
		}
		g.Expect(v1alpha1.IsKeyedEventName(v1alpha1.KeyedEventName(integration, key))).To(BeTrue())
		g.Expect(v1alpha1.IncidentName(integration, key)).To(Equal(v1alpha1.IncidentName(integration, key)))
	})
}

func TestNamesDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab-.\x00")), 0, 6, -1)
		a := [2]string{text.Draw(t, "integration a"), text.Draw(t, "key a")}
		b := [2]string{text.Draw(t, "integration b"), text.Draw(t, "key b")}
		same := v1alpha1.KeyedEventName(a[0], a[1]) == v1alpha1.KeyedEventName(b[0], b[1])
		g.Expect(same).To(Equal(a == b))
	})
}

func TestIncidentNameFor(t *testing.T) {
	g := NewWithT(t)
	event := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{IntegrationName: "prometheus"}}
	g.Expect(event.IncidentNameFor(&v1alpha1.Alert{IncidentName: "mine", DedupKey: "k"})).To(Equal("mine"))
	g.Expect(event.IncidentNameFor(&v1alpha1.Alert{DedupKey: "k"})).To(Equal(v1alpha1.IncidentName("prometheus", "k")))
}

func TestOrdinaryEventNamesAreNotKeyed(t *testing.T) {
	g := NewWithT(t)
	g.Expect(v1alpha1.IsKeyedEventName("019a9f0e-7c1f-7d3a-9b1e-3f2d7c6b5a49")).To(BeFalse())
	g.Expect(v1alpha1.IsKeyedEventName("resolve-disk")).To(BeFalse())
}

func TestGeneratedEventNamesAreUUIDs(t *testing.T) {
	g := NewWithT(t)
	g.Expect(v1alpha1.IsGeneratedEventName("019f0000-0000-7000-8000-000000000001")).To(BeTrue())
	for _, name := range []string{"", "by-hand", "019f00000000700080000000000000010000", "019f0000-0000-7000-8000-00000000000g",
		v1alpha1.KeyedEventName("mon", "1")} {
		g.Expect(v1alpha1.IsGeneratedEventName(name)).To(BeFalse(), name)
	}
}
