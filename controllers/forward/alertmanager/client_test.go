package alertmanager

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	promconfig "github.com/prometheus/common/config"

	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/controllers/forward/silences"
)

// An Alertmanager that lies takes time, and no memory.
func TestListsThatLieTakeNoMemory(t *testing.T) {
	for name, c := range map[string]struct {
		start, element string
		err            OmegaMatcher
	}{
		"nothing":                     {"[ ", "{},", MatchError(ContainSubstring("EOF"))},
		"silences that are not known": {"[ ", `{"id":"` + strings.Repeat("x", 1000) + `","matchers":[{},{},{},{}]},`, MatchError(ContainSubstring("EOF"))},
		"an endless element":          {`[ {"comment":"`, "x", MatchError(ContainSubstring("too large"))},
		"an endless space":            {"[", " ", MatchError(ContainSubstring("too large"))},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			const size = 8 << 20
			stream := roundTrip(func(*http.Request) (*http.Response, error) {
				body := io.MultiReader(strings.NewReader(c.start), strings.NewReader(strings.Repeat(c.element, size/len(c.element))))
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
			})
			client := &Client{HTTP: &http.Client{Transport: stream}, URL: parsed(t, "http://alertmanager")}
			plan := silences.NewPlan(&alerts.Target{Settings: &alerts.Settings{}}, "here", time.Now(), 0)
			matching := silences.NewMatching(nil, "")
			var before, now runtime.MemStats
			largest, n := uint64(0), 0
			err := client.Silences(t.Context(), func(s *silences.Silence) {
				if n == 0 {
					runtime.GC()
					runtime.ReadMemStats(&before)
				}
				if n++; n%1000 == 0 && n < 4000 {
					runtime.GC()
					runtime.ReadMemStats(&now)
					largest = max(largest, now.HeapAlloc)
				}
				plan.Compare(s)
				matching.AddSilence(s)
			})
			g.Expect(err).To(c.err)
			g.Expect(largest).To(BeNumerically("<", before.HeapAlloc+4<<20))
		})
	}
}

// A proxy that redirects to its login page has delivered nothing.
func TestOnlyAnAnswerOfAlertmanagerCounts(t *testing.T) {
	write := func(kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		}
	}
	redirect := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/moved", code) }
	}
	const notAlertmanager = "the answer is not Alertmanager's"
	for sentence, c := range map[string]struct {
		answer, moved http.HandlerFunc
		failure       string // of a write; empty: it succeeds
	}{
		"an empty answer is Alertmanager's":                {answer: func(http.ResponseWriter, *http.Request) {}},
		"JSON is a hub's":                                  {answer: write("application/json", "{}")},
		"a login page is not":                              {answer: write("text/html; charset=utf-8", "<html>"), failure: notAlertmanager},
		"a redirect that repeats the request is followed":  {answer: redirect(http.StatusPermanentRedirect)},
		"a permanent redirect drops the body":              {answer: redirect(http.StatusMovedPermanently), failure: notAlertmanager},
		"a redirect that was found drops it":               {answer: redirect(http.StatusFound), failure: notAlertmanager},
		"one to another page does":                         {answer: redirect(http.StatusSeeOther), failure: notAlertmanager},
		"a page that tells of an error is that error":      {answer: redirect(http.StatusTemporaryRedirect), moved: http.NotFound, failure: "HTTP 404 Not Found"},
		"one to a login page that repeats the request too": {answer: redirect(http.StatusTemporaryRedirect), moved: write("text/html", "<html>"), failure: notAlertmanager},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, bodies := NewWithT(t), []string{}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if body, _ := io.ReadAll(r.Body); len(body) > 0 {
					bodies = append(bodies, string(body))
				}
				if r.URL.Path != "/moved" {
					c.answer(w, r)
				} else if c.moved != nil {
					c.moved(w, r)
				}
			}))
			defer server.Close()
			at := &Server{URL: parsed(t, server.URL), HTTP: promconfig.DefaultHTTPClientConfig}
			client, err := at.NewClient(at.hostPort(), new(net.Dialer))
			g.Expect(err).NotTo(HaveOccurred())
			_, posted := client.PostAlerts(t.Context(), []json.RawMessage{[]byte(`"alert"`)}, time.Second)
			set := client.ChangeSilence(t.Context(), &silences.Call{})
			expired := client.ChangeSilence(t.Context(), &silences.Call{Expire: "id"})
			for _, err := range []error{posted, set, expired} {
				if c.failure == "" {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(HaveOccurred())
					g.Expect(Describe(err)).To(Equal(c.failure))
				}
			}
			g.Expect(bodies).To(ContainElement(`["alert"]`))
		})
	}
}

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
