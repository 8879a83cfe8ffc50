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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/exchanges"
	"github.com/tocsin-dev/tocsin/hack/lib/memorystore"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/tokens"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
	"github.com/tocsin-dev/tocsin/webhookserver/heartbeat"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
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

const firing = `{"title":"Disk full","dedup_key":"disk-1","severity":"critical"}`

// testToken is the token of the bench's integration.
var (
	testToken = testenv.Token("team-a", "prometheus")
	testPath  = eventsPath + "/" + testToken
)

// recordedReports is a reporter that remembers.
type recordedReports struct {
	mu          sync.Mutex
	reasons     []string
	texts       []string
	unavailable []types.NamespacedName
	signals     []heartbeat.Signal

	failureError error // of writing a failure
}

func (r *recordedReports) reportRejection(integration *v1alpha1.WebhookIntegration, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reasons = append(r.reasons, reason)
	r.texts = append(r.texts, integration.Name+": "+message)
}

func (r *recordedReports) reportFailures(integration *v1alpha1.WebhookIntegration, failures []mapping.Failure) {
	for _, failure := range failures {
		r.reportRejection(integration, "MappingFailed", failure.Field)
	}
}

func (r *recordedReports) reportHandshake(integration *v1alpha1.WebhookIntegration, message string) {
	r.reportRejection(integration, "Handshake", message)
}

func (r *recordedReports) reportUnavailable(integration types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unavailable = append(r.unavailable, integration)
}

func (r *recordedReports) addReport(report feature.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	heard, _ := report.(heartbeat.Signal)
	r.signals = append(r.signals, heard)
}

func (r *recordedReports) writeReport(_ context.Context, report feature.Report) error {
	r.addReport(report)
	return r.failureError
}

func (*recordedReports) reportUse(*v1alpha1.WebhookIntegration, *v1alpha1.Token) {}

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
	store   *memorystore.Store
	live    client.Client // what the API server has
	group   *commit.Committer
	reports *recordedReports
	beats   *heartbeat.Listener
	logs    *logBuffer
}

func newBench() *bench {
	b := &bench{store: &memorystore.Store{}, reports: &recordedReports{}, beats: heartbeat.New(), logs: &logBuffer{}}
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	b.live = fake.NewClientBuilder().WithScheme(scheme).Build()
	b.group = commit.New(b.store, DefaultMaxInFlightWrites, nil)
	options := Options{Features: []feature.Feature{b.beats}}.withDefaults()
	ready := func() bool { return true }
	b.handler = newHandler(options, ready, newTokenIndex(), b.group, b.live, b.reports, b.logs.logger())
	b.tokens.set(integration("team-a", "prometheus"))
	return b
}

// timeFunc is a Clock and a Health that tells the time by a function.
type timeFunc func() time.Time

func (f timeFunc) Now() time.Time            { return f() }
func (f timeFunc) APITime() time.Time        { return f() }
func (timeFunc) Missed(types.NamespacedName) {}
func (timeFunc) IsCutOff() bool              { return false }

// limit gives the bench other limits.
func (b *bench) limit(limits capacity.Limits) {
	b.options.Capacity = capacity.New(limits, nil, b.options.Clock)
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

// integration makes a WebhookIntegration with tokens that never expire, by default its testenv.Token.
func integration(namespace, name string, secrets ...string) *v1alpha1.WebhookIntegration {
	w := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if len(secrets) == 0 {
		w.Spec.Tokens = testenv.Tokens(namespace, name)
	}
	for i, token := range secrets {
		w.Spec.Tokens = append(w.Spec.Tokens,
			v1alpha1.Token{Name: string(rune('a' + i)), SHA256: tokens.Hash(token)})
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
func (p problemBody) kind() string { return strings.TrimPrefix(p.Type, protocol.ProblemTypePrefix) }

// decode reads the body of an answer.
func decode[T any](g *WithT, response *http.Response) T {
	var value T
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(json.Unmarshal(body, &value)).To(Succeed(), "body: %s", body)
	return value
}
