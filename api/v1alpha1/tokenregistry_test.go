package v1alpha1

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

const sharedSecret = "shared"

// claimants is a registry with the integrations of one shared secret around it.
type claimants struct {
	*TokenRegistry
	clock time.Time
	uids  int
}

func newClaimants() *claimants {
	c := &claimants{TokenRegistry: NewTokenRegistry(), clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	c.now = func() time.Time { return c.clock }
	return c
}

// integration makes one that lists the shared secret, by default.
func (c *claimants) integration(namespace string, state TokenClaimState) *WebhookIntegration {
	c.uids++
	w := &WebhookIntegration{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "monitoring", UID: types.UID(fmt.Sprint(c.uids)), CreationTimestamp: metav1.NewTime(c.clock),
	}}
	w.Spec.Tokens = []Token{{Name: "main", SHA256: TokenHash(sharedSecret)}}
	if state != "" {
		w.Status.Tokens = []TokenClaim{{SHA256: TokenHash(sharedSecret), State: state}}
	}
	return w
}

func (c *claimants) owner() string {
	owner, _, decided := c.Find(sha256.Sum256([]byte(sharedSecret)), sharedSecret)
	switch {
	case !decided:
		return "undecided"
	case owner == nil:
		return "nobody"
	}
	return owner.Namespace
}

func (c *claimants) add(w *WebhookIntegration) *WebhookIntegration {
	c.Set(w, false)
	return w
}

func (c *claimants) delete(w *WebhookIntegration) {
	c.Remove(types.NamespacedName{Namespace: w.Namespace, Name: w.Name}, w.UID)
}

func (c *claimants) relist(w *WebhookIntegration, listed bool) *WebhookIntegration {
	w = w.DeepCopy()
	w.Spec.Tokens = nil
	if listed {
		w.Spec.Tokens = []Token{{Name: "main", SHA256: TokenHash(sharedSecret)}}
	}
	c.Set(w, false)
	return w
}

func TestTokenOwnership(t *testing.T) {
	for sentence, test := range map[string]struct {
		play func(c *claimants)
		want string
	}{
		"nobody lists it": {func(*claimants) {}, "nobody"},
		"a single claim is served at once": {func(c *claimants) {
			c.add(c.integration("owner", ""))
		}, "owner"},
		"a later claim gets nothing": {func(c *claimants) {
			c.add(c.integration("owner", ""))
			c.add(c.integration("a", ""))
		}, "owner"},
		"nor does one of an older integration": {func(c *claimants) {
			a := c.relist(c.integration("a", ""), false)
			c.clock = c.clock.Add(time.Hour)
			c.add(c.integration("owner", ""))
			c.relist(a, true)
		}, "owner"},
		"while the owner is away, nobody has it": {func(c *claimants) {
			owner := c.add(c.integration("owner", TokenHeld))
			c.add(c.integration("a", ""))
			c.delete(owner)
		}, "nobody"},
		"nor one that claims it meanwhile": {func(c *claimants) {
			c.delete(c.add(c.integration("owner", "")))
			c.add(c.integration("a", ""))
		}, "nobody"},
		"the owner has it back, although it is the youngest now": {func(c *claimants) {
			owner := c.add(c.integration("owner", TokenHeld))
			c.add(c.integration("a", TokenRefused))
			c.delete(owner)
			c.clock = c.clock.Add(time.Minute)
			c.add(c.integration("a2", ""))
			c.clock = c.clock.Add(time.Minute)
			c.add(c.integration("owner", ""))
		}, "owner"},
		"also when only the replacement was seen": {func(c *claimants) {
			c.add(c.integration("owner", ""))
			c.add(c.integration("a", ""))
			c.add(c.integration("owner", ""))
		}, "owner"},
		"another integration of the owner's namespace may follow it": {func(c *claimants) {
			c.delete(c.add(c.integration("owner", "")))
			successor := c.integration("owner", "")
			successor.Name = "successor"
			c.add(successor)
		}, "owner"},
		"the reservation ends": {func(c *claimants) {
			c.delete(c.add(c.integration("owner", "")))
			c.clock = c.clock.Add(tokenReservation)
			c.add(c.integration("a", ""))
		}, "a"},
		"a claim that was refused does not profit from that": {func(c *claimants) {
			owner := c.add(c.integration("owner", ""))
			c.add(c.integration("a", ""))
			c.delete(owner)
			c.clock = c.clock.Add(tokenReservation)
		}, "nobody"},
		"a hash that its owner gives up is free": {func(c *claimants) {
			c.relist(c.add(c.integration("owner", "")), false)
			c.add(c.integration("a", ""))
		}, "a"},
		"but not for who claimed it before": {func(c *claimants) {
			owner := c.add(c.integration("owner", ""))
			c.add(c.integration("a", ""))
			c.relist(owner, false)
		}, "nobody"},
		"unless that one lists it anew": {func(c *claimants) {
			owner := c.add(c.integration("owner", ""))
			a := c.add(c.integration("a", ""))
			c.relist(owner, false)
			a = c.relist(a, false)
			c.relist(a, true)
		}, "a"},
		"a new process serves nobody before it is recorded whose it is": {func(c *claimants) {
			c.Set(c.integration("a", ""), true)
			c.Set(c.integration("owner", ""), true)
		}, "undecided"},
		"a new process believes the record": {func(c *claimants) {
			c.Set(c.integration("a", ""), true)
			c.clock = c.clock.Add(time.Hour)
			c.Set(c.integration("owner", TokenHeld), true)
		}, "owner"},
		"a new process believes the record of a refusal": {func(c *claimants) {
			c.Set(c.integration("a", TokenRefused), true)
		}, "nobody"},
		"an integration that is being deleted has nothing": {func(c *claimants) {
			owner := c.add(c.integration("owner", "")).DeepCopy()
			owner.DeletionTimestamp = &metav1.Time{Time: c.clock}
			c.add(owner)
		}, "nobody"},
		"the removal of an older one of the same name comes late": {func(c *claimants) {
			old := c.add(c.integration("owner", ""))
			c.add(c.integration("owner", ""))
			c.delete(old)
		}, "owner"},
		"an older version comes late": {func(c *claimants) {
			newer, older := c.integration("owner", ""), c.integration("owner", "")
			older.UID, older.ResourceVersion, newer.ResourceVersion = newer.UID, "9", "10"
			older.Spec.Tokens = nil
			c.add(newer)
			c.add(older)
		}, "owner"},
	} {
		t.Run(sentence, func(t *testing.T) {
			c := newClaimants()
			test.play(c)
			NewWithT(t).Expect(c.owner()).To(Equal(test.want))
		})
	}
}

func TestTheControllerDecides(t *testing.T) {
	for sentence, order := range map[string][]string{"the older one first": {"z", "a"}, "the younger one first": {"a", "z"}} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			c := newClaimants()
			c.Set(c.integration("z", ""), true)
			c.clock = c.clock.Add(time.Second)
			c.Set(c.integration("a", ""), true)
			states := map[string]TokenClaimState{}
			for _, namespace := range order {
				states[namespace] = c.Claims(types.NamespacedName{Namespace: namespace, Name: "monitoring"})[0].State
			}
			g.Expect(states).To(Equal(map[string]TokenClaimState{"z": TokenHeld, "a": TokenRefused}))
			g.Expect(c.owner()).To(Equal("z"))
			g.Expect(c.Claims(types.NamespacedName{Namespace: "z", Name: "unknown"})).To(BeEmpty())
		})
	}
}

// Whatever a thief does, in whatever order, before and after restarts of the process: as long as the owner's claim
// is on record, or was seen within the hour, the thief is not served.
func TestNobodyTakesATokenOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newClaimants()
		thief := c.relist(c.integration("a", ""), false)
		owner := c.add(c.integration("owner", TokenHeld))
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"claim", "drop", "recreate", "delete owner", "create owner", "wait"}).Draw(t, "step") {
			case "claim":
				thief = c.relist(thief, true)
			case "drop":
				thief = c.relist(thief, false)
			case "recreate":
				c.delete(thief)
				thief = c.add(c.integration("a", ""))
			case "delete owner":
				c.delete(owner)
			case "create owner":
				c.delete(owner)
				owner = c.add(c.integration("owner", ""))
			case "wait":
				c.clock = c.clock.Add(tokenReservation / 25)
			}
			if c.owner() == "a" {
				t.Fatal("the thief is served")
			}
		}
		c.add(c.integration("owner", ""))
		if c.owner() != "owner" {
			t.Fatalf("the owner is not served, but %s", c.owner())
		}
	})
}

func TestReservationsAreBounded(t *testing.T) {
	g := NewWithT(t)
	c := newClaimants()
	for i := range 2 * maxReservedTokens {
		w := c.integration("a", "")
		w.Spec.Tokens[0].SHA256 = TokenHash(fmt.Sprint(i))
		c.delete(c.add(w))
	}
	g.Expect(c.owners).To(HaveLen(maxReservedTokens))
	g.Expect(c.Len()).To(BeZero())
	c.delete(c.add(c.integration("owner", "")))
	c.add(c.integration("a", ""))
	g.Expect(c.owner()).To(Equal("nobody"), "another namespace has a bound of its own")
	c.clock = c.clock.Add(tokenReservation)
	c.delete(c.add(c.integration("b", "")))
	g.Expect(c.owners).To(HaveLen(1))
	g.Expect(c.counts).To(HaveLen(1))
}
