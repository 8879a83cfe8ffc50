package queue

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestVersionsAreCompared(t *testing.T) {
	for _, test := range []struct {
		a, b  string
		newer bool
	}{{"10", "9", true}, {"9", "10", false}, {"9", "9", false}, {"odd", "9", false}, {"10", "odd", false}, {"", "", false}} {
		NewWithT(t).Expect(NewerVersion(test.a, test.b)).To(Equal(test.newer), "%+v", test)
	}
}

func TestTheOrderOfCommitsIsThatOfTheFirstVersions(t *testing.T) {
	g, memory := NewWithT(t), NewMemory(clocktesting.NewFakePassiveClock(testEpoch))
	event := namedEvent("event", 1)
	event.ResourceVersion = "12"
	g.Expect(CommitVersion(event)).To(Equal("12"))
	g.Expect(memory.Version(event)).To(Equal("12"), "nobody has seen it before")
	memory.NoteShown(event, false)
	updated := event.DeepCopy()
	updated.ResourceVersion = "15"
	g.Expect(memory.Version(updated)).To(Equal("12"), "an update moves nothing")
	g.Expect(CommitVersion(updated)).To(Equal("15"), "the object alone does not tell")
	older := event.DeepCopy()
	older.ResourceVersion = "11"
	g.Expect(memory.Version(older)).To(Equal("11"), "a stale cache has shown it first")
	updated.Annotations = map[string]string{v1alpha1.SettledAnnotation: "10/a"}
	g.Expect(memory.Version(updated)).To(Equal("10"))
	g.Expect(CommitVersion(updated)).To(Equal("10"))
	updated.Annotations[v1alpha1.SettledAnnotation] = "15/a"
	g.Expect(memory.Version(updated)).To(Equal("12"), "a user wrote the mark")
}

// TestADigestIsTheSumOfTheHashes adds them as numbers, in another order.
func TestADigestIsTheSumOfTheHashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(rapid.String()).Draw(t, "ids")
		var digest Digest
		sum := new(big.Int)
		for i, id := range ids {
			digest.Add(id)
			hash := sha256.Sum256([]byte(ids[len(ids)-1-i]))
			sum.Add(sum, new(big.Int).SetBytes(hash[:16]))
		}
		sum.Mod(sum, new(big.Int).Lsh(big.NewInt(1), 128))
		if want := fmt.Sprintf("%032x", sum); digest.String() != want || ParseDigest(want) != digest {
			t.Fatalf("the digest is %s, and the sum %s", digest, want)
		}
	})
	for _, text := range []string{"", "0", "x", strings.Repeat("ab", 15), strings.Repeat("ab", 17)} {
		NewWithT(t).Expect(ParseDigest(text)).To(Equal(Digest{}), text)
	}
}

func TestWhatAMarkSaysOfOthersIsRemoved(t *testing.T) {
	for sentence, test := range map[string]struct{ mark, want string }{
		"some of its Incidents":         {"11/b,a,b", "11/a,b"},
		"Incidents of others":           {"11/a,other,b", "11/a,b"},
		"only Incidents of others":      {"11/other", "11/"},
		"all":                           {"11/*", "11/*"},
		"a version that is not older":   {"12/a", ""},
		"a version that is none":        {"x/a", ""},
		"no Incidents":                  {"11", ""},
		"more than an AlertEvent has":   {"11/" + strings.Repeat("a,", v1alpha1.MaxAlertsPerEvent), ""},
		"as many as an AlertEvent has":  {"11/" + strings.Repeat("a,", v1alpha1.MaxAlertsPerEvent-1) + "a", "11/a"},
		"more bytes than it ever needs": {"11/" + strings.Repeat("a", MaxMarkBytes), ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, event := NewWithT(t), namedEvent("event", 1)
			event.ResourceVersion = "12"
			alerts := []v1alpha1.Alert{{IncidentName: "a"}, {IncidentName: "b"}, {IncidentName: "c"}}
			ReduceMark(event, alerts)
			g.Expect(event.Annotations).To(BeNil())
			event.Annotations = map[string]string{v1alpha1.SettledAnnotation: test.mark}
			ReduceMark(event, alerts)
			if test.want == "" {
				g.Expect(event.Annotations).To(BeNil())
			} else {
				g.Expect(event.Annotations).To(Equal(map[string]string{v1alpha1.SettledAnnotation: test.want}))
			}
			event.Annotations = map[string]string{v1alpha1.SettledAnnotation: "12/a", v1alpha1.RetryAnnotation: "true"}
			ReduceMark(event, alerts)
			g.Expect(event.Annotations).To(Equal(map[string]string{v1alpha1.RetryAnnotation: "true"}))
		})
	}
}
