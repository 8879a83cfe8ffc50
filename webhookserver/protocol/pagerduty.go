package protocol

import "net/http"

// pagerDutyOperations are those of PagerDuty's Events API v2: https://developer.pagerduty.com/docs/events-api-v2-overview
//
// The token is in the path or in the header Authorization. The routing_key is not taken for it: a body is read only after
// its request is authenticated.
func pagerDutyOperations() []Operation {
	return []Operation{{
		Path: "/v2/enqueue", Methods: []string{http.MethodPost}, Preset: "pagerduty",
		Read: readPayload, Accepted: pagerDutyAccepted, Refused: pagerDutyRefused,
	}}
}

func pagerDutyAccepted(_ *Request, stored Stored) Reply {
	return Reply{Status: http.StatusAccepted, Body: struct {
		Status   string `json:"status"`
		Message  string `json:"message"`
		DedupKey string `json:"dedup_key"`
	}{"success", "Event processed", stored.DedupKey}}
}

func pagerDutyRefused(code int, title, detail string) any {
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
