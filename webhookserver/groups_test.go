package webhookserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// largeGroup is a body of Alertmanager's with as many alerts as a request may have, of so many bytes each, most of which are their descriptions.
func largeGroup(size int) string {
	alerts := make([]string, mapping.MaxAlerts)
	for i := range alerts {
		before := fmt.Sprintf(`{"status":"firing","labels":{"alertname":"PodCrashLooping","namespace":"shop-%d","pod":"web-%d","severity":"warning"},`+
			`"annotations":{"summary":"web-%d restarts again and again","description":"`, i%7, i, i)
		after := fmt.Sprintf(`"},"startsAt":"2026-03-01T11:52:08.32Z","endsAt":"0001-01-01T00:00:00Z",`+
			`"generatorURL":"http://prometheus.example/graph?g0.expr=rate","fingerprint":"%016x"}`, i)
		var text strings.Builder
		for n := i; text.Len() < size-len(before)-len(after); n++ {
			fmt.Fprintf(&text, "Container %x of pod web-%d restarted %d times. ", n*n*7919, i, n)
		}
		alerts[i] = before + text.String()[:size-len(before)-len(after)] + after
	}
	return `{"receiver":"tocsin","status":"firing","alerts":[` + strings.Join(alerts, ",") + `],"groupLabels":{"alertname":"PodCrashLooping"},` +
		`"commonLabels":{},"commonAnnotations":{},"externalURL":"http://alertmanager.example","version":"4","groupKey":"{}:{}","truncatedAlerts":0}`
}

// TestALargeGroupIsAccepted posts as many alerts as a request may have, of 2 KiB each, as presets with groups.
func TestALargeGroupIsAccepted(t *testing.T) {
	for _, preset := range []string{"alertmanager", "grafana", mapping.Auto} {
		t.Run(preset, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			groups := integration("team-a", "groups")
			groups.Spec.Preset = preset
			b.tokens.set(groups)
			body := largeGroup(2 << 10)
			g.Expect(len(body)).To(BeNumerically(">", mapping.MaxAlerts*2<<10))
			response := b.post(eventsPath+"/"+testenv.Token("team-a", "groups"), body)
			g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
			var answer struct {
				Alerts   []any
				Warnings []any
			}
			g.Expect(json.NewDecoder(response.Body).Decode(&answer)).To(Succeed())
			g.Expect(answer.Alerts).To(HaveLen(mapping.MaxAlerts))
			g.Expect(answer.Warnings).To(BeEmpty(), "nothing was cut or left out")
			events := b.store.Stored()
			g.Expect(events).To(HaveLen(1))
			for i := range events[0].Alerts {
				g.Expect(len(events[0].Alerts[i].Description)).To(BeNumerically(">", 1<<10))
				g.Expect(events[0].Alerts[i].Annotations).To(HaveKey("description"))
			}
			g.Expect(len(events[0].Spec.Alerts)).To(BeNumerically("<", 1<<20), "what etcd stores")
			t.Logf("%d bytes are stored as %d", len(body), len(events[0].Spec.Alerts))
		})
	}
}

// TestTheLimitOfBodiesDependsOnThePreset: only senders of groups may post more.
func TestTheLimitOfBodiesDependsOnThePreset(t *testing.T) {
	for name, c := range map[string]struct {
		preset   string
		maxBytes int64
		want     int64
	}{
		"a preset with groups":                      {"alertmanager", DefaultMaxBodyBytes, maxLargeBody},
		"a preset that is recognized":               {mapping.Auto, DefaultMaxBodyBytes, maxLargeBody},
		"a preset without groups":                   {"datadog", DefaultMaxBodyBytes, DefaultMaxBodyBytes},
		"no preset: one may be recognized":          {"", DefaultMaxBodyBytes, maxLargeBody},
		"a preset of large bodies":                  {"sentry", DefaultMaxBodyBytes, maxLargeBody},
		"a preset that does not exist":              {"nothing", DefaultMaxBodyBytes, DefaultMaxBodyBytes},
		"a lower limit holds for groups, too":       {"alertmanager", 16 << 10, 128 << 10},
		"a limit above that of groups is not lower": {"alertmanager", 8 << 20, 8 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			i := &v1alpha1.WebhookIntegration{}
			i.Spec.Preset = c.preset
			h := &handler{options: Options{MaxBodyBytes: c.maxBytes}}
			a := &arrived{Request: httptest.NewRequest(http.MethodPost, testPath, http.NoBody), operation: &protocol.Operation{}}
			NewWithT(t).Expect(h.bodyLimit(&authenticated{arrived: a, integration: i}, false)).To(Equal(c.want))
		})
	}
	t.Run("beyond it", func(t *testing.T) {
		g := NewWithT(t)
		b := newBench()
		groups := integration("team-a", "groups")
		groups.Spec.Preset = "alertmanager"
		b.tokens.set(groups)
		response := b.post(eventsPath+"/"+testenv.Token("team-a", "groups"), strings.Repeat(" ", maxLargeBody+1))
		g.Expect(response.StatusCode).To(Equal(http.StatusRequestEntityTooLarge))
	})
}

// largeList is a list of so many alerts of a kilobyte, as Prometheus posts them.
func largeList(count int) string {
	alerts := make([]string, count)
	for i := range alerts {
		alerts[i] = fmt.Sprintf(`{"labels":{"alertname":"A","pod":"web-%d"},"annotations":{"description":%q},"startsAt":"2026-03-01T11:53:00Z",`+
			`"generatorURL":""}`, i, strings.Repeat(fmt.Sprintf("pod %d ", i), 100))
	}
	return "[" + strings.Join(alerts, ",") + "]"
}

// largeReport is a report of Trivy's with so many vulnerabilities of a kilobyte.
func largeReport(count int) string {
	found := make([]string, count)
	for i := range found {
		found[i] = fmt.Sprintf(`{"vulnerabilityID":"CVE-2026-%d","resource":"libc%d","severity":"HIGH","installedVersion":"1.%d","title":%q,`+
			`"links":["https://avd.aquasec.com/nvd/cve-2026-%d"],"score":7.5}`, i, i, i, strings.Repeat(fmt.Sprintf("flaw %d ", i), 100), i)
	}
	return `{"apiVersion":"aquasecurity.github.io/v1alpha1","kind":"VulnerabilityReport","metadata":{"name":"web","namespace":"shop"},` +
		`"report":{"updateTimestamp":"2026-03-01T11:53:00Z","summary":{"criticalCount":0,"highCount":500,"mediumCount":0,"lowCount":0},` +
		`"vulnerabilities":[` + strings.Join(found, ",") + `]}}`
}

// TestTheLimitOfBodiesFollowsTheRecognizedPreset posts to an integration that names no preset.
func TestTheLimitOfBodiesFollowsTheRecognizedPreset(t *testing.T) {
	long := strings.Repeat("x", DefaultMaxBodyBytes)
	for sentence, c := range map[string]struct {
		body    string
		path    string
		chunked bool
		code    int
	}{
		"a group of Alertmanager's":                   {body: largeGroup(1 << 10), code: http.StatusAccepted},
		"a report of Trivy's":                         {body: largeReport(500), code: http.StatusAccepted},
		"a group whose length is not announced":       {body: largeGroup(1 << 10), chunked: true, code: http.StatusRequestEntityTooLarge},
		"a list to Alertmanager's API, not announced": {body: largeList(500), path: "/api/v2/alerts", chunked: true, code: http.StatusAccepted},
		"an alert of our own format":                  {body: `{"title":"` + long + `"}`, code: http.StatusRequestEntityTooLarge},
		"an alert of a preset whose bodies are small": {body: `{"alert_transition":"Triggered","alert_type":"error","text":"` + long + `"}`, code: http.StatusRequestEntityTooLarge},
		"no JSON": {body: long + "x", code: http.StatusRequestEntityTooLarge},
		"a group beyond what any preset reads as such": {body: largeGroup(5 << 10), code: http.StatusRequestEntityTooLarge},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			g.Expect(len(c.body)).To(BeNumerically(">", DefaultMaxBodyBytes))
			request := httptest.NewRequest(http.MethodPost, testPath, strings.NewReader(c.body))
			if c.chunked {
				request.ContentLength = -1
			}
			request.URL.Path += c.path
			recorder := httptest.NewRecorder()
			b.ServeHTTP(recorder, request)
			g.Expect(recorder.Code).To(Equal(c.code), recorder.Body.String())
			if c.code != http.StatusAccepted {
				g.Expect(b.store.Stored()).To(BeEmpty())
			}
		})
	}
}

// TestALargeGroupIsTriedAgain has the server fail before it knows the preset of a group. Alertmanager gives up for good what is rejected
// as too large.
func TestALargeGroupIsTriedAgain(t *testing.T) {
	for sentence, test := range map[string]struct {
		kind  string
		spoil func(g *WithT, b *bench)
	}{
		"when no processor is free": {"busy", func(g *WithT, b *bench) {
			b.places = fair.NewPlaces(1)
			_, err := b.places.Enter(context.Background(), "team-b", 0)
			g.Expect(err).NotTo(HaveOccurred())
		}},
		"when others have the memory": {"overloaded", func(g *WithT, b *bench) {
			sender := types.NamespacedName{Namespace: "team-a", Name: "prometheus"}
			g.Expect(b.decoded.Reserve(sender, maxDecodedMemory/4, 0)).NotTo(BeNil())
		}},
		"when its evaluation takes too long": {"mapping-timeout", func(_ *WithT, b *bench) { b.evaluation = 0 }},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, b := NewWithT(t), newBench()
				test.spoil(g, b)
				response := b.post(testPath, largeGroup(1<<10))
				g.Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
				g.Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
				g.Expect(decode[problemBody](g, response).kind()).To(Equal(test.kind))
				g.Expect(b.reports.unavailable).To(HaveLen(1), "its Incidents are not quiet")
			})
		})
	}
}
