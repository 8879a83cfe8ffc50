package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestToolsSayWhatTheyChange(t *testing.T) {
	for allowed, names := range map[bool][]string{
		false: slices.Sorted(maps.Keys(reads)),
		true:  slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(reads)), slices.Collect(maps.Keys(actions))...))),
	} {
		t.Run(fmt.Sprint("with actions: ", allowed), func(t *testing.T) {
			g := NewWithT(t)
			session := connect(t, Options{Commands: &fake{}, AllowActions: allowed})
			listed, err := session.ListTools(t.Context(), nil)
			g.Expect(err).NotTo(HaveOccurred())
			var found []string
			for _, tool := range listed.Tools {
				found = append(found, tool.Name)
				_, acts := actions[tool.Name]
				hints := tool.Annotations
				g.Expect(hints.ReadOnlyHint).To(Equal(!acts), tool.Name)
				g.Expect(hints.DestructiveHint != nil && *hints.DestructiveHint).To(Equal(acts), tool.Name)
				g.Expect(hints.IdempotentHint).To(Equal(!acts || tool.Name == "resolve_incident" || tool.Name == "assign_incident"), tool.Name)
				g.Expect(*hints.OpenWorldHint).To(BeFalse())
				g.Expect(tool.Description).To(HaveSuffix("."))
				g.Expect(tool.InputSchema).To(HaveKeyWithValue("additionalProperties", Not(BeNil())))
				g.Expect(tool.OutputSchema).To(HaveKeyWithValue("type", "object"))
			}
			g.Expect(slices.Sorted(slices.Values(found))).To(Equal(names))
		})
	}
}

func TestActionsDoNotExistUnlessTheyAreAllowed(t *testing.T) {
	g := NewWithT(t)
	commands := &fake{}
	session := connect(t, Options{Commands: commands})
	for tool, arguments := range actions {
		_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
		g.Expect(err).To(MatchError(ContainSubstring("unknown tool %q", tool)))
	}
	_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: strings.Repeat("x", 500_000)})
	g.Expect(len(err.Error())).To(BeNumerically("<", maxProblem+100))
	g.Expect(commands.acted).To(BeEmpty())
}

func TestActions(t *testing.T) {
	g := NewWithT(t)
	commands := &fake{}
	session := connect(t, Options{Commands: commands, AllowActions: true})
	for tool, want := range map[string]Action{
		"acknowledge_incident": {Status: v1alpha1.AlertAcknowledged, Name: "a", Message: "on it", For: "4h"},
		"assign_incident":      {Status: v1alpha1.AlertAssigned, Name: "a", Message: "yours", To: "alex"},
		"note_incident":        {Status: v1alpha1.AlertNoted, Name: "a", Message: "a note"},
		"silence_incident":     {Status: v1alpha1.AlertSilenced, Name: "a", For: "2h"},
		"resolve_incident":     {Status: v1alpha1.AlertResolved, Name: "a"},
	} {
		commands.acted = nil
		done := answer[actOutput](t, session, tool, actions[tool])
		g.Expect(commands.acted).To(Equal([]Action{want}))
		g.Expect(string(done.Result)).To(Equal("incident.tocsin.dev/a " + string(want.Status)))
	}
	commands.acted = nil
	g.Expect(call(t, session, "note_incident", map[string]any{"name": "a"}).IsError).To(BeTrue(), "a note has a message")
	g.Expect(commands.acted).To(BeEmpty())
}

func TestErrorsAreErrorsOfTheTool(t *testing.T) {
	long := strings.Repeat("x", 500_000)
	forbidden := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("incidents").GroupResource(), "", errors.New("no"))
	for sentence, test := range map[string]struct {
		tool      string
		arguments any
		err       error
		want      string
	}{
		"a user without the right learns which role has it": {"check", nil, forbidden, "Choose another namespace, or ask for the role view"},
		"an unknown argument is named":                      {"check", map[string]any{"namspace": "x"}, nil, "namspace"},
		"an unknown severity is named":                      {"check", map[string]any{"severities": []string{"bad"}}, nil, "bad"},
		"a missing name is named":                           {"show_incident", map[string]any{}, nil, "name"},
		"a long argument is cut":                            {"check", map[string]any{"severities": []string{long}}, nil, "xxx"},
		"a long error is cut":                               {"check", nil, errors.New(long), "xxx"},
		"a mark of another program is rejected":             {"list_incidents", map[string]any{"continue": "x"}, nil, "the list begins anew"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			session := connect(t, Options{Commands: &fake{before: func(context.Context, io.Writer) error { return test.err }}})
			result := call(t, session, test.tool, test.arguments)
			g.Expect(result.IsError).To(BeTrue())
			g.Expect(textOf(t, result)).To(ContainSubstring(test.want))
			g.Expect(len(textOf(t, result))).To(BeNumerically("<=", maxProblem))
			g.Expect(session.Ping(t.Context(), nil)).To(Succeed(), "the session goes on")
		})
	}
}

func TestWhatACommandPrintsIsANote(t *testing.T) {
	g := NewWithT(t)
	var problem error
	session := connect(t, Options{Commands: &fake{before: func(_ context.Context, said io.Writer) error {
		for range 1000 {
			_, _ = io.WriteString(said, "Warning: an object is \x1b[31mcorrupt\n\n")
		}
		return problem
	}}})
	notes := answer[checkOutput](t, session, "check", nil).Notes
	g.Expect(notes).To(HaveLen(maxNotes + 1))
	g.Expect(notes[0]).To(Equal(line("Warning: an object is [31mcorrupt")))
	g.Expect(notes[maxNotes]).To(Equal(line("There are more notes.")))

	problem = errors.New("it broke")
	g.Expect(textOf(t, call(t, session, "check", nil))).To(HavePrefix("it broke. Warning: an object is [31mcorrupt"))
}

func TestACallHasALimitOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		hangs := func(ctx context.Context, _ io.Writer) error {
			<-ctx.Done()
			return ctx.Err()
		}
		session := connect(t, Options{Commands: &fake{before: hangs}, Timeout: 10 * time.Second})
		start := time.Now()
		result := call(t, session, "check", nil)
		g.Expect(time.Since(start)).To(Equal(10 * time.Second))
		g.Expect(textOf(t, result)).To(And(HavePrefix("Ended after 10s: "), ContainSubstring("--timeout")))
	})
}

func TestAClientCancelsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ended := make(chan error, 1)
		session := connect(t, Options{Commands: &fake{before: func(ctx context.Context, _ io.Writer) error {
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		}}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "check"})
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(<-ended).To(MatchError(context.Canceled), "long before its limit")
		g.Expect(session.Ping(t.Context(), nil)).To(Succeed())
	})
}

func TestCallsEndWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ctx, stop := context.WithCancel(t.Context())
		here, there := sdk.NewInMemoryTransports()
		running := make(chan struct{})
		s := newServer(ctx, Options{Timeout: time.Hour, Commands: &fake{before: func(ctx context.Context, _ io.Writer) error {
			close(running)
			<-ctx.Done()
			return ctx.Err()
		}}})
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx, there) }()
		session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
		g.Expect(err).NotTo(HaveOccurred())
		called := make(chan struct{})
		go func() {
			_, _ = session.CallTool(t.Context(), &sdk.CallToolParams{Name: "check"})
			close(called)
		}()
		<-running
		start := time.Now()
		stop()
		g.Expect(<-ended).To(MatchError(context.Canceled))
		g.Expect(time.Since(start)).To(BeNumerically("<", time.Second))
		_ = session.Close()
		<-called
	})
}

func TestFewCallsRunAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var running, most atomic.Int64
		session := connect(t, Options{Commands: &fake{before: func(context.Context, io.Writer) error {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(10 * time.Second)
			running.Add(-1)
			return nil
		}}, Timeout: 45 * time.Second})
		const calls = 30
		results := make(chan *sdk.CallToolResult, calls)
		for range calls {
			go func() {
				result, _ := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "check"})
				results <- result
			}()
		}
		succeeded := 0
		for range calls {
			if result := <-results; !result.IsError {
				succeeded++
			} else {
				g.Expect(textOf(t, result)).To(ContainSubstring("Call fewer tools at the same time."))
			}
		}
		g.Expect(most.Load()).To(Equal(int64(maxCalls)))
		g.Expect(succeeded).To(Equal(5*maxCalls), "those whose turn came within 45 seconds")
	})
}
