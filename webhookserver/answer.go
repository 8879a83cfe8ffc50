package webhookserver

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// acceptance is the body of the answer to a request that was accepted, or would be but for dryRun.
type acceptance struct {
	Status   string            `json:"status"`
	Event    string            `json:"event,omitempty"`
	Preset   string            `json:"preset,omitempty"` // that the body was read with
	Alerts   []acceptedAlert   `json:"alerts"`
	Warnings []payload.Warning `json:"warnings"`
}

type acceptedAlert struct {
	ID       string               `json:"id,omitempty"`
	DedupKey string               `json:"dedup_key,omitempty"`
	Incident string               `json:"incident,omitempty"` // namespace/name
	Status   v1alpha1.AlertStatus `json:"status,omitempty"`
	Effect   string               `json:"effect,omitempty"`  // see noEffect
	Dropped  bool                 `json:"dropped,omitempty"` // not stored: see the reasons below, or a Tocsin forwarded it
	Alert    *v1alpha1.Alert      `json:"alert,omitempty"`   // only for dryRun
	Sources  []mapping.Source     `json:"sources,omitempty"` // only for dryRun

	DroppedBy string `json:"dropped_by,omitempty"` // the drop expression that matched
	Heartbeat string `json:"heartbeat,omitempty"`  // of which it is a signal; such an alert opens no Incident
}

// noEffect is what an alert does that ends or acknowledges an Incident which is not open. Only the fold knows for certain.
const noEffect = "none, as far as is known: no incident is open for this key"

// newAcceptance lists the alerts of a request. Those in the receipt are listed as they were stored, which for a repeated
// idempotency key was earlier.
func newAcceptance(d *decoded, receipt commit.Receipt) *acceptance {
	a := &acceptance{
		Status: "accepted", Event: receipt.EventName, Preset: d.Preset, Warnings: d.Warnings,
		Alerts: make([]acceptedAlert, 0, len(d.Alerts)),
	}
	if d.dryRun {
		a.Status = "dryRun"
	}
	stored := receipt.Alerts
	for i := range d.Alerts {
		if d.Alerts[i].Dropped {
			a.Alerts = append(a.Alerts, acceptedAlert{Dropped: true, DroppedBy: d.Alerts[i].DroppedBy})
			continue
		}
		alert := &d.Alerts[i].Alert
		if name := d.heartbeat(i); name != "" {
			a.Alerts = append(a.Alerts, acceptedAlert{Dropped: true, DedupKey: alert.DedupKey, Heartbeat: name})
			continue
		}
		if len(stored) > 0 {
			alert, stored = &stored[0], stored[1:]
		}
		accepted := acceptedAlert{
			ID: alert.ID, DedupKey: alert.DedupKey, Incident: d.integration.Namespace + "/" + alert.IncidentName,
			Status: alert.Status,
		}
		if d.noEffect[i] {
			accepted.Effect = noEffect
		}
		if d.dryRun {
			accepted.Alert, accepted.Sources = alert, d.Alerts[i].Sources()
		}
		a.Alerts = append(a.Alerts, accepted)
	}
	return a
}

// accept returns the answer to a request whose alerts are stored, or would be.
func (h *handler) accept(s *stored) protocol.Reply {
	if s.dryRun {
		return protocol.Reply{Status: http.StatusOK, Body: s.accepted}
	}
	described := protocol.Stored{Integration: s.integration.Name, Took: h.options.Clock.Now().Sub(s.start)}
	if alerts := s.accepted.Alerts; len(alerts) > 0 {
		_, described.IncidentName, _ = strings.Cut(alerts[0].Incident, "/")
		described.DedupKey = alerts[0].DedupKey
	}
	if reply, ok := s.operation.Accepted(described); ok {
		return reply
	}
	return protocol.Reply{Status: http.StatusAccepted, Body: s.accepted}
}

// answer is an encoded answer.
type answer struct {
	contentType string
	body        []byte
}

// encode encodes the answer to a request. That to a dry run has all the alerts: it takes its turn to encode it, and memory until
// it is written; without them it becomes a problem.
func (h *handler) encode(s *served) (a answer) {
	tried, ok := s.phase.(*stored)
	if s.problem != nil || !ok || !tried.dryRun {
		return encode(s.reply.Body)
	}
	failed := h.enter(tried.authenticated)
	if failed == nil {
		a = encode(s.reply.Body)
		tried.leave()
		_, failed = h.reserve(tried.authenticated, int64(len(a.body)))
	}
	for i := range tried.accepted.Alerts {
		accepted := &tried.accepted.Alerts[i]
		accepted.Alert, accepted.Sources = nil, nil // they may be collected while the answer is written
	}
	if failed != nil {
		s.problem, s.reply = failed, failed.reply(tried.operation)
		a = encode(s.reply.Body)
	}
	return a
}

// write writes an answer.
func (a answer) write(w http.ResponseWriter, reply protocol.Reply) {
	header := w.Header()
	for name, value := range reply.Header {
		header.Set(name, value)
	}
	header.Set("Content-Type", a.contentType)
	header.Set("Content-Length", strconv.Itoa(len(a.body)))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(reply.Status)
	_, _ = w.Write(a.body) // it fails when the client has disconnected
}

// encode encodes the body of an answer.
func encode(body any) answer {
	contentType := "application/json"
	switch body := body.(type) {
	case string:
		return answer{"text/plain; charset=utf-8", []byte(body + "\n")}
	case *problem:
		contentType = "application/problem+json"
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		encoded = []byte("{}") // cannot happen: every body is made of plain types and checked JSON
	}
	return answer{contentType, append(encoded, '\n')}
}
