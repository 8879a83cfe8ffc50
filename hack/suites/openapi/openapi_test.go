package webhookserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	. "github.com/onsi/gomega"
)

// openAPIContract holds requests and answers against the OpenAPI document.
type openAPIContract struct {
	load func() (*openapi3.T, routers.Router)

	mu      sync.Mutex
	checked map[int]int // answers, by status code
}

// contract is what every request of the tests that goes through a bench is held against.
var contract = &openAPIContract{checked: map[int]int{}, load: sync.OnceValues(loadContract)}

func loadContract() (*openapi3.T, routers.Router) {
	document, err := openapi3.NewLoader().LoadFromData(openAPIDocument)
	if err != nil {
		panic(fmt.Sprintf("openapi.yaml: %v", err))
	}
	router, err := legacy.NewRouter(document) // validates the document
	if err != nil {
		panic(fmt.Sprintf("openapi.yaml: %v", err))
	}
	return document, router
}

// serve has the handler answer a request. An answer that the document does not allow is a panic, and so is a request
// that was accepted although the document does not allow it.
func (c *openAPIContract) serve(handler http.Handler, w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	if r.Body != nil {
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.TeeReader(r.Body, &body), r.Body}
	}
	copied := r.Clone(context.Background())
	recorder := &recordedAnswer{ResponseWriter: w}
	handler.ServeHTTP(recorder, r)
	if err := c.check(copied, body.Bytes(), recorder); err != nil {
		panic(fmt.Sprintf("openapi.yaml: %s, answered %d %s: %v", copied.Method, recorder.status, recorder.body.Bytes(), err))
	}
}

// recordedAnswer keeps a copy of what is answered.
type recordedAnswer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (a *recordedAnswer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (a *recordedAnswer) Write(b []byte) (int, error) {
	a.body.Write(b)
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController and http.MaxBytesReader.
func (a *recordedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (c *openAPIContract) check(request *http.Request, body []byte, answer *recordedAnswer) error {
	_, router := c.load()
	c.mu.Lock()
	c.checked[answer.status]++
	c.mu.Unlock()
	if answer.status == http.StatusMethodNotAllowed {
		request.Method = http.MethodPost // which has the answer to the others
	}
	route, params, err := router.FindRoute(request)
	if _, none := errors.AsType[*routers.RouteError](err); none {
		if answer.status != http.StatusNotFound {
			return fmt.Errorf("the document does not have the path: %w", err)
		}
		return nil
	}
	if err != nil || answer.status == http.StatusNotFound {
		return fmt.Errorf("the document has the path %q: %w", route.Path, err)
	}
	input := &openapi3filter.RequestValidationInput{
		Request: request, PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, MultiError: true,
		},
	}
	if answer.status < http.StatusMultipleChoices {
		if err := prepareBody(request, body); err != nil {
			return err
		}
		if err := openapi3filter.ValidateRequest(context.Background(), input); err != nil {
			return fmt.Errorf("the request was accepted: %w", err)
		}
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: answer.status, Header: answer.Header(),
		Body: io.NopCloser(bytes.NewReader(answer.body.Bytes())), Options: input.Options,
	})
}

// prepareBody gives the request the body as the server reads it: without compression, and as JSON if it is no form.
func prepareBody(request *http.Request, body []byte) error {
	if strings.HasSuffix(strings.ToLower(request.Header.Get("Content-Encoding")), "gzip") {
		reader, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return err
		}
		if body, err = io.ReadAll(reader); err != nil {
			return err
		}
	}
	kind, _, _ := strings.Cut(request.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "application/x-www-form-urlencoded", "multipart/form-data":
	default:
		request.Header.Set("Content-Type", "application/json")
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	request.ContentLength = int64(len(body))
	return nil
}

func TestOpenAPIDocumentIsServed(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		recorder := httptest.NewRecorder()
		b.handler.ServeHTTP(recorder, httptest.NewRequest(method, "/openapi.yaml", http.NoBody))
		g.Expect(recorder.Code).To(Equal(http.StatusOK))
		g.Expect(recorder.Header().Get("Content-Type")).To(Equal("application/yaml"))
		g.Expect(recorder.Header().Get("Content-Length")).To(Equal(strconv.Itoa(len(openAPIDocument))))
		if method == http.MethodGet {
			g.Expect(recorder.Body.Bytes()).To(Equal(openAPIDocument))
		}
	}
	recorder := httptest.NewRecorder()
	b.handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/openapi.yaml", strings.NewReader("{}")))
	g.Expect(recorder.Code).To(Equal(http.StatusMethodNotAllowed))
	g.Expect(recorder.Header().Get("Allow")).To(Equal("GET, HEAD"))
}

// documentedProblem is a row of the table in docs/http.md.
var documentedProblem = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (\\d+) \\|")

func TestOpenAPIDocumentHasEveryProblem(t *testing.T) {
	g := NewWithT(t)
	document, _ := contract.load()
	var inDocument, inTable []string
	for code, response := range document.Paths.Value("/api/v1/events/webhook").Post.Responses.Map() {
		problem := response.Value.Content.Get("application/problem+json")
		if problem == nil {
			continue
		}
		for _, kind := range problem.Schema.Value.AllOf[1].Value.Properties["type"].Value.Enum {
			inDocument = append(inDocument, code+" "+strings.TrimPrefix(kind.(string), problemTypePrefix))
		}
	}
	for _, row := range documentedProblem.FindAllStringSubmatch(httpDocs(t), -1) {
		if row[1] != "not-found" { // of paths that the document does not have
			inTable = append(inTable, row[2]+" "+row[1])
		}
	}
	g.Expect(inDocument).To(ConsistOf(inTable))
}

func TestTheContractCatchesWhatItDoesNotAllow(t *testing.T) {
	answers := func(status int, contentType, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	for sentence, test := range map[string]struct {
		handler http.Handler
		path    string
		body    string
	}{
		"a status that is not listed":     {answers(418, "application/problem+json", `{}`), testPath, `{}`},
		"a member that is not listed":     {answers(202, "application/json", `{"status":"accepted","alerts":[],"warnings":[],"token":"x"}`), testPath, `{}`},
		"a problem of another status":     {answers(400, "application/problem+json", `{"type":"tag:tocsin.dev,2026:suspended","title":"","status":400,"detail":""}`), testPath, `{}`},
		"a 503 without Retry-After":       {answers(503, "application/problem+json", `{"type":"tag:tocsin.dev,2026:overloaded","title":"","status":503,"detail":""}`), testPath, `{}`},
		"a path that is not listed":       {answers(202, "application/json", `{"status":"accepted","alerts":[],"warnings":[]}`), "/other", `{}`},
		"an accepted body that is a text": {answers(202, "application/json", `{"status":"accepted","alerts":[],"warnings":[]}`), testPath, `"x"`},
	} {
		t.Run(sentence, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodPost, test.path, strings.NewReader(test.body))
			NewWithT(t).Expect(func() { contract.serve(test.handler, httptest.NewRecorder(), request) }).To(PanicWith(ContainSubstring("openapi.yaml")))
		})
	}
}
