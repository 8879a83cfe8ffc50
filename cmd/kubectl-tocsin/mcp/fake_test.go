package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/records"
	"github.com/tocsin-dev/tocsin/internal/report"
)

// fake implements Commands with what it holds. Each command first calls before, if it is set.
type fake struct {
	before      func(ctx context.Context, said io.Writer) error
	incidents   []*v1alpha1.Incident
	facts       []Fact
	integration v1alpha1.WebhookIntegration
	heartbeats  []live.Part
	explanation Explanation
	origins     IncidentExplanation
	episodes    []*records.Record
	page        report.Page
	acted       []Action
}

func (f *fake) start(ctx context.Context, said io.Writer) error {
	if f.before == nil {
		return nil
	}
	return f.before(ctx, said)
}

func (f *fake) Get(ctx context.Context, said io.Writer, _ *Selection, _ []v1alpha1.IncidentState) ([]*v1alpha1.Incident, error) {
	slices.SortFunc(f.incidents, live.ByUrgency)
	return f.incidents, f.start(ctx, said)
}

func (f *fake) Show(ctx context.Context, said io.Writer, _ string) (*v1alpha1.Incident, []Fact, error) {
	return f.incidents[0], f.facts, f.start(ctx, said)
}

func (f *fake) Check(ctx context.Context, said io.Writer, _ *Selection) (*Checked, error) {
	return &Checked{
		Open: f.incidents, Tally: fmt.Sprint(len(f.incidents), " open"), Tallies: map[string]string{"Heartbeat": fmt.Sprint(len(f.heartbeats), " with an invalid schedule")},
	}, f.start(ctx, said)
}

func (f *fake) Explain(ctx context.Context, said io.Writer, _ *Payload) (*Explanation, error) {
	return &f.explanation, f.start(ctx, said)
}

func (f *fake) ExplainIncident(ctx context.Context, said io.Writer, _ string) (*IncidentExplanation, error) {
	return &f.origins, f.start(ctx, said)
}

func (f *fake) Integration(
	ctx context.Context, said io.Writer, _, _ string,
) (*v1alpha1.WebhookIntegration, map[string][]live.Part, error) {
	return &f.integration, map[string][]live.Part{"Heartbeat": f.heartbeats}, f.start(ctx, said)
}

func (f *fake) History(ctx context.Context, said io.Writer, _ *Past, most int) ([]*records.Record, error) {
	return f.episodes[:min(most, len(f.episodes))], f.start(ctx, said)
}

func (f *fake) Report(ctx context.Context, said io.Writer, _ *Past) (*report.Page, error) {
	return &f.page, f.start(ctx, said)
}

func (f *fake) Act(ctx context.Context, said io.Writer, a *Action) (string, error) {
	f.acted = append(f.acted, *a)
	return "incident.tocsin.dev/" + a.Name + " " + string(a.Status), f.start(ctx, said)
}

func (f *fake) Describe(err error) string { return err.Error() }

// reads and actions are valid arguments of all tools.
var (
	reads = map[string]any{
		"list_incidents": map[string]any{}, "show_incident": map[string]any{"name": "a"}, "check": map[string]any{},
		"explain_integration": map[string]any{"name": "mon"}, "list_history": map[string]any{}, "report": map[string]any{},
		"explain_payload":  map[string]any{"payload": "{}", "preset": "auto"},
		"explain_incident": map[string]any{"name": "a"},
	}
	actions = map[string]any{
		"acknowledge_incident": map[string]any{"name": "a", "message": "on it", "for": "4h"},
		"assign_incident":      map[string]any{"name": "a", "to": "alex", "message": "yours"},
		"note_incident":        map[string]any{"name": "a", "message": "a note"},
		"silence_incident":     map[string]any{"name": "a", "for": "2h"},
		"resolve_incident":     map[string]any{"name": "a"},
	}
)

// connect serves a client in memory until the test ends.
func connect(t *testing.T, o Options) *sdk.ClientSession {
	t.Helper()
	g := NewWithT(t)
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	ctx, stop := context.WithCancel(t.Context())
	here, there := sdk.NewInMemoryTransports()
	ended := make(chan struct{})
	s := newServer(ctx, o)
	go func() {
		_ = s.Run(ctx, there)
		close(ended)
	}()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		_ = session.Close()
		stop()
		<-ended
	})
	return session
}

func call(t *testing.T, session *sdk.ClientSession, tool string, arguments any) *sdk.CallToolResult {
	t.Helper()
	result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return result
}

// textOf returns the text of an answer or of an error.
func textOf(t *testing.T, result *sdk.CallToolResult) string {
	t.Helper()
	g := NewWithT(t)
	g.Expect(result.Content).To(HaveLen(1))
	text, ok := result.Content[0].(*sdk.TextContent)
	g.Expect(ok).To(BeTrue())
	return text.Text
}

// answer decodes the answer of a tool.
func answer[T any](t *testing.T, session *sdk.ClientSession, tool string, arguments any) (out T) {
	t.Helper()
	g := NewWithT(t)
	result := call(t, session, tool, arguments)
	g.Expect(result.IsError).To(BeFalse(), textOf(t, result))
	encoded, err := json.Marshal(result.StructuredContent)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(textOf(t, result)).To(MatchJSON(encoded), "the text is the same answer")
	g.Expect(json.Unmarshal(encoded, &out)).To(Succeed())
	return out
}
