package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

var definitions = sync.OnceValues(func() (*apiserver.Definitions, error) {
	return apiserver.ReadDefinitions(os.DirFS(filepath.Join(testenv.Root(), "config", "crd", "bases")))
})

// site is an API server in memory, whose user is maria. It folds AlertEvents by deleting them.
type site struct {
	apiserver.NoFaults
	client.Client
	t      *testing.T
	url    string
	arrive func(ctx context.Context, call *apiserver.Call) (*metav1.Status, error) // nil: as usual

	mu      sync.Mutex
	reports []v1alpha1.Report
}

func newSite(t *testing.T) *site {
	t.Helper()
	g := NewWithT(t)
	defined, err := definitions()
	g.Expect(err).NotTo(HaveOccurred())
	memory, err := apiserver.New(apiserver.Options{Definitions: defined})
	g.Expect(err).NotTo(HaveOccurred())
	memory.CreateNamespaces("shop", "web", "inc", "incidents")
	s := &site{t: t}
	s.Client, err = client.New(memory.Config("test", nil), client.Options{Scheme: testenv.Scheme(), Mapper: newMapper()})
	g.Expect(err).NotTo(HaveOccurred())
	handler := memory.Handler("plugin", s)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"maria"}}}`)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// Arrive implements apiserver.Faults.
func (s *site) Arrive(ctx context.Context, call *apiserver.Call) (*metav1.Status, error) {
	if s.arrive == nil {
		return nil, nil
	}
	return s.arrive(ctx, call)
}

// Leave implements apiserver.Faults.
func (s *site) Leave(ctx context.Context, call *apiserver.Call, _ int) error {
	if call.Verb != "create" || call.Resource != "alertevents.tocsin.dev" {
		return nil
	}
	events := &v1alpha1.AlertEventList{}
	if err := s.List(ctx, events); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range events.Items {
		s.reports = append(s.reports, *events.Items[i].Spec.Report)
		if err := s.Delete(ctx, &events.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// open creates an open Incident.
func (s *site) open(namespace, key string, severity v1alpha1.Severity, content v1alpha1.AlertContent) *v1alpha1.Incident {
	s.t.Helper()
	g := NewWithT(s.t)
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.IncidentName("mon", key)},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "mon", DedupKey: key},
	}
	g.Expect(s.Create(s.t.Context(), incident)).To(Succeed())
	at := v1alpha1.NewTimestamp(time.Now())
	content.Severity = severity
	incident.Status = v1alpha1.IncidentStatus{
		State: v1alpha1.IncidentOpen, Alert: content, AlertCount: 1, OpenedTime: &at, LastAlertTime: &at,
		Timeline: []v1alpha1.Transition{{Type: v1alpha1.TransitionOpened, Time: at, Message: "Opened: " + cut(content.Title, 100)}},
	}
	g.Expect(s.Status().Update(s.t.Context(), incident)).To(Succeed())
	return incident
}

// resolve resolves an Incident.
func (s *site) resolve(name string) {
	s.t.Helper()
	g := NewWithT(s.t)
	incident := &v1alpha1.Incident{}
	g.Expect(s.Get(s.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, incident)).To(Succeed())
	at := v1alpha1.NewTimestamp(time.Now())
	incident.Status.State, incident.Status.ResolvedTime = v1alpha1.IncidentResolved, &at
	incident.Status.Episode = &v1alpha1.Episode{Number: 1, StartTime: at}
	g.Expect(s.Status().Update(s.t.Context(), incident)).To(Succeed())
}

// wire is what the plugin writes.
type wire struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (w *wire) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes.Write(text)
}

func (w *wire) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes.String()
}

// startMCP runs "kubectl tocsin mcp" until the test ends, and checks that it prints nothing but the protocol and exits with 0.
func startMCP(t *testing.T, server string, args ...string) (session *sdk.ClientSession, printed *wire) {
	t.Helper()
	g := NewWithT(t)
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("TZ", "UTC")
	requests, stdin := io.Pipe()
	answers, stdout := io.Pipe()
	printed, stderr := &wire{}, &wire{}
	exited := make(chan int, 1)
	go func() {
		exited <- Main(append([]string{"kubectl-tocsin", "mcp", "--server", server}, args...), requests, io.MultiWriter(stdout, printed), stderr)
		_ = stdout.Close()
	}()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(
		t.Context(), &sdk.IOTransport{Reader: answers, Writer: stdin}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		g.Expect(session.Close()).To(Succeed())
		g.Expect(<-exited).To(Equal(exitOK), stderr.String())
		g.Expect(stderr.String()).To(BeEmpty())
		for message := range strings.Lines(printed.String()) {
			g.Expect(message).To(HavePrefix(`{"jsonrpc":"2.0"`))
			g.Expect(json.Valid([]byte(message))).To(BeTrue())
		}
	})
	return session, printed
}

func callTool(t *testing.T, session *sdk.ClientSession, tool string, arguments any) (answer map[string]any, problem string) {
	t.Helper()
	g := NewWithT(t)
	result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Content).To(HaveLen(1))
	text, ok := result.Content[0].(*sdk.TextContent)
	g.Expect(ok).To(BeTrue())
	if result.IsError {
		return nil, text.Text
	}
	encoded, err := json.Marshal(result.StructuredContent)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text.Text).To(MatchJSON(encoded))
	g.Expect(json.Unmarshal(encoded, &answer)).To(Succeed())
	return answer, ""
}

func namesIn(answer map[string]any) (names []any) {
	incidents, _ := answer["incidents"].([]any)
	for _, one := range incidents {
		incident, _ := one.(map[string]any)
		names = append(names, incident["name"])
	}
	return names
}
