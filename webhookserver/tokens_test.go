package webhookserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

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
	x.remove(types.NamespacedName{Namespace: "a", Name: "one"})
	expect("t2", "", tokenUnknown)
	expect("t3", "b/two", tokenValid)

	t.Log("nor has one that is being deleted")
	deleted := integration("b", "two", "t3")
	now := metav1.NewTime(noon)
	deleted.DeletionTimestamp = &now
	x.set(deleted)
	expect("t3", "", tokenUnknown)
	g.Expect(x.claims).To(BeEmpty())
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
	x.remove(types.NamespacedName{Namespace: "a", Name: "one"})
	g.Expect(x.claims).To(BeEmpty())
}

func TestTokenConflict(t *testing.T) {
	older, newer, same := integration("z", "older", "t1"), integration("a", "newer", "t1"), integration("b", "newer", "t1")
	older.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
	newer.CreationTimestamp = metav1.NewTime(noon)
	same.CreationTimestamp = metav1.NewTime(noon)
	for name, order := range map[string][]*v1alpha1.WebhookIntegration{
		"when the older one is seen first": {older, newer, same},
		"when the older one is seen last":  {same, newer, older},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			x := newTokenIndex()
			for _, w := range order {
				x.set(w)
			}
			owner, _ := x.lookup("t1", noon)
			g.Expect(owner.Name).To(Equal("older"))
			x.remove(types.NamespacedName{Namespace: "z", Name: "older"})
			owner, _ = x.lookup("t1", noon)
			g.Expect(owner.Namespace).To(Equal("a"), "of two as old as each other the first by namespace")
		})
	}
	t.Run("an expired token of the older one stays its own", func(t *testing.T) {
		g := NewWithT(t)
		x := newTokenIndex()
		expired := older.DeepCopy()
		past := v1alpha1.NewTimestamp(noon.Add(-time.Minute))
		expired.Spec.Tokens[0].ExpiresAt = &past
		x.set(expired)
		x.set(newer)
		owner, v := x.lookup("t1", noon)
		g.Expect(owner.Name).To(Equal("older"))
		g.Expect(v).To(Equal(tokenExpired))
	})
}

func TestTokenIndexIsFedByAnInformer(t *testing.T) {
	g := NewWithT(t)
	x := newTokenIndex()
	handler := x.handler()
	handler.OnAdd(integration("a", "one", "t1"), true)
	handler.OnUpdate(integration("a", "one", "t1"), integration("a", "one", "t2"))
	_, v := x.lookup("t2", noon)
	g.Expect(v).To(Equal(tokenValid))
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a/one", Obj: integration("a", "one", "t2")})
	_, v = x.lookup("t2", noon)
	g.Expect(v).To(Equal(tokenUnknown))
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
