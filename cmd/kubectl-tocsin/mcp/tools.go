package mcp

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// addReads adds the tools that change nothing.
func (s *server) addReads() {
	addTool(s, read("list_incidents", "List Incidents", "List Incidents, the most urgent first: open ones, unless states has "+
		"others. An answer has at most 100; continue lists the rest."), s.list)
	addTool(s, read("show_incident", "Show an Incident", "Show an Incident: what it says and why, the fields of its alerts, and "+
		"its timeline."), s.show)
	addTool(s, read("check", "Check for open Incidents", "Check whether an Incident is open that the filters select, as a gate "+
		"before a change."), s.check)
	addTool(s, read("explain_integration", "Explain an integration", "Explain why an integration accepts and forwards alerts or "+
		"does not: its conditions, the last rejected request and its heartbeats."), s.integration)
	addTool(s, read("explain_incident", "Explain an Incident", "Explain where the fields of an Incident come from: which key of "+
		"the payload, which expression of a preset or a mapping, or a default, for its newest alert."), s.origins)
	addTool(s, read("explain_payload", "Explain a payload", "Explain what a sender's payload would do, without sending it: its "+
		"alerts, the origin of each field, and warnings. An integration reads it, or a preset."), s.explain)
	s.addPast()
}

func read(name, title, description string) *sdk.Tool {
	return &sdk.Tool{Name: name, Title: title, Description: description, Annotations: &sdk.ToolAnnotations{
		Title: title, ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false),
	}}
}

// target is the Incident of a call.
type target struct {
	Name string `json:"name" jsonschema:"NAME or NAMESPACE/NAME of the Incident. NAME may be any unambiguous prefix."`
}

type actInput struct {
	target
	Message string `json:"message,omitempty" jsonschema:"Why. The timeline records it with the name of the user."`
}

type acknowledgeInput struct {
	actInput
	For string `json:"for,omitempty" jsonschema:"How long it lasts, such as 2h; from 1m to 30d. Default: as the integration says."`
}

type assignInput struct {
	actInput
	To string `json:"to,omitempty" jsonschema:"The name of the person. Default: the user."`
}

type noteInput struct {
	target
	Message string `json:"message" jsonschema:"The note."`
}

type silenceInput struct {
	target
	For     string `json:"for" jsonschema:"How long, such as 90m, 12h or 7d; at most 30d."`
	Comment string `json:"comment,omitempty" jsonschema:"Why. It is the comment of the silence."`
}

type actOutput struct {
	Result line   `json:"result" jsonschema:"What was done, or why nothing was."`
	Notes  []line `json:"notes,omitempty"`
}

// addActions adds the tools that change an Incident.
func (s *server) addActions() {
	act := func(ctx context.Context, said *notes, a *Action) (actOutput, error) {
		result, err := s.Commands.Act(ctx, said, a)
		return actOutput{lineOf(result), said.lines()}, err
	}
	addTool(s, change("acknowledge_incident", "Acknowledge an Incident", "Mark an open Incident as handled by the user.", false),
		func(ctx context.Context, said *notes, in acknowledgeInput) (actOutput, error) {
			return act(ctx, said, &Action{Status: v1alpha1.AlertAcknowledged, Name: in.Name, Message: in.Message, For: in.For})
		})
	addTool(s, change("assign_incident", "Assign an Incident", "Say that the user, or somebody else, works on an open Incident. It "+
		"is not acknowledged by that.", true),
		func(ctx context.Context, said *notes, in assignInput) (actOutput, error) {
			return act(ctx, said, &Action{Status: v1alpha1.AlertAssigned, Name: in.Name, Message: in.Message, To: in.To})
		})
	addTool(s, change("note_incident", "Add a note", "Add a note to the timeline of an Incident.", false),
		func(ctx context.Context, said *notes, in noteInput) (actOutput, error) {
			return act(ctx, said, &Action{Status: v1alpha1.AlertNoted, Name: in.Name, Message: in.Message})
		})
	addTool(s, change("silence_incident", "Silence an Incident", "Silence an Incident in Alertmanager for some time: nobody is "+
		"notified of it.", false),
		func(ctx context.Context, said *notes, in silenceInput) (actOutput, error) {
			return act(ctx, said, &Action{Status: v1alpha1.AlertSilenced, Name: in.Name, Message: in.Comment, For: in.For})
		})
	addTool(s, change("resolve_incident", "Resolve an Incident", "Resolve an open Incident. A further alert reopens it.", true),
		func(ctx context.Context, said *notes, in actInput) (actOutput, error) {
			return act(ctx, said, &Action{Status: v1alpha1.AlertResolved, Name: in.Name, Message: in.Message})
		})
}

// change returns a tool that changes an Incident. A client asks its user before it calls a destructive tool.
func change(name, title, description string, idempotent bool) *sdk.Tool {
	return &sdk.Tool{Name: name, Title: title, Description: description, Annotations: &sdk.ToolAnnotations{
		Title: title, DestructiveHint: new(true), IdempotentHint: idempotent, OpenWorldHint: new(false),
	}}
}
