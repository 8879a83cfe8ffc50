package webhookserver

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

func TestIdempotencyKeys(t *testing.T) {
	long := strings.Repeat("k", maxIdempotencyKeyLength+1)
	for name, test := range map[string]struct {
		headers map[string]string
		key     string
		refused bool
	}{
		"no header":               {},
		"Idempotency-Key":         {headers: map[string]string{"Idempotency-Key": " abc "}, key: "abc"},
		"a blank Idempotency-Key": {headers: map[string]string{"Idempotency-Key": "  "}},
		"a long Idempotency-Key":  {headers: map[string]string{"Idempotency-Key": long}, refused: true},
		"Standard Webhooks": {

			headers: map[string]string{"webhook-id": "msg_1", "webhook-timestamp": "17"}, key: "Webhook-Id: msg_1"},
		"a Webhook-Id of somebody else": {headers: map[string]string{"webhook-id": "subscription"}},
		"Svix":                          {headers: map[string]string{"svix-id": "msg_1"}, key: "Svix-Id: msg_1"},
		"GitHub": {
			headers: map[string]string{"X-GitHub-Delivery": "guid"}, key: "X-Github-Delivery: guid"},
		"Atlassian": {
			headers: map[string]string{"X-Atlassian-Webhook-Identifier": "7"}, key: "X-Atlassian-Webhook-Identifier: 7"},
		"Amazon SNS": {
			headers: map[string]string{"x-amz-sns-message-id": "uuid"}, key: "X-Amz-Sns-Message-Id: uuid"},
		"a CloudEvent without its source":  {headers: map[string]string{"ce-id": "1"}},
		"a delivery header that is long":   {headers: map[string]string{"svix-id": long}},
		"the user's own key over another":  {headers: map[string]string{"svix-id": "msg_1", "Idempotency-Key": "own"}, key: "own"},
		"PagerDuty's id of a subscription": {headers: map[string]string{"X-Webhook-Id": "subscription"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			header := http.Header{}
			for name, value := range test.headers {
				header.Set(name, value)
			}
			key, p := idempotencyKey(header)
			g.Expect(p != nil).To(Equal(test.refused))
			g.Expect(key).To(Equal(test.key))
		})
	}
}

func TestRepeatedRequests(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	body := `{"title":"no dedup key"}`
	first := decode[acceptance](g, b.post(testPath, body, with("Idempotency-Key", "k1")))
	g.Expect(v1alpha1.IsKeyedEventName(first.Event)).To(BeTrue())
	again := b.post(testPath, body, with("Idempotency-Key", "k1"))
	g.Expect(again.StatusCode).To(Equal(http.StatusAccepted))
	g.Expect(decode[acceptance](g, again)).To(Equal(first), "the generated dedup key is the same as well")
	g.Expect(b.store.Stored()).To(HaveLen(1))

	compressed := b.post(testPath, gzipped(body), with("Idempotency-Key", "k1"), with("Content-Encoding", "gzip"))
	g.Expect(compressed.StatusCode).To(Equal(http.StatusAccepted), "the same body, compressed")

	conflict := b.post(testPath, `{"title":"another"}`, with("Idempotency-Key", "k1"))
	g.Expect(conflict.StatusCode).To(Equal(http.StatusUnprocessableEntity))
	g.Expect(decode[problemBody](g, conflict).kind()).To(Equal("idempotency-conflict"))
	g.Expect(b.reports.reasons).To(Equal([]string{"IdempotencyConflict"}))

	other := decode[acceptance](g, b.post(testPath, body, with("Idempotency-Key", "k2")))
	g.Expect(other.Alerts[0].DedupKey).NotTo(Equal(first.Alerts[0].DedupKey))
	g.Expect(b.store.Stored()).To(HaveLen(2))
}

func TestIdempotencyKeysOfIntegrationsAreTheirOwn(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	b.tokens.set(integration("team-a", "grafana"))
	g.Expect(b.post(testPath, firing, with("Idempotency-Key", "k")).StatusCode).To(Equal(http.StatusAccepted))
	g.Expect(b.post(eventsPath+"/"+testenv.Token("team-a", "grafana"), `{}`, with("Idempotency-Key", "k")).StatusCode).To(Equal(http.StatusAccepted))
	g.Expect(b.store.Stored()).To(HaveLen(2))
}

// TestKeysOfRoutesAreTheirOwn sends one body under one key to several routes: none is a copy of another.
func TestKeysOfRoutesAreTheirOwn(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	key := with("Idempotency-Key", "k")
	put := func(r *http.Request) { r.Method = http.MethodPut }
	requests := []func() *http.Response{
		func() *http.Response { return b.post(testPath, firing, key) },
		func() *http.Response {
			return b.post(testPath+"/v2/enqueue", `{"payload": {"summary": "Disk full"}}`, key)
		},
		func() *http.Response { return b.post(testPath+"/v2/alerts/disk-1/close", firing, key) },
		func() *http.Response { return b.post(testPath+"/v2/alerts/disk-2/close", firing, key) },
		func() *http.Response { return b.post(testPath+"/v2/alerts/disk-1/tags", firing, key) },
		func() *http.Response { return b.post(testPath+"/v2/alerts/disk-1/tags", firing, key, put) },
	}
	for i, send := range requests {
		for range 2 {
			g.Expect(send().StatusCode).To(Equal(http.StatusAccepted))
			g.Expect(b.store.Stored()).To(HaveLen(i + 1))
		}
	}
	ids := map[string]bool{}
	for _, event := range b.store.Stored() {
		ids[event.Alerts[0].ID] = true
	}
	g.Expect(ids).To(HaveLen(len(requests)))
}

// TestAnotherQueryIsAnotherRequest sends one body under one key with fields in the query.
func TestAnotherQueryIsAnotherRequest(t *testing.T) {
	const first, body = "?status=firing&dedup_key=x", `{"title":"Disk full"}`
	for sentence, test := range map[string]struct {
		query string
		code  int
	}{
		"the same fields are a copy":                    {first, http.StatusAccepted},
		"so are the same fields by other names":         {"?dedupKey=x&status=firing", http.StatusAccepted},
		"a parameter that is no field is of no account": {first + "&attempt=2", http.StatusAccepted},
		"another value of a field is another request":   {"?status=resolved&dedup_key=x", http.StatusUnprocessableEntity},
		"a field more is another request":               {first + "&severity=info", http.StatusUnprocessableEntity},
		"without the fields it is another request":      {"", http.StatusUnprocessableEntity},
		"the fields in another order are a copy":        {"?dedup_key=x&status=firing", http.StatusAccepted},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, b := NewWithT(t), newBench()
			key := with("Idempotency-Key", "k")
			g.Expect(b.post(testPath+first, body, key).StatusCode).To(Equal(http.StatusAccepted))
			g.Expect(b.post(testPath+test.query, body, key).StatusCode).To(Equal(test.code))
			g.Expect(b.store.Stored()).To(HaveLen(1))
		})
	}
}

// TestIDsStayTheSameAcrossVersions: a copy that another version has stored would otherwise be taken for another request.
func TestIDsStayTheSameAcrossVersions(t *testing.T) {
	g, b := NewWithT(t), newBench()
	answer := decode[acceptance](g, b.post(testPath, firing, with("Idempotency-Key", "k")))
	g.Expect(answer.Alerts[0].ID).To(Equal("b8bff4cc03c904f7313dc60f11db3640"))
}

func TestManyCopiesOfARequestGiveOneEvent(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	var wait sync.WaitGroup
	answers := make([]string, 100)
	for i := range answers {
		wait.Go(func() {
			response := b.post(testPath, `{"title":"x"}`, with("Idempotency-Key", "k"))
			body := decode[acceptance](NewWithT(t), response)
			answers[i] = fmt.Sprint(response.StatusCode, body)
		})
	}
	wait.Wait()
	for _, answer := range answers {
		g.Expect(answer).To(Equal(answers[0]))
	}
	g.Expect(answers[0]).To(HavePrefix("202"))
	g.Expect(b.store.Stored()).To(HaveLen(1))
}
