package webhookserver

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// acceptance is the body of the answer to a request that was accepted, or would be but for dryRun.
type acceptance struct {
	Status   string            `json:"status"`
	Event    string            `json:"event,omitempty"`
	Alerts   []acceptedAlert   `json:"alerts"`
	Warnings []payload.Warning `json:"warnings"`
}

// acceptedAlert is one alert of an acceptance.
type acceptedAlert struct {
	ID       string           `json:"id,omitempty"`
	DedupKey string           `json:"dedup_key,omitempty"`
	Incident string           `json:"incident,omitempty"` // namespace/name
	Dropped  bool             `json:"dropped,omitempty"`  // the mapping's drop expression matched
	Alert    *v1alpha1.Alert  `json:"alert,omitempty"`    // only for dryRun
	Sources  []mapping.Source `json:"sources,omitempty"`  // only for dryRun
}

// newAcceptance lists the alerts of a request. Those in the receipt are listed as they were stored, which for a repeated
// idempotency key was earlier.
func newAcceptance(x *exchange, decoded *decodedAlerts, receipt commit.Receipt) *acceptance {
	a := &acceptance{
		Status: "accepted", Event: receipt.EventName, Warnings: decoded.warnings,
		Alerts: make([]acceptedAlert, 0, len(decoded.alerts)),
	}
	if x.dryRun {
		a.Status = "dryRun"
	}
	stored := receipt.Alerts
	for i := range decoded.alerts {
		if decoded.alerts[i].Dropped {
			a.Alerts = append(a.Alerts, acceptedAlert{Dropped: true})
			continue
		}
		alert := &decoded.alerts[i].Alert
		if len(stored) > 0 {
			alert, stored = &stored[0], stored[1:]
		}
		accepted := acceptedAlert{
			ID: alert.ID, DedupKey: alert.DedupKey, Incident: x.integration.Namespace + "/" + alert.IncidentName,
		}
		if x.dryRun {
			accepted.Alert, accepted.Sources = alert, decoded.sources[i]
		}
		a.Alerts = append(a.Alerts, accepted)
	}
	return a
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	encoded, err := json.Marshal(body)
	if err != nil { // cannot happen: every body is made of plain types and checked JSON
		status, encoded = http.StatusInternalServerError, []byte(`{}`)
	}
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Content-Length", strconv.Itoa(len(encoded)+1))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(encoded, '\n')) // it fails when the client has disconnected
}
