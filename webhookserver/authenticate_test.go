package webhookserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// owner returns the namespace and the name of a token's integration, empty for none.
func (x *tokenIndex) owner(token string) string {
	w, _, p := x.lookup(token, noon)
	if p != nil {
		return ""
	}
	return w.Namespace + "/" + w.Name
}

func TestTokenIndex(t *testing.T) {
	g := NewWithT(t)
	x := newTokenIndex()
	t1, t2, t3 := tokens.New("a", "one"), tokens.New("a", "one"), tokens.New("b", "two")
	x.set(integration("a", "one", t1, t2))
	x.set(integration("b", "two", t3))
	t.Log("both tokens of an integration work, as during a rotation")
	g.Expect(x.owner(t1)).To(Equal("a/one"))
	g.Expect(x.owner(t2)).To(Equal("a/one"))
	g.Expect(x.owner(t3)).To(Equal("b/two"))
	g.Expect(x.owner(tokens.New("a", "one"))).To(BeEmpty())
	g.Expect(x.owner(t1 + strings.Repeat("t", maxTokenLength))).To(BeEmpty())

	t.Log("a token that was removed stops working, the other goes on")
	x.set(integration("a", "one", t2))
	g.Expect(x.owner(t1)).To(BeEmpty())
	g.Expect(x.owner(t2)).To(Equal("a/one"))

	t.Log("a deleted integration has no tokens")
	x.remove(integration("a", "one"))
	g.Expect(x.owner(t2)).To(BeEmpty())
	g.Expect(x.owner(t3)).To(Equal("b/two"))

	t.Log("nor has one that is being deleted")
	deleted := integration("b", "two", t3)
	now := metav1.NewTime(noon)
	deleted.DeletionTimestamp = &now
	x.set(deleted)
	g.Expect(x.owner(t3)).To(BeEmpty())
	g.Expect(x.byTag).To(BeEmpty())
}

func TestTokenExpiry(t *testing.T) {
	for name, test := range map[string]struct {
		expires time.Time
		want    *problem
	}{
		"an hour before it expires": {noon.Add(time.Hour), nil},
		"the moment it expires":     {noon, &problemToken},
		"after it has expired":      {noon.Add(-time.Microsecond), &problemToken},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			x := newTokenIndex()
			w := integration("a", "one")
			expires := v1alpha1.NewTimestamp(test.expires)
			w.Spec.Tokens[0].ExpirationTime = &expires
			x.set(w)
			owner, _, p := x.lookup(testenv.Token("a", "one"), noon)
			g.Expect(owner).NotTo(BeNil())
			g.Expect(p).To(Equal(test.want))
		})
	}
}

func TestTokensExpireByTheClockOfTheAPIServer(t *testing.T) {
	for sentence, test := range map[string]struct {
		ahead, left time.Duration // the replica's clock, and the time until the token expires
		status      int
	}{
		"a clock ahead":            {time.Hour, time.Minute, http.StatusAccepted},
		"a clock ahead, expired":   {time.Hour, -time.Minute, http.StatusUnauthorized},
		"a clock behind":           {-time.Hour, time.Minute, http.StatusAccepted},
		"a clock behind, expired":  {-time.Hour, -time.Minute, http.StatusUnauthorized},
		"the right clock, expired": {0, -time.Minute, http.StatusUnauthorized},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := newBench()
			b.options.Clock = timeFunc(func() time.Time { return noon.Add(test.ahead) })
			b.options.Health = timeFunc(func() time.Time { return noon })
			w := integration("team-a", "prometheus")
			expires := v1alpha1.NewTimestamp(noon.Add(test.left))
			w.Spec.Tokens[0].ExpirationTime = &expires
			b.tokens.set(w)
			NewWithT(t).Expect(b.post(testPath, firing).StatusCode).To(Equal(test.status))
		})
	}
}

// cutOff is the Health of a replica that the API server does not answer.
type cutOff struct{ Health }

func (cutOff) IsCutOff() bool { return true }

// TestATokenThatMayBeNewIsNotRejected asks a replica that the API server does not answer: its watch may lack an integration.
func TestATokenThatMayBeNewIsNotRejected(t *testing.T) {
	for sentence, test := range map[string]struct {
		token  string
		status int
	}{
		"a token of an integration that is not known":   {testenv.Token("team-a", "new"), http.StatusServiceUnavailable},
		"another token of an integration that is known": {tokens.New("team-a", "prometheus"), http.StatusServiceUnavailable},
		"a token that is known":                         {testToken, http.StatusAccepted},
		"a token that is known, and has expired":        {testenv.Token("team-a", "expired"), http.StatusUnauthorized},
		"what is no token":                              {"secret", http.StatusUnauthorized},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, b := NewWithT(t), newBench()
			expired := integration("team-a", "expired")
			expired.Spec.Tokens[0].ExpirationTime = new(v1alpha1.NewTimestamp(time.Now().Add(-time.Hour)))
			b.tokens.set(expired)
			b.options.Health = cutOff{b.options.Health}
			response := b.post(eventsPath+"/"+test.token, firing)
			g.Expect(response.StatusCode).To(Equal(test.status))
			if test.status == http.StatusServiceUnavailable {
				g.Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
				g.Expect(decode[problemBody](g, response).kind()).To(Equal("not-ready"))
			}
		})
	}
}

func TestTokenListedTwiceWithinAnIntegration(t *testing.T) {
	for expired := range 2 {
		x := newTokenIndex()
		token := testenv.Token("a", "one")
		w := integration("a", "one", token, token)
		past := v1alpha1.NewTimestamp(noon.Add(-time.Hour))
		w.Spec.Tokens[expired].ExpirationTime = &past
		x.set(w)
		NewWithT(t).Expect(x.owner(token)).To(Equal("a/one"), "one of the two has not expired")
	}
}

func TestListingTheHashOfAnotherTokenHasNoEffect(t *testing.T) {
	victim, secret := testenv.Token("b", "victim"), "a secret without a tag"
	for sentence, play := range map[string]func(x *tokenIndex, thief, owner *v1alpha1.WebhookIntegration){
		"before the owner": func(x *tokenIndex, thief, owner *v1alpha1.WebhookIntegration) { x.set(thief); x.set(owner) },
		"after the owner":  func(x *tokenIndex, thief, owner *v1alpha1.WebhookIntegration) { x.set(owner); x.set(thief) },
		"while the owner is deleted and created again": func(x *tokenIndex, thief, owner *v1alpha1.WebhookIntegration) {
			x.set(owner)
			x.remove(owner)
			x.set(thief)
			if x.owner(victim) != "" {
				panic("the thief is served")
			}
			x.set(owner)
		},
		"and being deleted": func(x *tokenIndex, thief, owner *v1alpha1.WebhookIntegration) {
			x.set(owner)
			x.set(thief)
			x.remove(thief)
		},
		"in the same namespace": func(x *tokenIndex, thief, owner *v1alpha1.WebhookIntegration) {
			thief.Namespace = owner.Namespace
			x.set(owner)
			x.set(thief)
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			x := newTokenIndex()
			play(x, integration("a", "thief", victim, secret), integration("b", "victim", victim, secret))
			g.Expect(x.owner(victim)).To(Equal("b/victim"))
			g.Expect(x.owner(secret)).To(BeEmpty(), "a token without a tag belongs to nobody")
		})
	}
}

// TestNobodyTakesATokenOver has a thief and an owner do anything in any order.
func TestNobodyTakesATokenOver(t *testing.T) {
	token := testenv.Token("b", "victim")
	thief, owner := integration("a", "thief", token), integration("b", "victim", token)
	rapid.Check(t, func(t *rapid.T) {
		x := newTokenIndex()
		want := ""
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"list", "delete", "create owner", "revoke", "delete owner"}).Draw(t, "step") {
			case "list":
				x.set(thief)
			case "delete":
				x.remove(thief)
			case "create owner":
				x.set(owner)
				want = "b/victim"
			case "revoke":
				x.set(integration("b", "victim", "another"))
				want = ""
			case "delete owner":
				x.remove(owner)
				want = ""
			}
			if found := x.owner(token); found != want {
				t.Fatalf("the token is valid for %q instead of %q", found, want)
			}
		}
	})
}

func TestARequestWithoutATokenIsToldWhereItBelongs(t *testing.T) {
	g := NewWithT(t)
	response := newBench().post(eventsPath, firing)
	g.Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
	g.Expect(decode[problemBody](g, response).Detail).To(ContainSubstring("The request has no token"))
}

func TestAListedTokenWithoutTheTagIsReported(t *testing.T) {
	for sentence, test := range map[string]struct {
		token  string
		detail string
	}{
		"no tag":                      {"a-secret", "no tag of an integration"},
		"the tag of another":          {tokens.New("team-a", "other"), "No integration accepts this token."},
		"the tag in capitals":         {strings.ToUpper(tokens.New("team-a", "wrong")), "no tag of an integration"},
		"a tag and nothing behind it": {tokens.Prefix + tokens.Tag("team-a", "wrong") + "_", "no tag of an integration"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			now := noon
			b.options.Clock = timeFunc(func() time.Time { return now })
			post := func() problemBody {
				response := b.post(eventsPath+"/"+test.token, firing)
				g.Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
				return decode[problemBody](g, response)
			}
			post()
			g.Expect(b.reports.reasons).To(BeEmpty(), "nobody lists it")
			b.tokens.set(integration("team-a", "wrong", test.token))
			b.tokens.set(integration("team-b", "wrong", test.token))
			post()
			g.Expect(b.reports.reasons).To(BeEmpty(), "wrong tokens cause one search a second")
			now = now.Add(searchInterval)
			g.Expect(post().Detail).To(ContainSubstring(test.detail))
			g.Expect(b.reports.reasons).To(Equal([]string{"InvalidTokenTag", "InvalidTokenTag"}), "each that lists it is told")
			g.Expect(b.reports.texts).To(ContainElement(ContainSubstring(`The token "a" does not have the tag of this integration`)))
			g.Expect(b.store.Stored()).To(BeEmpty())
		})
	}
}

func TestASearchDoesNotReportTheIntegrationOfTheToken(t *testing.T) {
	x := newTokenIndex()
	x.set(integration("team-a", "new")) // after the lookup
	x.search(testenv.Token("team-a", "new"), noon, func(lister *v1alpha1.WebhookIntegration, _ string) {
		t.Errorf("%s is reported", lister.Name)
	})
}

func BenchmarkTokenLookup(b *testing.B) {
	x := newTokenIndex()
	for i := range 10_000 {
		x.set(integration("team", fmt.Sprintf("integration-%d", i)))
	}
	valid := testenv.Token("team", "integration-7777")
	for name, token := range map[string]string{
		"valid": valid, "unknown": valid + "x", "of no integration": testenv.Token("team", "none"), "untagged": "no-" + valid,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _, _ = x.lookup(token, noon)
			}
		})
	}
	b.Run("search", func(b *testing.B) {
		for b.Loop() {
			x.searched.Store(0)
			x.search("no-"+valid, noon, func(*v1alpha1.WebhookIntegration, string) {})
		}
	})
}

// Anybody can send invalid tokens: one line a minute tells an administrator where they come from, and nothing secret.
func TestTheLogOfInvalidTokens(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	now := noon
	b.options.Clock = timeFunc(func() time.Time { return now })
	revoked := testToken + "revoked"
	post := func(token, agent string) {
		g.Expect(b.post(eventsPath+"/"+token, firing, with("User-Agent", agent)).StatusCode).To(Equal(http.StatusUnauthorized))
	}
	lines := func() (found []string) {
		for line := range strings.Lines(b.logs.String()) {
			if strings.Contains(line, "without a valid token") {
				g.Expect(line).To(ContainSubstring(`"level":0`))
				found = append(found, line)
			}
		}
		return found
	}
	post("mistyped-token", "curl/8\x1b[31m \u202e"+strings.Repeat("é", 300))
	post("mistyped-token", "within the minute")
	post(revoked, "within the minute")
	g.Expect(lines()).To(HaveLen(1))
	g.Expect(lines()[0]).To(And(ContainSubstring(`"address":"192.0.2.1"`), ContainSubstring(`"userAgent":"curl/8[31m é`)))
	g.Expect(len(lines()[0])).To(BeNumerically("<", 400))

	now = now.Add(unauthorizedInterval)
	post(revoked, "Grafana "+revoked)
	now = now.Add(unauthorizedInterval)
	post("mistyped-token", "mistyped\x01-token") // which reads as the token once the control character is gone
	now = now.Add(-24 * time.Hour)
	post("", "after the clock was put back")
	g.Expect(lines()).To(HaveLen(4))
	g.Expect(lines()[1]).To(And(ContainSubstring(`"othersSinceLastLine":2`), ContainSubstring(`"tagOfIntegration":"prometheus"`),
		ContainSubstring(`"namespace":"team-a"`)))
	g.Expect(lines()[3]).To(ContainSubstring("after the clock was put back"))
	g.Expect(b.logs.String()).NotTo(Or(ContainSubstring(revoked), ContainSubstring("mistyped-token")))
}
