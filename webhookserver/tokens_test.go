package webhookserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestTokenIndex(t *testing.T) {
	g := NewWithT(t)
	x := newTokenIndex()
	find := func(token string) (string, verdict) {
		w, v := x.lookup(token, noon)
		if w == nil {
			return "", v
		}
		return w.Namespace + "/" + w.Name, v
	}
	expect := func(token, owner string, v verdict) {
		t.Helper()
		foundOwner, found := find(token)
		g.Expect(foundOwner).To(Equal(owner))
		g.Expect(found).To(Equal(v))
	}

	x.set(integration("a", "one", "t1", "t2"))
	x.set(integration("b", "two", "t3"))
	t.Log("both tokens of an integration work, as during a rotation")
	expect("t1", "a/one", tokenValid)
	expect("t2", "a/one", tokenValid)
	expect("t3", "b/two", tokenValid)
	expect("t4", "", tokenUnknown)
	expect("", "", tokenUnknown)
	expect(strings.Repeat("t", maxTokenLength+1), "", tokenUnknown)

	t.Log("a token that was removed stops working, the other goes on")
	x.set(integration("a", "one", "t2"))
	expect("t1", "", tokenUnknown)
	expect("t2", "a/one", tokenValid)

	t.Log("a deleted integration has no tokens")
	x.registry.Remove(types.NamespacedName{Namespace: "a", Name: "one"}, "")
	expect("t2", "", tokenUnknown)
	expect("t3", "b/two", tokenValid)

	t.Log("nor has one that is being deleted")
	deleted := integration("b", "two", "t3")
	now := metav1.NewTime(noon)
	deleted.DeletionTimestamp = &now
	x.set(deleted)
	expect("t3", "", tokenUnknown)
	g.Expect(x.registry.Len()).To(BeZero())
}

func TestTokenExpiry(t *testing.T) {
	for name, test := range map[string]struct {
		expires time.Time
		want    verdict
	}{
		"an hour before it expires": {noon.Add(time.Hour), tokenValid},
		"the moment it expires":     {noon, tokenExpired},
		"after it has expired":      {noon.Add(-time.Microsecond), tokenExpired},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			x := newTokenIndex()
			w := integration("a", "one", "t1")
			expires := v1alpha1.NewTimestamp(test.expires)
			w.Spec.Tokens[0].ExpiresAt = &expires
			x.set(w)
			_, v := x.lookup("t1", noon)
			g.Expect(v).To(Equal(test.want))
		})
	}
}

func TestTokenListedTwiceWithinAnIntegration(t *testing.T) {
	g := NewWithT(t)
	x := newTokenIndex()
	w := integration("a", "one", "t1", "t1")
	past := v1alpha1.NewTimestamp(noon.Add(-time.Hour))
	w.Spec.Tokens[0].ExpiresAt = &past
	x.set(w)
	_, v := x.lookup("t1", noon)
	g.Expect(v).To(Equal(tokenValid), "one of the two has not expired")
	x.registry.Remove(types.NamespacedName{Namespace: "a", Name: "one"}, "")
	g.Expect(x.registry.Len()).To(BeZero())
}

func TestATokenOfSeveralIntegrationsIsServedOnceItIsDecided(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	a, c := integration("a", "one", "shared"), integration("c", "two", "shared")
	b.tokens.registry.Set(a, true)
	b.tokens.registry.Set(c, true)
	response := b.post(eventsPath+"/shared", firing)
	g.Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
	g.Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
	g.Expect(decode[problemBody](g, response).kind()).To(Equal("not-ready"))

	decided := c.DeepCopy()
	decided.Status.Tokens = []v1alpha1.TokenClaim{{SHA256: v1alpha1.TokenHash("shared"), State: v1alpha1.TokenHeld}}
	b.tokens.registry.Set(decided, false)
	owner, v := b.tokens.lookup("shared", noon)
	g.Expect(v).To(Equal(tokenValid))
	g.Expect(owner.Namespace).To(Equal("c"))
}

func TestATaggedTokenIsValidForItsIntegrationAlone(t *testing.T) {
	g := NewWithT(t)
	x := newTokenIndex()
	token := v1alpha1.NewToken("b", "victim")
	x.set(integration("a", "thief", token))
	_, v := x.lookup(token, noon)
	g.Expect(v).To(Equal(tokenUnknown), "to have listed the hash first gains nothing")
	victim := integration("b", "victim", token)
	victim.Status.Tokens = []v1alpha1.TokenClaim{{SHA256: v1alpha1.TokenHash(token), State: v1alpha1.TokenRefused}}
	x.set(victim)
	owner, v := x.lookup(token, noon)
	g.Expect(v).To(Equal(tokenValid))
	g.Expect(owner.Name).To(Equal("victim"))
	x.registry.Remove(types.NamespacedName{Namespace: "b", Name: "victim"}, "")
	_, v = x.lookup(token, noon)
	g.Expect(v).To(Equal(tokenUnknown), "nor does it gain anything while the integration is replaced")
}

func BenchmarkTokenLookup(b *testing.B) {
	x := newTokenIndex()
	for i := range 10_000 {
		x.set(integration("team", fmt.Sprintf("integration-%d", i), fmt.Sprintf("token-%032d", i)))
	}
	valid := fmt.Sprintf("token-%032d", 7_777)
	for name, token := range map[string]string{"valid": valid, "unknown": "no-" + valid} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				x.lookup(token, noon)
			}
		})
	}
}
