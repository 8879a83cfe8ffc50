package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/mcp"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/internal/live"
)

// callTimeout is longer than an action waits for a silence, and shorter than the minute that clients wait.
const callTimeout = 45 * time.Second

type mcpOptions struct {
	*plugin
	archive      archiveFlag
	filter       filter
	allowActions bool
	timeout      time.Duration
}

func (p *plugin) mcpCommand() *cobra.Command {
	o := &mcpOptions{plugin: p, timeout: callTimeout}
	command := &cobra.Command{
		Use:   "mcp",
		Short: "Serve incidents to assistants by the Model Context Protocol",
		RunE:  p.withCluster(o.run),
	}
	o.archive.add(command)
	flags := command.Flags()
	flags.BoolVarP(&o.filter.allNamespaces, "all-namespaces", "A", false, "Read all namespaces, unless a call names one.")
	flags.BoolVar(&o.allowActions, "allow-actions", false,
		"Add tools that acknowledge, assign, note, silence and resolve incidents.")
	durationVar(flags, &o.timeout, "timeout", "How long one call of a tool may take.")
	return command
}

func (o *mcpOptions) run(ctx context.Context, c *cluster, _ []string) error {
	if o.timeout <= 0 {
		return errors.New("--timeout must be longer than 0")
	}
	return mcp.Serve(ctx, o.In, o.Out, mcp.Options{
		Commands: &mcpCommands{o, c}, AllowActions: o.allowActions, Timeout: o.timeout, Version: buildinfo.Read().Version,
	})
}

// mcpCommands implements mcp.Commands: each method runs a command as one call of the plugin.
type mcpCommands struct {
	*mcpOptions
	c *cluster
}

// call returns the plugin for one call. Its stdin is empty and its stdout is lost: those of the process belong to the protocol.
func (m *mcpCommands) call(said io.Writer) *plugin {
	called := *m.plugin
	called.In, called.Out, called.ErrOut = strings.NewReader(""), io.Discard, said
	called.screen = &screen{out: io.Discard}
	return &called
}

// in returns the cluster and the filter for the namespace of a call, or of the flags if it has none. With --namespace, a call
// cannot leave it.
func (m *mcpCommands) in(namespace string) (*cluster, filter, error) {
	c, f := *m.c, filter{allNamespaces: m.filter.allNamespaces}
	if namespace == "" {
		return &c, f, nil
	}
	if c.explicit && !f.allNamespaces && namespace != c.namespace {
		return nil, f, fmt.Errorf("namespace %q: the server was started with --namespace %s", namespace, c.namespace)
	}
	if f.allNamespaces = namespace == "*"; !f.allNamespaces {
		c.namespace = namespace
	}
	return &c, f, nil
}

func (m *mcpCommands) selected(s *mcp.Selection) (*cluster, filter, error) {
	c, f, err := m.in(s.Namespace)
	f.Integrations, f.labels, f.Unacknowledged = s.Integrations, s.Labels, s.Unacknowledged
	f.Assignees, f.Unassigned = s.Assignees, s.Unassigned
	for _, severity := range s.Severities {
		f.Severities = append(f.Severities, string(severity))
	}
	return c, f, err
}

// Get implements mcp.Commands.
func (m *mcpCommands) Get(
	ctx context.Context, said io.Writer, s *mcp.Selection, states []v1alpha1.IncidentState,
) ([]*v1alpha1.Incident, error) {
	c, f, err := m.selected(s)
	if err != nil {
		return nil, err
	}
	o := &getOptions{plugin: m.call(said), filter: f, output: newOutputFlag()}
	for _, state := range states {
		o.filter.states = append(o.filter.states, string(state))
	}
	if err := o.validate(nil); err != nil {
		return nil, err
	}
	incidents, err := o.incidents(ctx, c, &o.filter, true, nil)
	if err == nil {
		o.warnIfNotFolded(ctx, c, &o.filter, incidents)
	}
	return incidents, err
}

// Show implements mcp.Commands.
func (m *mcpCommands) Show(ctx context.Context, said io.Writer, name string) (*v1alpha1.Incident, []mcp.Fact, error) {
	p := m.call(said)
	incident, err := m.c.incident(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if hasUserNames(&incident.Status) {
		p.notef("%s", unverifiedNames)
	}
	var facts []mcp.Fact
	for _, one := range p.describe(ctx, m.c, p.screen, incident).facts(incident) {
		if one.text != "" {
			facts = append(facts, mcp.Fact{Name: one.name, Text: one.text})
		}
	}
	return incident, facts, nil
}

// Check implements mcp.Commands.
func (m *mcpCommands) Check(ctx context.Context, said io.Writer, s *mcp.Selection) (*mcp.Checked, error) {
	c, f, err := m.selected(s)
	if err != nil {
		return nil, err
	}
	o := &checkOptions{plugin: m.call(said), filter: f}
	open, err := o.open(ctx, c, true)
	if err != nil {
		return nil, err
	}
	checked := &mcp.Checked{Open: open, Tally: summarize(open)}
	if len(open) == 0 {
		if checked.Unknown, err = o.notFolded(ctx, c, &o.filter); err != nil {
			return nil, err
		}
	}
	checked.Tallies = map[string]string{}
	for _, feature := range features {
		checked.Tallies[feature.Kind()] = feature.Tally(o.parts(ctx, c, feature))
	}
	return checked, nil
}

// Explain implements mcp.Commands. It reads no file: the files of the user are not those of the assistant.
func (m *mcpCommands) Explain(ctx context.Context, said io.Writer, p *mcp.Payload) (*mcp.Explanation, error) {
	if (p.Integration == "") == (p.Preset == "") {
		return nil, errors.New("specify either an integration or a preset")
	}
	c, _, err := m.in(p.Namespace)
	if err != nil {
		return nil, err
	}
	o := &explainOptions{
		plugin: m.call(said), integration: p.Integration, namespace: c.namespace, preset: p.Preset, headers: p.Headers,
	}
	e, err := o.explain(ctx, []byte(p.Payload))
	if err != nil {
		return nil, err
	}
	explained := &mcp.Explanation{Preset: e.Preset, Failed: e.failed}
	for i := range e.Alerts {
		explained.Alerts = append(explained.Alerts, e.Alerts[i].explained(e.incidents))
	}
	for _, warning := range e.warningLines() {
		explained.Warnings = append(explained.Warnings, warning.text)
	}
	return explained, nil
}

// ExplainIncident implements mcp.Commands.
func (m *mcpCommands) ExplainIncident(ctx context.Context, said io.Writer, name string) (*mcp.IncidentExplanation, error) {
	e, err := m.call(said).explainIncident(ctx, m.c, name)
	if err != nil {
		return nil, err
	}
	explained := &mcp.IncidentExplanation{Incident: e.Incident, Integration: e.Integration, Preset: e.Preset, Unknown: e.warning}
	if !e.Known {
		explained.Unknown = unknownOrigins
	}
	for _, field := range e.rows() {
		explained.Fields = append(explained.Fields, mcp.ExplainedField{Name: field.field, Value: field.value, Origin: field.origin})
	}
	for _, warning := range (&response{Warnings: e.Warnings}).warningLines() {
		explained.Warnings = append(explained.Warnings, warning.text)
	}
	return explained, nil
}

func (a *alertResponse) explained(incidents []v1alpha1.Incident) (alert mcp.ExplainedAlert) {
	if a.Dropped {
		alert.Effect = "Would be dropped: " + a.dropReason()
		return alert
	}
	alert.Effect = a.effect()
	for _, field := range a.fields(incidents) {
		alert.Fields = append(alert.Fields, mcp.ExplainedField{Name: field.field, Value: field.value, Origin: field.origin})
	}
	return alert
}

// Integration implements mcp.Commands.
func (m *mcpCommands) Integration(
	ctx context.Context, said io.Writer, namespace, name string,
) (*v1alpha1.WebhookIntegration, map[string][]live.Part, error) {
	c, f, err := m.in(namespace)
	if err != nil {
		return nil, nil, err
	}
	integration, err := c.integration(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	f.Integrations, f.allNamespaces = []string{name}, false
	o, parts := &checkOptions{plugin: m.call(said), filter: f}, map[string][]live.Part{}
	for _, feature := range features {
		parts[feature.Kind()] = o.parts(ctx, c, feature)
	}
	return integration, parts, nil
}

// Act implements mcp.Commands.
func (m *mcpCommands) Act(ctx context.Context, said io.Writer, a *mcp.Action) (string, error) {
	o := m.call(said).newAct(a.Status)
	o.Message, o.Assignee = a.Message, a.To
	switch {
	case a.Status == v1alpha1.AlertNoted && a.Message == "":
		return "", errors.New("a note needs a message")
	case a.For != "" || a.Status == v1alpha1.AlertSilenced:
		if err := o.lengthFlag().Set(a.For); err != nil {
			return "", err
		}
		if a.Status == v1alpha1.AlertSilenced && o.Length == 0 { // the command would end the silence
			return "", errors.New("a silence is longer than 0")
		}
	}
	var result bytes.Buffer
	o.screen.out = &result
	if err := o.run(ctx, m.c, []string{a.Name}); err != nil {
		return "", err
	}
	return strings.TrimSpace(result.String()), nil
}

// Describe implements mcp.Commands.
func (m *mcpCommands) Describe(err error) string {
	return strings.TrimPrefix(errorMessage(err), "error: ")
}
