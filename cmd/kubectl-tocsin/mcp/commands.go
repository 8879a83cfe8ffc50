package mcp

import (
	"context"
	"io"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/live"
)

// Commands are the commands of the plugin that the tools run. They print on said what they print on stderr for people. The calls
// of several tools run at the same time.
type Commands interface {
	// Get returns the Incidents in these states, open ones if there are none, the most urgent first.
	Get(ctx context.Context, said io.Writer, s *Selection, states []v1alpha1.IncidentState) ([]*v1alpha1.Incident, error)
	// Show returns an Incident, and sentences about it.
	Show(ctx context.Context, said io.Writer, name string) (*v1alpha1.Incident, []Fact, error)
	// Check returns the selected Incidents that are open, and tallies of the objects of their integrations.
	Check(ctx context.Context, said io.Writer, s *Selection) (*Checked, error)
	// Explain returns what a payload would do.
	Explain(ctx context.Context, said io.Writer, p *Payload) (*Explanation, error)
	// ExplainIncident returns which key or expression gave which field of an Incident.
	ExplainIncident(ctx context.Context, said io.Writer, name string) (*IncidentExplanation, error)
	// Integration returns an integration and its objects, by their kinds.
	Integration(ctx context.Context, said io.Writer, namespace, name string) (
		*v1alpha1.WebhookIntegration, map[string][]live.Part, error)
	pastCommands
	// Act does an action to an Incident, and says what it did.
	Act(ctx context.Context, said io.Writer, a *Action) (string, error)
	// Describe describes an error of a command as the plugin prints it.
	Describe(err error) string
}

// Selection selects Incidents or episodes. An empty field selects all.
type Selection struct {
	Namespace      string              `json:"namespace,omitempty" jsonschema:"A namespace, or * for all. Default: by the flags."`
	Severities     []v1alpha1.Severity `json:"severities,omitempty" jsonschema:"Only these severities."`
	Integrations   []string            `json:"integrations,omitempty" jsonschema:"Only these integrations."`
	Labels         []string            `json:"labels,omitempty" jsonschema:"Label selectors, such as team=storage. All must match."`
	Unacknowledged bool                `json:"unacknowledged,omitempty" jsonschema:"Only what nobody acknowledged."`
	Assignees      []string            `json:"assignees,omitempty" jsonschema:"Only what is assigned to these people."`
	Unassigned     bool                `json:"unassigned,omitempty" jsonschema:"Only what is assigned to nobody."`
}

// Payload is the body of a sender's request, its header fields, and the integration or the preset that reads it.
type Payload struct {
	Payload     string   `json:"payload" jsonschema:"The body of the request: what the sender would post."`
	Integration string   `json:"integration,omitempty" jsonschema:"The integration that reads it, with its mapping and defaults."`
	Namespace   string   `json:"namespace,omitempty" jsonschema:"Of the integration. Default: by the flags."`
	Preset      string   `json:"preset,omitempty" jsonschema:"Instead of an integration. auto: the one that fits."`
	Headers     []string `json:"headers,omitempty" jsonschema:"Header fields of the request, such as X-GitHub-Event: push."`
}

// Action is what to do to an Incident.
type Action struct {
	Status        v1alpha1.AlertStatus
	Name, Message string
	For           string // how long a silence or an acknowledgement lasts, such as 2h; empty for one: as the integration says
	To            string // to whom to assign; empty: the user
}

// Fact is a sentence about an Incident.
type Fact struct{ Name, Text string }

// Checked is the result of a check.
type Checked struct {
	Open    []*v1alpha1.Incident
	Tally   string
	Unknown string            // why no Incident being open proves nothing; empty if it does
	Tallies map[string]string // of the objects of the integrations, by their kinds
}

// Explanation describes what a payload would do.
type Explanation struct {
	Preset   string
	Alerts   []ExplainedAlert
	Warnings []string
	Failed   []string // fields whose expressions failed
}

// ExplainedAlert is an alert of a payload: what it would do, and the origin of each field.
type ExplainedAlert struct {
	Effect string
	Fields []ExplainedField
}

// IncidentExplanation describes where the fields of an Incident come from.
type IncidentExplanation struct {
	Incident    string // namespace/name
	Integration string
	Preset      string
	Fields      []ExplainedField
	Warnings    []string
	Unknown     string // why not all is known; empty if it is
}

// ExplainedField is a field of an alert or an Incident.
type ExplainedField struct{ Name, Value, Origin string }
