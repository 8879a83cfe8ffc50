package alertmanager

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

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
			plan := silences.NewPlan(&alerts.Target{Settings: &alerts.Settings{}}, "here", time.Now())
			matching := silences.NewMatching(nil)
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

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
