package webhookserver

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// limitIncidents gives the cluster a limit and the namespace team-a an Incident.
func (b *bench) limitIncidents(limit int, name string) {
	b.limit(capacity.Limits{Incidents: limit})
	b.options.Capacity.SetIncident(&v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}, false)
}

// blockIncidents has the API server reject new Incidents of the namespace team-a.
func (b *bench) blockIncidents() {
	w := integration("team-a", "prometheus")
	w.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionAlertsFolded, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonQuotaExceeded},
	}
	b.tokens.set(w)
}

func TestAtTheLimitOfIncidentsOnlyNewKeysAreRefused(t *testing.T) {
	known := v1alpha1.IncidentName("prometheus", "known")
	for name, test := range map[string]struct {
		body   string
		limit  int
		status int
		kind   string
		stored []string // keys
	}{
		"a new key":                          {`{"dedup_key":"new"}`, 4, 503, "incident-limit", nil},
		"a new key, and another namespace's": {`{"dedup_key":"new"}`, 8, 202, "", []string{"new"}},
		"no key":                             {`{"title":"x"}`, 4, 503, "incident-limit", nil},
		"a known key":                        {`{"dedup_key":"known"}`, 4, 202, "", []string{"known"}},
		"a resolve of an unknown key":        {`{"dedup_key":"other","status":"resolved"}`, 4, 202, "", []string{"other"}},
		"an acknowledgement":                 {`{"dedup_key":"other","status":"acknowledged"}`, 4, 202, "", []string{"other"}},
		"a new key among others": {
			`[{"dedup_key":"known"},{"dedup_key":"new"},{"dedup_key":"old","status":"resolved"}]`, 4, 503, "incident-limit",
			[]string{"known", "old"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			b.limitIncidents(test.limit, known)
			response := b.post(testPath, test.body)
			g.Expect(response.StatusCode).To(Equal(test.status))
			var stored []string
			for _, event := range b.store.Stored() {
				for i := range event.Alerts {
					stored = append(stored, event.Alerts[i].DedupKey)
				}
			}
			slices.Sort(stored)
			g.Expect(stored).To(Equal(test.stored))
			if test.status == 503 {
				g.Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
				g.Expect(decode[problemBody](g, response).kind()).To(Equal(test.kind))
				g.Expect(b.reports.reasons).To(ConsistOf("IncidentLimit"))
			}
		})
	}
}

func TestWhereAQuotaRejectsIncidentsNewKeysAreRefused(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.blockIncidents()
	g.Expect(b.post(testPath, `{"dedup_key":"new"}`).StatusCode).To(Equal(503))
	b.limitIncidents(capacity.DefaultIncidents, v1alpha1.IncidentName("prometheus", "known"))
	g.Expect(b.post(testPath, `{"dedup_key":"known"}`).StatusCode).To(Equal(202))
}

// TestAKeyedRequestIsStoredOnceInParts posts copies of a request while its alerts may be stored, or need Incidents for which there is no
// capacity. Each alert is stored once, and an answer tells of all that are stored.
func TestAKeyedRequestIsStoredOnceInParts(t *testing.T) {
	const all, a, ab, b, none = "a b c", "a", "a b", "b", ""
	for sentence, test := range map[string]struct {
		storable []string // in each copy
		status   []int
		stored   []string // the keys in each AlertEvent
	}{
		"whole, and again":                                      {[]string{all, all}, []int{202, 202}, []string{all}},
		"in part, and again":                                    {[]string{a, a, a}, []int{503, 503, 503}, []string{a}},
		"in part, then whole, and again":                        {[]string{a, all, all}, []int{503, 202, 202}, []string{a, "b c"}},
		"in ever more parts":                                    {[]string{a, ab, all, all}, []int{503, 503, 202, 202}, []string{a, b, "c"}},
		"in part, then in another part":                         {[]string{a, b, b, all}, []int{503, 503, 503, 202}, []string{a, b, "c"}},
		"whole, and again when the limit came":                  {[]string{all, a}, []int{202, 202}, []string{all}},
		"whole, and again when nothing can be stored":           {[]string{all, none}, []int{202, 202}, []string{all}},
		"in two parts, and again when nothing can be stored":    {[]string{a, all, none}, []int{503, 202, 202}, []string{a, "b c"}},
		"in part, again when nothing can be stored, then whole": {[]string{a, none, all}, []int{503, 503, 202}, []string{a, "b c"}},
		"when nothing can be stored, then whole":                {[]string{none, all}, []int{503, 202}, []string{all}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, bench := NewWithT(t), newBench()
			const body = `[{"dedup_key":"a"},{"dedup_key":"b"},{"dedup_key":"c"}]`
			for copied, storable := range test.storable {
				bench.limitIncidents(4, "another")
				if storable == all {
					bench.limitIncidents(400, "another")
				}
				for key := range strings.FieldsSeq(storable) {
					bench.options.Capacity.SetIncident(&v1alpha1.Incident{
						ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: v1alpha1.IncidentName("prometheus", key)}}, false)
				}
				response := bench.post(testPath, body, with("Idempotency-Key", "k"))
				g.Expect(response.StatusCode).To(Equal(test.status[copied]), "copy %d", copied)
				if response.StatusCode == http.StatusAccepted {
					accepted := decode[acceptance](g, response)
					g.Expect(accepted.Event).To(Equal(v1alpha1.KeyedEventName("prometheus", "k")))
					g.Expect(keysOf(accepted.Alerts, func(alert acceptedAlert) string { return alert.DedupKey })).To(Equal(all))
				}
			}
			var stored []string
			for _, event := range bench.store.Stored() {
				g.Expect(v1alpha1.IsKeyedEventName(event.Name)).To(BeTrue())
				stored = append(stored, keysOf(event.Alerts, func(alert v1alpha1.Alert) string { return alert.DedupKey }))
			}
			g.Expect(stored).To(Equal(test.stored))
			bench.limitIncidents(400, "another")
			other := bench.post(testPath, `[{"dedup_key":"a"},{"dedup_key":"b"}]`, with("Idempotency-Key", "k"))
			g.Expect(decode[problemBody](g, other).kind()).To(Equal("idempotency-conflict"))
			g.Expect(bench.store.Stored()).To(HaveLen(len(test.stored)))
		})
	}
}

// keysOf returns the dedup keys of alerts, with spaces between them.
func keysOf[T any](alerts []T, key func(T) string) string {
	var keys []string
	for _, alert := range alerts {
		keys = append(keys, key(alert))
	}
	return strings.Join(keys, " ")
}

// TestTheAnswerAtTheLimitTellsOfAnEarlierCopy has the answer to a request lost; its alert waits while the namespace reaches its limit.
func TestTheAnswerAtTheLimitTellsOfAnEarlierCopy(t *testing.T) {
	for sentence, test := range map[string]struct {
		copied string
		get    error
		status int
		kind   string
	}{
		"the same request is stored":    {`{"dedup_key":"new"}`, nil, 202, ""},
		"another request has the key":   {`{"dedup_key":"other"}`, nil, 422, "idempotency-conflict"},
		"what is stored cannot be read": {`{"dedup_key":"new"}`, errors.New("the API server is away"), 503, "outcome-unknown"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, b := NewWithT(t), newBench()
			g.Expect(b.post(testPath, `{"dedup_key":"new"}`, with("Idempotency-Key", "k")).StatusCode).To(Equal(202))
			b.limitIncidents(4, "another")
			b.store.OnGet = func(string) error { return test.get }
			response := b.post(testPath, test.copied, with("Idempotency-Key", "k"))
			g.Expect(response.StatusCode).To(Equal(test.status))
			if test.kind != "" {
				g.Expect(decode[problemBody](g, response).kind()).To(Equal(test.kind))
			}
			g.Expect(b.store.Stored()).To(HaveLen(1))
			g.Expect(b.bodies).To(Equal(fair.NewSpace(maxBodyMemory)))
		})
	}
}

func TestGeneratedKeysAreRecognised(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.post(testPath, `{"title":"x"}`)
	b.post(testPath, `{"title":"x"}`, with("Idempotency-Key", "k"))
	b.post(testPath, firing)
	var generated []bool
	for _, event := range b.store.Stored() {
		generated = append(generated, v1alpha1.IsGeneratedKey(event.Alerts[0].DedupKey))
	}
	g.Expect(generated).To(Equal([]bool{true, true, false}))
	g.Expect(v1alpha1.IsGeneratedKey("tocsin:disk")).To(BeFalse())
	g.Expect(v1alpha1.IsGeneratedKey("019b76da-a800-7000-8000-000000000001")).To(BeFalse())
}
