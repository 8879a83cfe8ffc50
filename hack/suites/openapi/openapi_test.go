// Package openapi holds what the tests of the webhook server request, and what they are answered, against the OpenAPI
// document that the server serves.
package openapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/exchanges"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	webhookPath       = "/api/v1/events/webhook"
	testPath          = webhookPath + "/TOKEN"
	problemTypePrefix = "tag:tocsin.dev,2026:"

	// shown is how many exchanges that break the contract are shown.
	shown = 20
)

// contract is the OpenAPI document.
type contract struct {
	document *openapi3.T
	router   routers.Router
}

func load(t *testing.T) *contract {
	t.Helper()
	g := NewWithT(t)
	document, err := openapi3.NewLoader().LoadFromFile(filepath.Join(testenv.Root(), "webhookserver", "openapi.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	router, err := legacy.NewRouter(document) // validates the document
	g.Expect(err).NotTo(HaveOccurred())
	return &contract{document, router}
}

// check says how an exchange breaks the contract: by an answer that the document does not allow, or because a request
// was accepted although the document does not allow it.
func (c *contract) check(e exchanges.Exchange) error {
	address, err := url.Parse(e.URL)
	if err != nil {
		return err
	}
	request := &http.Request{Method: e.Method, URL: address, Host: e.Host, Header: e.Header.Clone()}
	if e.Status == http.StatusMethodNotAllowed {
		request.Method, _, _ = strings.Cut(e.AnswerHeader.Get("Allow"), ",") // which has the answer to the others
	}
	route, params, err := c.router.FindRoute(request)
	if _, none := errors.AsType[*routers.RouteError](err); none {
		if e.Status != http.StatusNotFound {
			return fmt.Errorf("the document does not have the path: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for the path: %w", err)
	}
	responses := route.Operation.Responses
	if e.Status == http.StatusNotFound && responses.Default() == nil && responses.Value("404") == nil {
		return fmt.Errorf("the document has the path %q", route.Path)
	}
	input := &openapi3filter.RequestValidationInput{
		Request: request, PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, MultiError: true,
		},
	}
	binaryEvent := request.Header.Get("Ce-Specversion") != "" // whose body is data of any type
	if e.Status < http.StatusMultipleChoices && !binaryEvent && !saysItIsNotJSON(e) {
		if err := prepareBody(request, e.Body); err != nil {
			return err
		}
		if err := openapi3filter.ValidateRequest(context.Background(), input); err != nil {
			return fmt.Errorf("the request was accepted: %w", err)
		}
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: e.Status, Header: e.AnswerHeader,
		Body: io.NopCloser(bytes.NewReader(e.Answer)), Options: input.Options,
	})
}

// saysItIsNotJSON reports whether the answer warns of a body that no schema can describe.
func saysItIsNotJSON(e exchanges.Exchange) bool {
	return !json.Valid(e.Body) && bytes.Contains(e.Answer, []byte(`"the body is not valid JSON: `))
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

// TestEveryExchangeIsInTheDocument runs the tests of the webhook server and checks every request of theirs.
func TestEveryExchangeIsInTheDocument(t *testing.T) {
	g := NewWithT(t)
	c := load(t)
	file := filepath.Join(t.TempDir(), "exchanges")
	command := exec.CommandContext(t.Context(), "go", "test", "-count=1", "./webhookserver")
	command.Dir = testenv.Root()
	command.Env = append(os.Environ(), exchanges.Variable+"="+file)
	output, err := command.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(output))

	codes, broken := map[int]int{}, 0
	g.Expect(exchanges.Read(file, func(e exchanges.Exchange) {
		codes[e.Status]++
		if err := c.check(e); err != nil {
			if broken++; broken <= shown {
				t.Errorf("%s %s, answered %d %s: %v", e.Method, e.URL, e.Status, e.Answer, err)
			}
		}
	})).To(Succeed())
	g.Expect(broken).To(BeZero())
	for _, code := range []int{200, 202, 400, 401, 404, 405, 413, 415, 422, 503} {
		g.Expect(codes).To(HaveKey(code), "the tests have seen %v", codes)
	}
}

// documentedProblem is a row of the table in docs/http.md.
var documentedProblem = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (\\d+) \\|")

func TestOpenAPIDocumentHasEveryProblem(t *testing.T) {
	g := NewWithT(t)
	c := load(t)
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "http.md"))
	g.Expect(err).NotTo(HaveOccurred())
	var inDocument, inTable []string
	responses := c.document.Paths.Value(webhookPath).Post.Responses.Map()
	responses["404"] = c.document.Paths.Value("/heartbeat/{identifier}").Get.Responses.Value("404")
	for code, response := range responses {
		problem := response.Value.Content.Get("application/problem+json")
		if problem == nil {
			continue
		}
		for _, kind := range problem.Schema.Value.AllOf[1].Value.Properties["type"].Value.Enum {
			inDocument = append(inDocument, code+" "+strings.TrimPrefix(kind.(string), problemTypePrefix))
		}
	}
	for _, row := range documentedProblem.FindAllStringSubmatch(string(page), -1) {
		if row[1] != "not-found" { // of paths that the document does not have
			inTable = append(inTable, row[2]+" "+row[1])
		}
	}
	// One with several reasons has a row for each.
	g.Expect(inDocument).To(ConsistOf(slices.Compact(inTable)))
}

func TestTheContractCatchesWhatItDoesNotAllow(t *testing.T) {
	c := load(t)
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
			e := exchanges.Observe(test.handler, httptest.NewRecorder(), request)
			NewWithT(t).Expect(c.check(e)).NotTo(Succeed())
		})
	}
}
