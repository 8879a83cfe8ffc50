package webhookserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/exchanges"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// restConfig is the configuration for the control plane of the tests that need one.
var restConfig *rest.Config

// libraryLogs are what controller-runtime and client-go log without the manager's logger.
var libraryLogs = &logBuffer{}

func TestMain(m *testing.M) {
	ctrl.SetLogger(libraryLogs.logger())
	klog.SetLogger(libraryLogs.logger())
	os.Exit(testenv.Main(m, func(config *rest.Config) { restConfig = config }))
}

const (
	testToken = "test-token-0123456789"
	testPath  = eventsPath + "/" + testToken
	firing    = `{"title":"Disk full","dedup_key":"disk-1","severity":"critical"}`
)

var alertEvents = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "alertevents"}

// memoryStore is an API server that keeps AlertEvents in memory.
type memoryStore struct {
	mu     sync.Mutex
	events map[string]*v1alpha1.AlertEvent
	order  []string
	calls  int

	// before and after stand around the storing of each create; an error of theirs is the answer.
	before, after func(ctx context.Context, event *v1alpha1.AlertEvent, call int) error
	onGet         func(name string) error
}

func (s *memoryStore) create(ctx context.Context, event *v1alpha1.AlertEvent) error {
	s.mu.Lock()
	s.calls++
	call := s.calls
	s.mu.Unlock()
	if s.before != nil {
		if err := s.before(ctx, event, call); err != nil {
			return err
		}
	}
	if err := s.put(event); err != nil {
		return err
	}
	if s.after != nil {
		return s.after(ctx, event, call)
	}
	return nil
}

func (s *memoryStore) put(event *v1alpha1.AlertEvent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events[event.Name] != nil {
		return apierrors.NewAlreadyExists(alertEvents, event.Name)
	}
	if s.events == nil {
		s.events = map[string]*v1alpha1.AlertEvent{}
	}
	s.events[event.Name] = event.DeepCopy()
	s.order = append(s.order, event.Name)
	return nil
}

func (s *memoryStore) get(_ context.Context, _, name string) (*v1alpha1.AlertEvent, error) {
	if s.onGet != nil {
		if err := s.onGet(name); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if event := s.events[name]; event != nil {
		return event.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(alertEvents, name)
}

// stored returns what was stored, in order.
func (s *memoryStore) stored() []*v1alpha1.AlertEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var events []*v1alpha1.AlertEvent
	for _, name := range s.order {
		events = append(events, s.events[name])
	}
	return events
}

// recordedReports is a reporter that remembers.
type recordedReports struct {
	mu      sync.Mutex
	reasons []string
	texts   []string
}

func (r *recordedReports) report(integration *v1alpha1.WebhookIntegration, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reasons = append(r.reasons, reason)
	r.texts = append(r.texts, integration.Name+": "+message)
}

func (r *recordedReports) reportFailures(integration *v1alpha1.WebhookIntegration, failures []mapping.Failure) {
	for _, failure := range failures {
		r.report(integration, "MappingFailed", failure.Field)
	}
}

// logBuffer takes all logs, whatever their level.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) logger() logr.Logger {
	return funcr.NewJSON(func(line string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.text.WriteString(line + "\n")
	}, funcr.Options{Verbosity: 100})
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// bench is a handler with everything around it in memory.
type bench struct {
	*handler
	store   *memoryStore
	group   *groupCommitter
	reports *recordedReports
	logs    *logBuffer
}

func newBench() *bench {
	b := &bench{store: &memoryStore{}, reports: &recordedReports{}, logs: &logBuffer{}}
	b.group = newGroupCommitter(&writer{store: b.store, metrics: observeWrite}, DefaultMaxInFlightWrites)
	b.handler = &handler{
		maxBodyBytes: DefaultMaxBodyBytes,
		synced:       func() bool { return true },
		tokens:       newTokenIndex(),
		pending:      newPendingCounter(DefaultMaxPendingEvents, v1alpha1.DefaultNamespaceShare),
		incidents:    newIncidentIndex(v1alpha1.Capacity{Limit: DefaultMaxIncidents, Share: v1alpha1.DefaultNamespaceShare}),
		bodies:       newMemoryBudget(bodyShares),
		decoded:      newMemoryBudget(decodedShares),
		mappings:     &mapping.Cache{},
		evaluation:   maxEvaluation,
		admits:       b.group.admits,
		committer:    b.group,
		rejections:   b.reports,
		now:          time.Now,
		log:          b.logs.logger(),
	}
	b.tokens.set(integration("team-a", "prometheus", testToken))
	return b
}

// ServeHTTP has the handler answer. hack/suites/openapi holds request and answer against openapi.yaml.
func (b *bench) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	exchanges.Serve(b.handler, w, r)
}

// post sends a request through the handler and returns the answer.
func (b *bench) post(target, body string, change ...func(*http.Request)) *http.Response {
	request := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	for _, f := range change {
		f(request)
	}
	recorder := httptest.NewRecorder()
	b.ServeHTTP(recorder, request)
	return recorder.Result()
}

// integration makes a WebhookIntegration with tokens that never expire.
func integration(namespace, name string, tokens ...string) *v1alpha1.WebhookIntegration {
	w := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for i, token := range tokens {
		w.Spec.Tokens = append(w.Spec.Tokens,
			v1alpha1.Token{Name: string(rune('a' + i)), SHA256: v1alpha1.TokenHash(token)})
	}
	return w
}

// with sets a header.
func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// problemBody is a problem as the client sees it.
type problemBody struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Offset *int64 `json:"offset"`
	Limit  int64  `json:"limit"`
}

// kind is the part of the type that tells problems apart.
func (p problemBody) kind() string { return strings.TrimPrefix(p.Type, problemTypePrefix) }

// decode reads the body of an answer.
func decode[T any](g *WithT, response *http.Response) T {
	var value T
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(body, &value)).To(Succeed(), "body: %s", body)
	return value
}
