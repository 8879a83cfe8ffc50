package protocol

import (
	"net/http"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// pagerDutyOperations are those of PagerDuty's Events API v2: https://developer.pagerduty.com/docs/events-api-v2-overview
// The routing_key is not taken for the token: a body is read only after its request is authenticated.
func pagerDutyOperations() []Operation {
	return []Operation{{
		Path: "/v2/enqueue", Methods: []string{http.MethodPost}, Preset: "pagerduty",
		Read: readPagerDutyEvent, Accepted: pagerDutyAccepted, Rejected: pagerDutyRejected,
	}}
}

// readPagerDutyEvent rejects what PagerDuty rejects, because client libraries rely on it. A trigger whose payload lacks a
// required field is accepted all the same: the alert matters more.
func readPagerDutyEvent(r *Request) (Content, error) {
	content, err := readPayload(r)
	if err != nil || content.Answer != nil {
		return content, err
	}
	event, ok := content.Payloads[0].Value.(map[string]any)
	if !ok {
		return Content{}, payload.ErrNotObject
	}
	details, hasPayload := event["payload"].(map[string]any)
	switch event["event_action"] {
	case "trigger", nil: // some senders leave it out
		if !hasPayload {
			return Content{}, &InvalidError{Detail: "A trigger needs a payload."}
		}
		for _, name := range []string{"summary", "source", "severity"} {
			if text, _ := payload.TextOf(details[name]); text == "" {
				content.Warnings = append(content.Warnings, payload.Warning{
					Field: "payload." + name, Detail: "it is absent, and PagerDuty requires it"})
			}
		}
	case "acknowledge", "resolve":
		if key, _ := payload.TextOf(event["dedup_key"]); key == "" {
			return Content{}, &InvalidError{Detail: "An event that acknowledges or resolves needs a dedup_key."}
		}
	default:
		return Content{}, &InvalidError{Detail: "The event_action is not trigger, acknowledge or resolve."}
	}
	return content, nil
}

func pagerDutyAccepted(stored Stored) Reply {
	return Reply{Status: http.StatusAccepted, Body: struct {
		Status   string `json:"status"`
		Message  string `json:"message"`
		DedupKey string `json:"dedup_key"`
	}{"success", "Event processed", stored.DedupKey}}
}

func pagerDutyRejected(code int, title, detail string) any {
	status := "invalid event"
	if code != http.StatusBadRequest {
		status = "error"
	}
	return struct {
		Status  string   `json:"status"`
		Message string   `json:"message"`
		Errors  []string `json:"errors"`
	}{status, title, []string{detail}}
}
