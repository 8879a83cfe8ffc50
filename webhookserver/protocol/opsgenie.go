package protocol

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// opsgeniePreset is the preset for the bodies of the Alert API.
const opsgeniePreset = "opsgenie-api"

// opsgenieOperations are those of Opsgenie's Alert API that senders use. Jira Service Management has them under another address:
// https://docs.opsgenie.com/docs/alert-api
func opsgenieOperations() []Operation {
	operation := func(path string, read func(*Request) (Content, error), methods ...string) Operation {
		return Operation{
			Path: "/v2/alerts" + path, Methods: methods, Preset: opsgeniePreset,
			Read: read, Accepted: opsgenieAccepted, Rejected: OpsgenieRejected,
		}
	}
	ineffective := func(path, method, why string) Operation {
		return Operation{
			Path: "/v2/alerts" + path, Methods: []string{method}, Answer: opsgenieWithoutEffect(why), Rejected: OpsgenieRejected,
		}
	}
	return []Operation{
		operation("", readOpsgenieAlert, http.MethodPost),
		operation("/{identifier}/close", opsgenieAction("close", ""), http.MethodPost),
		operation("/{identifier}/acknowledge", opsgenieAction("acknowledge", ""), http.MethodPost),
		operation("/{identifier}/unacknowledge", opsgenieAction("unacknowledge", v1alpha1.AlertUnacknowledged), http.MethodPost),
		operation("/{identifier}/notes", readOpsgenieNote, http.MethodPost),
		operation("/{identifier}/message", opsgenieAction("message", v1alpha1.AlertNoted), http.MethodPut),
		operation("/{identifier}/description", opsgenieAction("description", v1alpha1.AlertNoted), http.MethodPut),
		operation("/{identifier}/priority", opsgenieAction("priority", v1alpha1.AlertNoted), http.MethodPut),
		operation("/{identifier}/tags", opsgenieAction("tags", v1alpha1.AlertNoted), http.MethodPost, http.MethodPut),
		operation("/{identifier}/details", opsgenieAction("details", v1alpha1.AlertNoted), http.MethodPost),
		ineffective("/{identifier}/tags", http.MethodDelete, "labels are not removed from an Incident"),
		ineffective("/{identifier}/details", http.MethodDelete, "labels are not removed from an Incident"),
		ineffective("/{identifier}/snooze", http.MethodPost, "an Incident is not snoozed; silence its alert in Alertmanager"),
		{
			Path: "/v2/alerts/requests/{identifier}", Methods: []string{http.MethodGet},
			Answer: opsgenieRequestStatus, Rejected: OpsgenieRejected,
		},
	}
}

func readOpsgenieAlert(r *Request) (Content, error) {
	body, warnings, err := opsgenieBody(r)
	return Content{Payloads: []Payload{{Value: body}}, Warnings: warnings}, err
}

func opsgenieBody(r *Request) (map[string]any, []payload.Warning, error) {
	value, warnings, err := r.Parse(r.Body)
	object, ok := value.(map[string]any)
	if err == nil && !ok {
		err = payload.ErrNotObject
	}
	return object, warnings, err
}

// opsgenieUnkept are the members of a request about an alert that do not become part of the content: those that become the
// comment, and the identifier, which Opsgenie's SDK for Go repeats in the body.
var opsgenieUnkept = []string{"user", "note", "alias", "IdentifierType", "IdentifierValue"}

// opsgenieAction reads the requests about an alert that exists. The preset gets the body with the alert's alias and the action.
func opsgenieAction(action string, status v1alpha1.AlertStatus) func(*Request) (Content, error) {
	return func(r *Request) (Content, error) {
		body, warnings, err := opsgenieBody(r)
		if errors.Is(err, payload.ErrEmpty) { // some clients send none
			body, err = map[string]any{}, nil
		}
		if err != nil {
			return Content{}, err
		}
		p := Payload{Status: status}
		p.Comment, warnings = opsgenieComment(body, warnings)
		if note := body["note"]; status == v1alpha1.AlertNoted && (note == nil || note == "") {
			p.Comment = "" // the name of a user alone is no note
		}
		for _, name := range opsgenieUnkept {
			delete(body, name)
		}
		if p.IncidentName = opsgenieIncident(r); p.IncidentName == "" {
			body["alias"] = r.Identifier
		}
		body["action"] = action
		p.Value = body
		return Content{Payloads: []Payload{p}, Warnings: warnings}, nil
	}
}

// readOpsgenieNote reads a request that adds a note, which must not be empty.
func readOpsgenieNote(r *Request) (Content, error) {
	content, err := opsgenieAction("note", v1alpha1.AlertNoted)(r)
	if err == nil && content.Payloads[0].Comment == "" {
		err = &InvalidError{Detail: "The note is empty."}
	}
	return content, err
}

// opsgenieComment returns the note of a request, after the name of the user who is said to have written it. The name is
// not verified, so that it becomes part of the text and not of the alert's author.
func opsgenieComment(body map[string]any, warnings []payload.Warning) (string, []payload.Warning) {
	var parts []string
	for _, name := range []string{"user", "note"} {
		if value := body[name]; value != nil {
			if text := strings.TrimSpace(fmt.Sprint(value)); text != "" {
				parts = append(parts, text)
			}
		}
	}
	whole := plaintext.SanitizeLine(strings.Join(parts, ": "))
	comment := plaintext.Shorten(whole, v1alpha1.MaxCommentChars)
	if comment != whole {
		warnings = append(warnings, payload.Warning{
			Field: "note", Detail: fmt.Sprintf("it has more than %d characters and was cut", v1alpha1.MaxCommentChars)})
	}
	return comment, warnings
}

// opsgenieID is the end of an Incident's name, and the id of the request that created its alert.
var opsgenieID = regexp.MustCompile(`^[a-z2-7]{26}$`)

// opsgenieIncident returns the name of the Incident that the request identifies by an id, as opsgenieRequestStatus tells
// it. Every other identifier is an alias, whatever its type is said to be: many clients leave the type out.
func opsgenieIncident(r *Request) string {
	suffix, ok := strings.CutPrefix(r.Identifier, r.Integration+"-")
	if !ok || !opsgenieID.MatchString(suffix) || r.Parameters.Get("identifierType") == "alias" {
		return ""
	}
	return r.Identifier
}

// opsgenieAnswer is the body of every answer.
type opsgenieAnswer struct {
	Result    string  `json:"result,omitempty"`
	Message   string  `json:"message,omitempty"`
	Data      any     `json:"data,omitempty"`
	Took      float64 `json:"took"`
	RequestID string  `json:"requestId"`
}

// reply has the headers that the SDKs expect of every answer. Nobody is limited by a rate.
func (a opsgenieAnswer) reply(status int) Reply {
	return Reply{Status: status, Body: a, Header: map[string]string{
		"X-RateLimit-State": "OK", "X-Request-Id": a.RequestID, "X-Response-Time": fmt.Sprintf("%.3f", a.Took),
	}}
}

// opsgenieAccepted answers as Opsgenie does. The requestId is the end of the Incident's name, so that every replica can
// answer the question what became of the request.
func opsgenieAccepted(stored Stored) Reply {
	request := cmp.Or(strings.TrimPrefix(stored.IncidentName, stored.Integration+"-"), "dropped")
	return OpsgenieReply("Request will be processed", request, stored.Took)
}

// OpsgenieReply answers a request that was accepted and took a while.
func OpsgenieReply(result, request string, took time.Duration) Reply {
	return opsgenieAnswer{Result: result, Took: max(took.Seconds(), minTook), RequestID: request}.reply(http.StatusAccepted)
}

// opsgenieWithoutEffect accepts a request that Tocsin cannot apply, and says so in the answer. A rejection would make tools
// fail that send such requests beside others.
func opsgenieWithoutEffect(why string) func(*Request) Reply {
	return func(r *Request) Reply {
		incident := cmp.Or(opsgenieIncident(r), v1alpha1.IncidentName(r.Integration, r.Identifier))
		answer := opsgenieAnswer{
			Result: "Request has no effect: " + why, Took: minTook, RequestID: strings.TrimPrefix(incident, r.Integration+"-"),
		}
		return answer.reply(http.StatusAccepted)
	}
}

// minTook is the least time in seconds that an answer says it took: clients read 0 as absent.
const minTook = 0.001

// OpsgenieRejected returns the body of the answer to a request with a problem.
func OpsgenieRejected(_ int, title, detail string) any {
	return opsgenieAnswer{Message: title + ". " + detail, Took: minTook, RequestID: "refused"}
}

// opsgenieRequestStatus answers what became of a request: until the Incident exists, that the request is not processed,
// after which clients try again.
func opsgenieRequestStatus(r *Request) Reply {
	incident := r.Integration + "-" + r.Identifier
	answer := opsgenieAnswer{Took: minTook, RequestID: r.Identifier}
	if !opsgenieID.MatchString(r.Identifier) || !r.HasIncident(incident) {
		answer.Message = "Request not found. It might not be processed, yet."
		reply := answer.reply(http.StatusNotFound)
		reply.Header["X-Opsgenie-Errortype"] = "RequestNotProcessed"
		return reply
	}
	answer.Data = map[string]any{
		"success": true, "isSuccess": true, "status": "Processed", "integrationId": r.Integration, "alertId": incident,
	}
	return answer.reply(http.StatusOK)
}
