package webhookserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/memorystore"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
)

func gzipped(body string) string {
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	_, _ = io.WriteString(w, body)
	_ = w.Close()
	return buffer.String()
}

func TestAcceptedRequests(t *testing.T) {
	for name, test := range map[string]struct {
		target string
		body   string
		change []func(*http.Request)
	}{
		"a JSON object with the token in the path": {body: firing},
		"the token as Bearer beside the path": {
			target: eventsPath, body: firing, change: []func(*http.Request){with("Authorization", "Bearer "+testToken)}},
		"the scheme of Authorization in lower case": {
			target: eventsPath + "/", body: firing, change: []func(*http.Request){with("Authorization", "bearer "+testToken)}},
		"a token in the path wins over an Authorization header that a proxy added": {
			body: firing, change: []func(*http.Request){with("Authorization", "Basic eHg6eXk=")}},
		"a slash behind the token":                       {target: testPath + "/", body: firing},
		"the path that Prometheus puts behind the token": {target: testPath + "/api/v2/alerts", body: firing},
		"the path that Prometheus puts behind the address, the token as Bearer": {
			target: eventsPath + "/api/v2/alerts", body: firing, change: []func(*http.Request){with("Authorization", "Bearer "+testToken)}},
		"text/plain":      {body: firing, change: []func(*http.Request){with("Content-Type", "text/plain")}},
		"no Content-Type": {body: firing, change: []func(*http.Request){with("Content-Type", "")}},
		"JSON that curl -d labels as a form": {
			body: firing, change: []func(*http.Request){with("Content-Type", "application/x-www-form-urlencoded")}},
		"a form with the JSON in payload": {
			body:   url.Values{"payload": {firing}}.Encode(),
			change: []func(*http.Request){with("Content-Type", "application/x-www-form-urlencoded")}},
		"a form with the JSON in data": {
			body:   url.Values{"data": {firing}}.Encode(),
			change: []func(*http.Request){with("Content-Type", "application/x-www-form-urlencoded")}},
		"a form with the fields of the alert": {
			body:   url.Values{"title": {"Disk full"}, "dedup_key": {"disk-1"}, "status": {"firing"}}.Encode(),
			change: []func(*http.Request){with("Content-Type", "application/x-www-form-urlencoded")}},
		"JSON that was encoded twice":       {body: strconv.Quote(firing)},
		"JSON with a line feed in a string": {body: strings.Replace(firing, `{`, "{\"description\":\"a\nb\",", 1)},
		"a line of JSON":                    {body: firing + "\n", change: []func(*http.Request){with("Content-Type", "application/x-ndjson; charset=utf-8")}},
		"gzip":                              {body: gzipped(firing), change: []func(*http.Request){with("Content-Encoding", "gzip")}},
		"the encoding identity":             {body: firing, change: []func(*http.Request){with("Content-Encoding", "Identity")}},
		"a body of unknown length": {
			body: firing, change: []func(*http.Request){func(r *http.Request) { r.ContentLength = -1 }}},
		"dryRun=false": {target: testPath + "?dryRun=false", body: firing},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			if test.target == "" {
				test.target = testPath
			}
			response := b.post(test.target, test.body, test.change...)
			g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
			g.Expect(response.Header.Get("Content-Type")).To(Equal("application/json"))
			body := decode[acceptance](g, response)
			incident := v1alpha1.IncidentName("prometheus", "disk-1")
			g.Expect(body.Status).To(Equal("accepted"))
			g.Expect(b.store.Stored()).To(HaveLen(1))
			event := b.store.Stored()[0]
			g.Expect(body.Alerts).To(HaveExactElements(
				acceptedAlert{
					ID: event.Alerts[0].ID, DedupKey: "disk-1", Incident: "team-a/" + incident, Status: v1alpha1.AlertFiring,
				}))
			g.Expect(event.Name).To(Equal(body.Event))
			g.Expect(event.Spec.IntegrationName).To(Equal("prometheus"))
			g.Expect(event.Spec.ReceivedTime.Time).To(BeTemporally("~", time.Now(), time.Minute))
			g.Expect(event.Alerts).To(HaveLen(1))
			g.Expect(event.Alerts[0].IncidentName).To(Equal(incident))
			g.Expect(event.Alerts[0].ID).NotTo(BeEmpty())
			g.Expect(b.reports.reasons).To(BeEmpty())
		})
	}
}

func TestRefusedRequests(t *testing.T) {
	long := strings.Repeat("x", DefaultMaxBodyBytes)
	for name, test := range map[string]struct {
		method  string
		target  string
		body    string
		headers map[string]string
		prepare func(*bench)
		status  int
		kind    string
		reason  string // in the status of the integration
		extra   func(*WithT, *http.Response, problemBody)
	}{
		"a text that is no JSON but begins like it": {body: strconv.Quote("{" + firing), status: 400, kind: "not-an-object", reason: "NotAnObject"},
		"an unknown token":                          {target: eventsPath + "/nobody", body: firing, status: 401, kind: "unauthorized"},
		"no token at all":                           {target: eventsPath, body: firing, status: 401, kind: "unauthorized"},
		"a token longer than any": {
			target: eventsPath + "/" + strings.Repeat("t", maxTokenLength+1), body: firing, status: 401, kind: "unauthorized"},
		"a scheme other than Bearer": {
			target: eventsPath, headers: map[string]string{"Authorization": "Basic " + testToken}, status: 401, kind: "unauthorized"},
		"an expired token": {body: firing, status: 401, kind: "unauthorized", reason: "TokenExpired", prepare: func(b *bench) {
			w := integration("team-a", "prometheus")
			past := v1alpha1.NewTimestamp(time.Now().Add(-time.Second))
			w.Spec.Tokens[0].ExpirationTime = &past
			b.tokens.set(w)
		}},
		"a revoked token": {body: firing, status: 401, kind: "unauthorized", prepare: func(b *bench) {
			b.tokens.set(integration("team-a", "prometheus", "another"))
		}},
		"a deleted integration": {body: firing, status: 401, kind: "unauthorized", prepare: func(b *bench) {
			b.tokens.remove(integration("team-a", "prometheus"))
		}},
		"a suspended integration": {body: firing, status: 403, kind: "suspended", reason: "Suspended", prepare: func(b *bench) {
			w := integration("team-a", "prometheus")
			w.Spec.Suspend = true
			b.tokens.set(w)
		}},
		"GET": {method: http.MethodGet, status: 405, kind: "method-not-allowed", reason: "MethodNotAllowed",
			extra: func(g *WithT, r *http.Response, _ problemBody) {
				g.Expect(r.Header.Get("Allow")).To(Equal("POST, OPTIONS"))
			}},
		"PUT with an unknown token": {method: http.MethodPut, target: eventsPath + "/nobody", status: 405, kind: "method-not-allowed"},
		"another path":              {target: "/api/v1/events", body: firing, status: 404, kind: "not-found"},
		"a path that only begins like the endpoint": {
			target: eventsPath + "s/" + testToken, body: firing, status: 404, kind: "not-found"},
		"more path behind the token": {target: testPath + "/api/v2/silences", body: firing, status: 404, kind: "not-found"},
		"malformed JSON, with its offset": {body: `{"title": oops}`, status: 400, kind: "malformed-json", reason: "MalformedJSON",
			extra: func(g *WithT, _ *http.Response, p problemBody) {
				g.Expect(p.Offset).NotTo(BeNil())
				g.Expect(*p.Offset).To(BeNumerically("~", 11, 1))
			}},
		"a truncated body":     {body: `{"title": "x"`, status: 400, kind: "malformed-json", reason: "MalformedJSON"},
		"data behind the JSON": {body: firing + "x", status: 400, kind: "malformed-json", reason: "MalformedJSON"},
		"a list of no objects": {body: `[1]`, status: 400, kind: "not-an-object", reason: "NotAnObject"},
		"a string":             {body: `"x"`, status: 400, kind: "not-an-object", reason: "NotAnObject"},
		"an empty body":        {status: 400, kind: "empty-body", reason: "EmptyBody"},
		"a blank body":         {body: " \r\n", status: 400, kind: "empty-body", reason: "EmptyBody"},
		"nested deeper than 64": {body: strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), status: 400,
			kind: "nested-too-deep", reason: "NestedTooDeep"},
		"a body over the limit": {body: `{"title": "` + long + `"}`, status: 413, kind: "body-too-large", reason: "BodyTooLarge",
			extra: func(g *WithT, _ *http.Response, p problemBody) {
				g.Expect(p.Limit).To(BeEquivalentTo(DefaultMaxBodyBytes))
			}},
		"a body over the limit after gzip": {body: gzipped(`{"title": "` + long + `"}`),
			headers: map[string]string{"Content-Encoding": "gzip"}, status: 413, kind: "body-too-large", reason: "BodyTooLarge"},
		"broken gzip": {body: firing, headers: map[string]string{"Content-Encoding": "gzip"}, status: 400,
			kind: "malformed-gzip", reason: "MalformedGzip"},
		"truncated gzip": {body: gzipped(firing)[:20], headers: map[string]string{"Content-Encoding": "gzip"}, status: 400,
			kind: "malformed-gzip", reason: "MalformedGzip"},
		"an empty gzip body": {headers: map[string]string{"Content-Encoding": "gzip"}, status: 400,
			kind: "empty-body", reason: "EmptyBody"},
		"another Content-Encoding": {body: firing, headers: map[string]string{"Content-Encoding": "br"}, status: 415,
			kind: "unsupported-encoding", reason: "UnsupportedEncoding"},
		"gzip twice": {body: firing, headers: map[string]string{"Content-Encoding": "gzip, gzip"}, status: 415,
			kind: "unsupported-encoding", reason: "UnsupportedEncoding"},
		"an Idempotency-Key that is too long": {
			body: firing, status: 400, kind: "invalid-idempotency-key", reason: "InvalidIdempotencyKey",
			headers: map[string]string{"Idempotency-Key": strings.Repeat("k", maxIdempotencyKeyLength+1)}},
		"a dryRun that is neither true nor false": {target: testPath + "?dryRun=All", body: firing, status: 400,
			kind: "invalid-parameter", reason: "InvalidParameter"},
		"caches that are not synced": {body: firing, status: 503, kind: "not-ready", prepare: func(b *bench) {
			b.ready = func() bool { return false }
		}},
		"an unknown token while caches are not synced": {target: eventsPath + "/nobody", body: firing, status: 503, kind: "not-ready",
			prepare: func(b *bench) { b.ready = func() bool { return false } }},
		"too many pending AlertEvents": {body: firing, status: 503, kind: "namespace-full", reason: "NamespaceFull",
			prepare: func(b *bench) {
				b.limit(capacity.Limits{Events: 4})
				b.options.Capacity.SetEvent(&v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a"}}, false)
			}},
		"a new key at the limit of Incidents": {body: firing, status: 503, kind: "incident-limit", reason: "IncidentLimit",
			prepare: func(b *bench) {
				b.limitIncidents(4, "another")
			}},
		"queues that are full": {body: firing, status: 503, kind: "overloaded", prepare: func(b *bench) {
			b.committer = refusing{}
		}},
		"a panic": {body: firing, status: 500, kind: "internal-error", prepare: func(b *bench) {
			b.committer = panicking{}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			if test.prepare != nil {
				test.prepare(b)
			}
			if test.target == "" {
				test.target = testPath
			}
			response := b.post(test.target, test.body, func(r *http.Request) {
				if test.method != "" {
					r.Method = test.method
				}
				for key, value := range test.headers {
					r.Header.Set(key, value)
				}
			})
			g.Expect(response.StatusCode).To(Equal(test.status))
			g.Expect(response.Header.Get("Content-Type")).To(Equal("application/problem+json"))
			p := decode[problemBody](g, response)
			g.Expect(p.kind()).To(Equal(test.kind))
			g.Expect(p.Status).To(Equal(test.status))
			g.Expect(p.Title).NotTo(BeEmpty())
			g.Expect(p.Detail).NotTo(BeEmpty())
			g.Expect(response.Header.Get("Retry-After") != "").To(Equal(test.status == http.StatusServiceUnavailable))
			g.Expect(response.Header.Get("WWW-Authenticate") != "").To(Equal(test.status == http.StatusUnauthorized))
			if test.extra != nil {
				test.extra(g, response, p)
			}
			var reasons []string
			if test.reason != "" {
				reasons = []string{test.reason}
			}
			g.Expect(b.reports.reasons).To(Equal(reasons))
			g.Expect(b.store.Stored()).To(BeEmpty())
			g.Expect(b.logs.String()).NotTo(ContainSubstring(testToken))
		})
	}
}

func TestStoreThatFails(t *testing.T) {
	terminating := memorystore.ServerError(403, metav1.StatusReasonForbidden, "namespace is being terminated")
	terminating.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}
	for name, test := range map[string]struct {
		err    error
		after  bool // the object was stored all the same
		status int
		kind   string
	}{
		"refused connections":  {err: &net.OpError{Op: "dial", Err: errors.New("refused")}, status: 503, kind: "not-stored"},
		"a reply that is lost": {err: io.ErrUnexpectedEOF, status: 503, kind: "outcome-unknown"},
		"internal errors": {
			err: memorystore.ServerError(500, metav1.StatusReasonInternalError, "etcd"), status: 503, kind: "outcome-unknown"},
		"too many requests":       {err: apierrors.NewTooManyRequests("later", 60), status: 503, kind: "not-stored"},
		"a terminating namespace": {err: terminating, status: 503, kind: "not-stored"},
		"a namespace that is gone": {
			err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "x"), status: 503, kind: "not-stored"},
		"a missing permission": {err: apierrors.NewForbidden(memorystore.AlertEvents, "x", errors.New("no")), status: 503, kind: "not-stored"},
		"expired credentials":  {err: apierrors.NewUnauthorized("who"), status: 503, kind: "not-stored"},
		"an object that is invalid": {
			err: memorystore.SchemaError("spec.\x1b[1m"), status: 422, kind: "rejected"},
		"an object that somebody calls invalid": {
			err: memorystore.ServerError(422, metav1.StatusReasonInvalid, "spec: \x1b[1mInvalid"), status: 503, kind: "refused"},
		"an object that is too large": {
			err: apierrors.NewRequestEntityTooLargeError("etcd"), status: 422, kind: "rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			b.committer = committerFunc(func(ctx context.Context, s commit.Submission) (commit.Receipt, error) {
				ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // does not change the outcome, only the wait
				defer cancel()
				return commit.New(b.store, 1, nil).Commit(ctx, s)
			})
			b.store.Before = func(context.Context, *v1alpha1.AlertEvent, int) error { return test.err }
			response := b.post(testPath, firing)
			g.Expect(response.StatusCode).To(Equal(test.status))
			p := decode[problemBody](g, response)
			g.Expect(p.kind()).To(Equal(test.kind))
			g.Expect(p.Detail).NotTo(ContainSubstring("\x1b"))
			g.Expect(response.Header.Get("Retry-After") != "").To(Equal(test.status == 503))
			g.Expect(b.store.Stored()).To(BeEmpty())
		})
	}
}

// committerFunc is a committer that is a function.
type committerFunc func(context.Context, commit.Submission) (commit.Receipt, error)

func (f committerFunc) Commit(ctx context.Context, s commit.Submission) (commit.Receipt, error) {
	return f(ctx, s)
}

func (committerFunc) CheckSpace(types.NamespacedName) error { return nil }

func (committerFunc) Find(context.Context, types.NamespacedName) (commit.Receipt, error) {
	return commit.Receipt{}, nil
}

func TestDryRunStoresNothing(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	response := b.post(testPath+"?dryRun=true", `{"subject":"Disk full","dedup_key":"d","node":"n1","severity":"odd"}`)
	g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	body := decode[acceptance](g, response)
	g.Expect(body.Status).To(Equal("dryRun"))
	g.Expect(body.Event).To(BeEmpty())
	g.Expect(body.Alerts).To(HaveLen(1))
	g.Expect(body.Alerts[0].Alert.Title).To(Equal("Disk full"))
	g.Expect(body.Alerts[0].Alert.Custom).To(HaveKey("node"))
	g.Expect(body.Warnings).To(ContainElement(HaveField("Field", "severity")))
	g.Expect(b.store.Stored()).To(BeEmpty())
}

func TestGeneratedDedupKeyIsReturned(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	first := decode[acceptance](g, b.post(testPath, `{"title":"x"}`))
	second := decode[acceptance](g, b.post(testPath, `{"title":"x"}`))
	g.Expect(first.Alerts[0].DedupKey).NotTo(BeEmpty())
	g.Expect(first.Alerts[0].DedupKey).NotTo(Equal(second.Alerts[0].DedupKey))
	g.Expect(b.store.Stored()[0].Alerts[0].DedupKey).To(Equal(first.Alerts[0].DedupKey))
}

func TestUnauthorizedAnswersAreUniform(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	expired := integration("team-a", "old")
	past := v1alpha1.NewTimestamp(time.Now().Add(-time.Hour))
	expired.Spec.Tokens[0].ExpirationTime = &past
	b.tokens.set(expired)
	var answers []string
	for _, token := range []string{testenv.Token("team-a", "nobody"), testenv.Token("team-b", "old"), testenv.Token("team-a", "old")} {
		response := b.post(eventsPath+"/"+token, firing)
		body, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		var headers bytes.Buffer
		g.Expect(response.Header.Write(&headers)).To(Succeed())
		answers = append(answers, headers.String()+string(body))
	}
	g.Expect(answers[1]).To(Equal(answers[0]))
	g.Expect(answers[2]).To(Equal(answers[0]))
}

// refusing is a committer without capacity.
type refusing struct{ committer }

func (refusing) CheckSpace(types.NamespacedName) error { return commit.ErrOverloaded }

// panicking is a committer with a bug.
type panicking struct{ committer }

func (panicking) CheckSpace(types.NamespacedName) error { panic("with " + testToken) }

// untouchable is a body that must not be read.
type untouchable struct{ t *testing.T }

func (u untouchable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func TestBodyStaysUnread(t *testing.T) {
	for name, prepare := range map[string]func(*bench, *http.Request){
		"before the token is known good": func(_ *bench, r *http.Request) { r.URL.Path = eventsPath + "/nobody" },
		"while caches are not synced":    func(b *bench, _ *http.Request) { b.ready = func() bool { return false } },
		"under overload": func(b *bench, _ *http.Request) {
			b.limit(capacity.Limits{Events: 1, Share: 1})
			b.options.Capacity.SetEvent(&v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a"}}, false)
		},
		"with queues full":                  func(b *bench, _ *http.Request) { b.committer = refusing{} },
		"when its length is over the limit": func(_ *bench, r *http.Request) { r.ContentLength = maxLargeBody + 1 },
		"in another encoding":               func(_ *bench, r *http.Request) { r.Header.Set("Content-Encoding", "br") },
		"with another method":               func(_ *bench, r *http.Request) { r.Method = http.MethodPut },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			request := httptest.NewRequest(http.MethodPost, testPath, untouchable{t})
			prepare(b, request)
			recorder := httptest.NewRecorder()
			b.ServeHTTP(recorder, request)
			g.Expect(recorder.Code).To(BeNumerically(">=", 400))
			g.Expect(recorder.Header().Get("Connection")).To(Equal("close"), "or net/http reads the rest")
		})
	}
}
