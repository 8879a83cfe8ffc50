package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// conformance has what both API servers, the one in memory and a real one, must do alike: each row sends requests to one of
// them and notes what it sees.
type conformance map[string]struct {
	do   func(s *site)
	want []string
}

// environment is the real control plane, started by the first test that needs it.
var environment *envtest.Environment

var realConfig *rest.Config

func TestMain(m *testing.M) {
	code := m.Run()
	if environment != nil {
		if err := environment.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stopping the control plane: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

var readDefinitions = sync.OnceValues(func() (*apiserver.Definitions, error) {
	return apiserver.ReadDefinitions(os.DirFS(filepath.Join(testenv.Root(), "config", "crd", "bases")))
})

func definitions(tb testing.TB) *apiserver.Definitions {
	tb.Helper()
	definitions, err := readDefinitions()
	if err != nil {
		tb.Fatal(err)
	}
	return definitions
}

// run runs the rows on the server in memory and, if there is one, on a real one.
func (c conformance) run(t *testing.T) {
	t.Helper()
	memory := newMemory(t)
	actual := newReal(t)
	for _, sentence := range slices.Sorted(maps.Keys(c)) {
		for _, provider := range []provider{memory, actual} {
			t.Run(sentence+"/"+provider.name, func(t *testing.T) {
				g := NewWithT(t)
				s := newSite(t, provider)
				c[sentence].do(s)
				g.Expect(s.notes).To(Equal(c[sentence].want), strings.Join(s.notes, "\n"))
			})
		}
	}
}

// provider is one of the two servers, with what a test can do to it beside requests.
type provider struct {
	name   string
	config *rest.Config
	// compact expires the states before this revision.
	compact func(revision string)
	// quota allows this many Incidents, as many as there are.
	quota func(s *site, hard int)
	// deny denies Incidents with the dedup key "denied".
	deny func(s *site)
}

// site is a namespace of its own on one of the servers.
type site struct {
	t *testing.T
	provider
	http      *http.Client
	namespace string
	notes     []string
}

var sites int

func newSite(t *testing.T, p provider) *site {
	t.Helper()
	client, err := rest.HTTPClientFor(p.config)
	if err != nil {
		t.Fatal(err)
	}
	sites++
	s := &site{t: t, provider: p, http: client, namespace: fmt.Sprintf("site-%d", sites)}
	created := s.send("POST", "/api/v1/namespaces", object{"kind": "Namespace", "apiVersion": "v1",
		"metadata": object{"name": s.namespace}})
	if created.code != http.StatusCreated {
		t.Fatal(created.body)
	}
	return s
}

type object = map[string]any

// answer is an answer with its decoded body.
type answer struct {
	code int
	body object
}

// send sends a request; the body may be nil, text, or something for JSON.
func (s *site) send(method, path string, body any, headers ...string) answer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	response := s.open(ctx, method, path, body, headers...)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	a := answer{code: response.StatusCode}
	if err := json.Unmarshal(text, &a.body); err != nil {
		s.t.Fatalf("%s %s: %d %s: %v", method, path, a.code, text, err)
	}
	return a
}

// status returns the code of the answer to a request without a body, whose answer need not be JSON.
func (s *site) status(method, path string) int {
	s.t.Helper()
	response := s.open(s.t.Context(), method, path, nil)
	_ = response.Body.Close()
	return response.StatusCode
}

func (s *site) open(ctx context.Context, method, path string, body any, headers ...string) *http.Response {
	s.t.Helper()
	var content io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		content = strings.NewReader(body)
	default:
		text, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(s.config.Host, "/")+path, content)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "conformance/v1")
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.http.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	return response
}

// path is that of a collection, or of an object or more below it.
func (s *site) path(plural string, more ...string) string {
	return "/apis/tocsin.dev/v1alpha1/namespaces/" + s.namespace + "/" + strings.Join(append([]string{plural}, more...), "/")
}

// note notes what a row sees.
func (s *site) note(format string, args ...any) {
	s.notes = append(s.notes, s.plain(fmt.Sprintf(format, args...)))
}

var (
	uids      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	revisions = regexp.MustCompile(`\b[0-9]+\b`)
)

// plain replaces what differs between two servers in a text: the namespace and UIDs.
func (s *site) plain(text string) string { return uids.ReplaceAllString(s.plainNamespace(text), "UID") }

func (s *site) plainNamespace(text string) string {
	return strings.ReplaceAll(text, s.namespace, "NAMESPACE")
}

// String is the code and, of a failure, the reason and the causes.
func (a answer) String() string {
	text := fmt.Sprint(a.code)
	if a.body["kind"] != "Status" || a.body["status"] == metav1.StatusSuccess {
		return text
	}
	text += fmt.Sprintf(" %v", a.body["reason"])
	details, _ := a.body["details"].(object)
	causes, _ := details["causes"].([]any)
	var lines []string
	for _, cause := range causes {
		cause, _ := cause.(object)
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%v %v", orEmpty(cause["reason"]), orEmpty(cause["field"]))))
	}
	slices.Sort(lines)
	if len(lines) > 0 {
		text += ": " + strings.Join(lines, ", ")
	}
	return text
}

// message is the message of a failure without numbers.
func (a answer) message() string {
	return revisions.ReplaceAllString(uids.ReplaceAllString(fmt.Sprint(a.body["message"]), "UID"), "N")
}

func orEmpty(value any) any {
	if value == nil {
		return ""
	}
	return value
}

// at returns a field of the body.
func (a answer) at(path ...string) any { return at(a.body, path...) }

func at(value any, path ...string) any {
	for _, name := range path {
		parent, _ := value.(object)
		value = parent[name]
	}
	return value
}

// with returns a deep copy of an object with a field set, or removed by nil.
func with(from object, value any, path ...string) object {
	text, _ := json.Marshal(from)
	var to object
	_ = json.Unmarshal(text, &to)
	parent := to
	for _, name := range path[:len(path)-1] {
		child, ok := parent[name].(object)
		if !ok {
			child = object{}
			parent[name] = child
		}
		parent = child
	}
	if value == nil {
		delete(parent, path[len(path)-1])
	} else {
		parent[path[len(path)-1]] = value
	}
	return to
}

func resource(kind, name string, spec object) object {
	return object{"apiVersion": "tocsin.dev/v1alpha1", "kind": kind, "metadata": object{"name": name}, "spec": spec}
}

func alertEvent(name string) object {
	return resource("AlertEvent", name, object{"integrationName": "app", "alerts": `[{"dedupKey":"key","incidentName":"app-key","status":"firing","title":"Disk full"}]`})
}

func incident(name string) object {
	return resource("Incident", name, object{"integrationName": "app", "dedupKey": name})
}

func integration(name string) object {
	return resource("WebhookIntegration", name, object{"lateFiringWindow": "30s"})
}

// create creates an object and returns it as it is stored.
func (s *site) create(plural string, o object) answer {
	s.t.Helper()
	a := s.send("POST", s.path(plural), o)
	if a.code != http.StatusCreated {
		s.t.Fatalf("creating %v: %v", o, a.body)
	}
	return a
}

// await repeats a request until it answers this code.
func (s *site) await(code int, request func() answer) {
	s.t.Helper()
	var a answer
	err := testenv.AwaitThat(s.t.Context(), 30*time.Second, fmt.Sprintf("no answer has the code %d", code),
		func(context.Context) bool {
			a = request()
			return a.code == code
		})
	if err != nil {
		s.t.Fatal(err, a)
	}
}
