package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

func incidentNamed(namespace, name string) *v1alpha1.Incident {
	opened := v1alpha1.NewTimestamp(time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC))
	return &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "mon", DedupKey: name},
		Status: v1alpha1.IncidentStatus{
			State: v1alpha1.IncidentOpen, OpenedTime: &opened, LastAlertTime: &opened, AlertCount: 1,
			Alert: v1alpha1.AlertContent{
				Title: "Title of " + name, Severity: v1alpha1.SeverityCritical, Description: "What it is about.",
				Labels: map[string]string{"team": "storage", "n": "7"}, Custom: v1alpha1.Bag{"secret": []byte(`"detail"`)},
			},
			Ledger: v1alpha1.Ledger{ResourceVersion: "5"},
		},
	}
}

// fakeClient is a cluster in memory, which does not stream lists.
type fakeClient struct{ client.WithWatch }

// IsWatchListSemanticsUnSupported tells the informer.
func (fakeClient) IsWatchListSemanticsUnSupported() bool { return true }

func newFake(objects ...client.Object) fakeClient {
	create := func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
		if review, ok := object.(*authenticationv1.SelfSubjectReview); ok {
			review.Status.UserInfo.Username = "maria"
			return nil
		}
		return c.Create(ctx, object, options...)
	}
	return fakeClient{fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{Create: create}).Build()}
}

// start starts a server whose cluster has the given Incidents.
func start(t *testing.T, namespace string, objects ...client.Object) (*Server, client.Client) {
	t.Helper()
	c := newFake(objects...)
	s, err := ForOwner(t.Context(), c, Options{Namespace: namespace})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, logr.Discard()) }()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Expect(<-done).To(Succeed())
	})
	NewWithT(t).Eventually(s.owner().watch.feed.Synced, "10s", "10ms").Should(BeTrue())
	return s, c
}

// owner is the access of a page for one user.
func (s *Server) owner() *owner { return s.access.(*owner) }

// base is the server's address without the key.
func (s *Server) base() string { return strings.TrimSuffix(s.URL(), "#key="+s.owner().key) }

func (s *Server) get(t *testing.T, path string, change func(*http.Request)) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base()+path, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+s.owner().key)
	if change != nil {
		change(request)
	}
	response, err := http.DefaultClient.Do(request)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func TestWhoMayAsk(t *testing.T) {
	s, _ := start(t, "", incidentNamed("shop", "a"))
	for sentence, test := range map[string]struct {
		path   string
		change func(*http.Request)
		code   int
	}{
		"the page is there for everybody on the machine": {"", func(r *http.Request) { r.Header.Del("Authorization") }, 200},
		"so is its script":                               {"app.js", func(r *http.Request) { r.Header.Del("Authorization") }, 200},
		"the data are there with the key":                {"api/incidents/shop/a", nil, 200},
		"without the key they are not":                   {"api/incidents/shop/a", func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"nor with another key":                           {"api/stream", func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401},
		"nor with the key in the address":                {"api/counts?hours=1&key=" + s.owner().key, func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"localhost is a name of this host":               {"", func(r *http.Request) { r.Host = strings.Replace(r.URL.Host, "127.0.0.1", "localhost", 1) }, 200},
		"a name that was made to point here is rejected": {"", func(r *http.Request) { r.Host = "rebound.example.com" }, 421},
		"also with the right port and the key":           {"api/incidents/shop/a", func(r *http.Request) { r.Host = "rebound.example.com:" + r.URL.Port() }, 421},
		"another port is another page":                   {"", func(r *http.Request) { r.Host = "127.0.0.1:1" }, 421},
		"nothing can be posted":                          {"api/incidents/shop/a", func(r *http.Request) { r.Method = http.MethodPost }, 405},
		"nor deleted":                                    {"api/incidents/shop/a", func(r *http.Request) { r.Method = http.MethodDelete }, 405},
		"an incident that is not there is not found":     {"api/incidents/shop/none", nil, 404},
		"a name that none can have is rejected":          {"api/incidents/shop/a%2Fb", nil, 400},
		"the files of the folder are not listed as one":  {"static/", nil, 404},
		"there is no way up":                             {"..%2fserver.go", nil, 404},
		"hours are a number":                             {"api/counts?hours=x", nil, 400},
		"and not endless":                                {"api/counts?hours=100000", nil, 400},
		"what there is no data for is not found":         {"api/secrets", nil, 404},
	} {
		t.Run(sentence, func(t *testing.T) {
			NewWithT(t).Expect(s.get(t, test.path, test.change).StatusCode).To(Equal(test.code))
		})
	}
}

func TestHeaders(t *testing.T) {
	g := NewWithT(t)
	s, _ := start(t, "")
	for _, path := range []string{"", "none.js", "api/none"} { // what is not there has them as well
		header := s.get(t, path, nil).Header
		g.Expect(header.Get("Content-Security-Policy")).To(And(
			HavePrefix("default-src 'none'; script-src 'self';"), ContainSubstring("require-trusted-types-for 'script'"),
			ContainSubstring("frame-ancestors 'none'"), Not(ContainSubstring("unsafe"))))
		g.Expect(header.Get("X-Content-Type-Options")).To(Equal("nosniff"))
		g.Expect(header.Get("Referrer-Policy")).To(Equal("no-referrer"))
		g.Expect(header).NotTo(HaveKey("Access-Control-Allow-Origin"))
	}
	g.Expect(s.get(t, "", nil).Header.Get("Cache-Control")).To(Equal("no-store"))
	g.Expect(s.get(t, "api/none", func(r *http.Request) { r.Host = "x" }).Header).To(HaveKey("Content-Security-Policy"))
}

// The policy allows the page, which makes no markup of texts.
func TestThePageMakesNoMarkup(t *testing.T) {
	g := NewWithT(t)
	page, err := static.ReadFile("static/index.html")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(page)).NotTo(MatchRegexp(`(?i)<style|style=|\son\w+=|<script[^>]*>[^<]|https?://`))
	scripts, err := fs.Glob(static, "static/*.js")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(scripts)).To(BeNumerically(">", 5))
	for _, name := range scripts {
		script, err := static.ReadFile(name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(script)).NotTo(MatchRegexp(
			`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|srcdoc|import\(`), name)
		for _, id := range regexp.MustCompile(`\$\("([\w-]+)"\)`).FindAllStringSubmatch(string(script), -1) {
			g.Expect(string(page)).To(ContainSubstring(`id="`+id[1]+`"`), name)
		}
	}
}

func TestIncident(t *testing.T) {
	g := NewWithT(t)
	s, _ := start(t, "shop", incidentNamed("shop", "a"), incidentNamed("bank", "b"))
	g.Expect(s.owner().watch.feed.Incidents()).To(HaveLen(1), "the namespace's only")
	body, err := io.ReadAll(s.get(t, "api/incidents/shop/a", nil).Body)
	g.Expect(err).NotTo(HaveOccurred())
	var incident v1alpha1.Incident
	g.Expect(json.Unmarshal(body, &incident)).To(Succeed())
	g.Expect(incident.Status.Alert.Custom).To(HaveKey("secret"), "the page of one incident has everything of it")
	g.Expect(incident.Status.Ledger).To(BeZero(), "but what is the operator's own")
}

func TestOpenIncidentsForPrograms(t *testing.T) {
	g := NewWithT(t)
	mild, resolved := incidentNamed("bank", "b"), incidentNamed("shop", "r")
	mild.Status.Alert.Severity = v1alpha1.SeverityInfo
	resolved.Status.State = v1alpha1.IncidentResolved
	s, _ := start(t, "", mild, incidentNamed("shop", "a"), resolved)
	response := s.get(t, "api/incidents", nil)
	g.Expect(response.Header.Get("Content-Type")).To(Equal("application/json"))
	var rows []openIncident
	g.Expect(json.NewDecoder(response.Body).Decode(&rows)).To(Succeed())
	g.Expect(rows).To(HaveLen(2))
	g.Expect(rows[0].Path).To(Equal("incidents/shop/a"))
	g.Expect(rows[0].Title).To(Equal("Title of a"))
	g.Expect(rows[1].Path).To(Equal("incidents/bank/b"), "the most urgent first")
	g.Expect(s.get(t, rows[0].Path, nil).StatusCode).To(Equal(http.StatusOK), "the path leads to the page")
}

// The dashboard reads what the page serves: its address, and fields with values of the types that the columns have.
func TestTheDashboardOfTheOpenIncidents(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "components", "page", "grafana.json"))
	g.Expect(err).NotTo(HaveOccurred())
	var dashboard struct {
		Panels []struct {
			Targets []struct {
				URL        string
				URLOptions struct{ Params []struct{ Key string } } `json:"url_options"`
				Columns    []struct{ Selector, Type string }
			}
		}
	}
	g.Expect(json.Unmarshal(content, &dashboard)).To(Succeed())
	incident := incidentNamed("shop", "a")
	incident.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue}}
	incident.Status.Acknowledgement = &v1alpha1.Acknowledgement{By: "maria", Severity: v1alpha1.SeverityCritical}
	s, _ := start(t, "", incident)
	target := dashboard.Panels[0].Targets[0]
	g.Expect(target.URLOptions.Params).To(HaveLen(1))
	g.Expect(target.URLOptions.Params[0].Key).To(Equal("scope"))
	var rows []map[string]any
	g.Expect(json.NewDecoder(s.get(t, strings.TrimPrefix(target.URL, "/")+"?scope=", nil).Body).Decode(&rows)).To(Succeed())
	g.Expect(rows).To(HaveLen(1))
	types := map[string]any{"string": "", "timestamp": "", "number": 0.0, "boolean": false}
	for _, column := range target.Columns {
		g.Expect(rows[0][column.Selector]).To(BeAssignableToTypeOf(types[column.Type]), column.Selector)
		if column.Type == "timestamp" {
			_, err := time.Parse(time.RFC3339, rows[0][column.Selector].(string))
			g.Expect(err).NotTo(HaveOccurred())
		}
	}
	g.Expect(string(content)).To(ContainSubstring("${page}/${__data.fields.path:raw}"), "the link of a title")
}

func TestStream(t *testing.T) {
	g := NewWithT(t)
	s, c := start(t, "", incidentNamed("shop", "a"), incidentNamed("bank", "b"))
	lines := bufio.NewScanner(s.get(t, "api/stream", nil).Body)
	// next is the next message with rows.
	next := func() message {
		for lines.Scan() {
			var m message
			g.Expect(json.Unmarshal(lines.Bytes(), &m)).To(Succeed())
			if len(m.Rows) > 0 {
				return m
			}
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return message{}
	}
	m := next()
	g.Expect(m.Whole).To(BeTrue())
	g.Expect(m.Synced).To(BeTrue())
	g.Expect(m.Scope).To(BeEmpty())
	g.Expect(m.Age).To(BeNumerically("<", 10))
	g.Expect(m.Command).To(Equal("kubectl tocsin"))
	g.Expect(m.Rows).To(HaveLen(2))
	for _, r := range m.Rows {
		g.Expect(r.Labels).To(Equal(map[string]string{"team": "storage", "n": "7"}))
	}
	for _, incident := range s.owner().watch.feed.Incidents() {
		g.Expect(incident.Status.Alert.Custom).To(BeEmpty(), "what the list does not show is not kept")
	}

	g.Expect(c.Create(t.Context(), incidentNamed("shop", "c"))).To(Succeed())
	m = next()
	g.Expect(m.Whole).To(BeFalse())
	g.Expect(m.Rows).To(HaveLen(1))
	g.Expect(m.Rows[0].Title).To(Equal("Title of c"))
	g.Expect(c.Delete(t.Context(), incidentNamed("shop", "c"))).To(Succeed())
	m = next()
	g.Expect(m.Rows[0].Gone).To(BeTrue())
	g.Expect(m.Rows[0].Name).To(Equal("c"))
}

// The rows of a large list come in parts, each with its own deadline: the first one replaces all, and the last one says that it is all.
func TestTheFirstRowsComeInParts(t *testing.T) {
	g := NewWithT(t)
	var objects []client.Object
	for i := range 2*rowChunk + 1 {
		objects = append(objects, incidentNamed("shop", fmt.Sprint("i", i)))
	}
	s, c := start(t, "", objects...)
	lines := json.NewDecoder(s.get(t, "api/stream", nil).Body)
	names := map[string]bool{}
	for i, want := range []message{{Whole: true}, {}, {Synced: true}} {
		var m message
		g.Expect(lines.Decode(&m)).To(Succeed())
		g.Expect(m.Whole).To(Equal(want.Whole), "message %d", i)
		g.Expect(m.Synced).To(Equal(want.Synced), "message %d", i)
		g.Expect(len(m.Rows)).To(And(BeNumerically(">", 0), BeNumerically("<=", rowChunk)))
		for _, one := range m.Rows {
			names[one.Name] = true
		}
	}
	g.Expect(names).To(HaveLen(len(objects)))
	// From then on all messages are of a list that is complete.
	const deleted = 50 // the fake watch has room for 100
	for _, object := range objects[:deleted] {
		g.Expect(c.Delete(t.Context(), object)).To(Succeed())
	}
	for gone := 0; gone < deleted; {
		var m message
		g.Expect(lines.Decode(&m)).To(Succeed())
		g.Expect(m.Whole).To(BeFalse())
		g.Expect(m.Synced).To(BeTrue())
		g.Expect(len(m.Rows)).To(BeNumerically("<=", rowChunk))
		gone += len(m.Rows)
	}
}

func TestListenOnATakenPort(t *testing.T) {
	g := NewWithT(t)
	s, _ := start(t, "")
	_, err := ForOwner(t.Context(), newFake(), Options{Port: s.listener.Addr().(*net.TCPAddr).Port})
	g.Expect(err).To(MatchError(ContainSubstring("address already in use")))
	recorder := httptest.NewRecorder()
	s.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodHead, s.base(), nil))
	g.Expect(recorder.Code).To(Equal(http.StatusOK))
}

// An incident that the API server does not give is an error that says so, after seconds, and without an address.
func TestIncidentWhileTheAPIServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		s := &Server{access: newOwner(interceptor.NewClient(newFake(), interceptor.Funcs{
			Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				<-ctx.Done()
				return &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/apis", Err: ctx.Err()}
			},
		}), "")}
		request := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:1/api/incidents/shop/a", nil)
		request.Header.Set("Authorization", "Bearer "+s.owner().key)
		recorder := httptest.NewRecorder()
		begun := time.Now()
		s.Handler().ServeHTTP(recorder, request)
		g.Expect(time.Since(begun)).To(Equal(readTimeout))
		g.Expect(recorder.Code).To(Equal(http.StatusGatewayTimeout))
		g.Expect(recorder.Body.String()).To(MatchJSON(`{"error": "the API server does not respond"}`))
	})
}
