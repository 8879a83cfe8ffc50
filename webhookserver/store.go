package webhookserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/integrations"
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

	failures []mapping.Failure // for Replay
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
	TakenBy   string `json:"heartbeat,omitempty"`  // what took it, for now a heartbeat; such an alert opens no Incident
}

// noEffect is what an alert does that ends or acknowledges an Incident which is not open. Only the fold knows for certain.
const noEffect = "none, as far as is known: no incident is open for this key"

// store stores the alerts of a request unless it is a dry run.
func (h *handler) store(d *decoded) (_ *acceptance, p *problem) {
	alerts, receipt := d.kept(), commit.Receipt{}
	if !commit.Fits(alerts) { // the last bound, after all that anything adds
		return nil, &problemBatchTooLarge
	}
	if !d.dryRun && len(alerts) > 0 {
		if receipt, p = h.storeAlerts(d, alerts); p != nil && !blocksOnlyNew(p) {
			return nil, p
		}
	}
	h.tellFeatures(d.checked, d.Alerts, len(d.invalid) == 0) // also at the limit of Incidents: the sender is alive
	switch {
	case p != nil:
		return nil, p
	case len(d.invalid) > 0:
		return nil, d.invalidProblem()
	}
	return newAcceptance(d, receipt), nil
}

// storeAlerts stores the alerts of a request, or those that do not need an Incident for which there is no capacity. In the
// latter case it returns the problem that says so.
func (h *handler) storeAlerts(d *decoded, alerts []v1alpha1.Alert) (commit.Receipt, *problem) {
	// Where no new Incidents are allowed, an alert that needs one would wait as an AlertEvent, without the sender's knowledge.
	blocked := integrations.Blocked(d.integration) != ""
	storable := h.options.Capacity.ReserveIncidents(d.integration.Namespace, alerts, blocked)
	receipt, p := h.storeParts(d, alerts, storable)
	if p != nil {
		return commit.Receipt{}, p
	}
	for i := range receipt.Alerts {
		alertsTotal.Of(d.integrationName(), string(receipt.Alerts[i].Status)).Inc()
	}
	if len(receipt.Alerts) == 0 {
		return commit.Receipt{}, &problemIncidentLimit
	}
	if rejected := len(alerts) - len(receipt.Alerts); rejected > 0 {
		return commit.Receipt{}, problemIncidentLimit.WithDetail(fmt.Sprintf(
			"Of %d alerts, %d need a new incident, and the namespace has reached its limit; they were not stored. "+
				"The others were. Try again later.", len(alerts), rejected))
	}
	return receipt, nil
}

// storeParts stores the alerts of a request that can be stored now, and returns all its alerts that are stored by then. When an
// earlier copy of a request with an idempotency key was stored in part, because of the limit of Incidents, the first AlertEvent
// of the key has that part. The rest goes to the next one. So each copy stores what no other has stored. If nothing can be stored
// now, the AlertEvents are read: the answer to an earlier copy may be lost, and its alerts wait to be folded.
func (h *handler) storeParts(d *decoded, requested, storable []v1alpha1.Alert) (all commit.Receipt, p *problem) {
	if d.requestKey == "" {
		if len(storable) == 0 {
			return all, nil
		}
		return h.submit(d, storable, 0)
	}
	stored := make(map[string]*v1alpha1.Alert, len(requested)) // by id, which is derived from the body; nil: not yet
	for i := range requested {
		stored[requested[i].ID] = nil
	}
	for part, missing := 0, len(stored); missing > 0; part++ {
		receipt, p := h.submit(d, storable, part)
		if p != nil {
			return all, p
		}
		if receipt.EventName == "" {
			break
		}
		for i := range receipt.Alerts {
			alert := &receipt.Alerts[i]
			before, known := stored[alert.ID]
			if !known {
				return all, &problemConflict
			}
			if before == nil {
				missing--
			}
			stored[alert.ID] = alert
		}
		if len(receipt.Alerts) == 0 {
			return all, &problemConflict
		}
		all.EventName = cmp.Or(all.EventName, receipt.EventName)
		storable = slices.DeleteFunc(slices.Clone(storable), func(alert v1alpha1.Alert) bool { return stored[alert.ID] != nil })
	}
	for i := range requested {
		if alert := stored[requested[i].ID]; alert != nil {
			all.Alerts = append(all.Alerts, *alert)
		}
	}
	return all, nil
}

// eventName returns the name of the AlertEvent with a part of the request, empty without an idempotency key.
func (d *decoded) eventName(part int) string {
	key := d.requestKey
	switch {
	case key == "":
		return ""
	case part > 0:
		key = fmt.Sprintf("%s\x00%d", key, part) // no header has a NUL
	}
	return v1alpha1.KeyedEventName(d.integration.Name, key)
}

// submit hands the alerts to the committer, those of a request with an idempotency key as the part with this number. Without
// alerts it finds the part that an earlier copy has stored; the receipt is empty if there is none.
func (h *handler) submit(d *decoded, alerts []v1alpha1.Alert, part int) (commit.Receipt, *problem) {
	timeout := min(commit.Timeout, requestTimeout-h.options.Clock.Now().Sub(d.start))
	// The client may hang up: a request that has arrived whole is better stored, and many senders do not wait for the answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.Context()), timeout)
	defer cancel()
	if len(alerts) == 0 {
		memory := h.bodies.Reserve(d.integrationName(), queryMemory, 0)
		if memory == nil {
			return commit.Receipt{}, &problemOverload
		}
		defer memory.Release()
		receipt, err := h.committer.Find(ctx, types.NamespacedName{Namespace: d.integration.Namespace, Name: d.eventName(part)})
		if err != nil {
			return receipt, problemUnknown.CausedBy(err)
		}
		return receipt, nil
	}
	receipt, err := h.committer.Commit(ctx, commit.Submission{
		Integration: d.integrationName(),
		Defaults:    d.integration.Spec.Defaults,
		Received:    d.received,
		Alerts:      alerts,
		EventName:   d.eventName(part),
	})
	if err != nil {
		return receipt, commitProblem(err, d.token)
	}
	return receipt, nil
}

// errQuotedToken stands for an error of the API server that cannot be repeated.
var errQuotedToken = errors.New("the API server rejected the AlertEvent with a message that quotes the token")

// commitProblem returns the problem of an error of the committer. Neither it nor its cause quotes the token.
func commitProblem(err error, token string) *problem {
	var invalid *commit.InvalidError
	var denied *commit.DeniedError
	switch {
	case errors.As(err, &denied):
		p := problemDenied.CausedBy(err)
		p.Reason, p.OwnerDetail = denied.Reason, denied.Message
		// A policy may quote an alert that has the sender's own address in it, and its message may be cut.
		if strings.Contains(p.OwnerDetail, token[:min(len(token), quotedTokenPrefix)]) {
			p.OwnerDetail, p.Cause = "", errQuotedToken
		}
		return p
	case errors.As(err, &invalid):
		return problemRejected.WithDetail("The alert is " + invalid.Message + ".").CausedBy(err)
	case errors.Is(err, commit.ErrOverloaded):
		return problemOverload.CausedBy(err)
	case errors.Is(err, commit.ErrUnavailable):
		return problemUnavailable.CausedBy(err)
	default:
		return problemUnknown.CausedBy(err) // the one that promises least
	}
}

// newAcceptance lists the alerts of a request. Those in the receipt are listed as they were stored, which for a repeated
// idempotency key was earlier.
func newAcceptance(d *decoded, receipt commit.Receipt) *acceptance {
	a := &acceptance{
		Status: "accepted", Event: receipt.EventName, Preset: d.Preset, Warnings: d.Warnings,
		Alerts: make([]acceptedAlert, 0, len(d.Alerts)), failures: d.Failures,
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
		if name := d.takers[i]; name != "" {
			a.Alerts = append(a.Alerts, acceptedAlert{Dropped: true, DedupKey: alert.DedupKey, TakenBy: name})
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

// answerAccepted returns the answer to a request whose alerts are stored, or would be.
func (h *handler) answerAccepted(d *decoded, accepted *acceptance) protocol.Reply {
	if d.dryRun {
		return protocol.Reply{Status: http.StatusOK, Body: accepted}
	}
	if d.operation.Accepted == nil {
		return protocol.Reply{Status: http.StatusAccepted, Body: accepted}
	}
	described := protocol.Stored{Integration: d.integration.Name, Took: h.options.Clock.Now().Sub(d.start)}
	if alerts := accepted.Alerts; len(alerts) > 0 {
		_, described.IncidentName, _ = strings.Cut(alerts[0].Incident, "/")
		described.DedupKey = alerts[0].DedupKey
	}
	return d.operation.Accepted(described)
}

type answer struct {
	contentType string
	body        []byte
}

// encode encodes the answer to a request. That to a dry run has all the alerts: it takes its turn to encode it, and memory until
// it is written; without them it becomes a problem.
func (h *handler) encode(s *served) (a answer) {
	if s.problem != nil || s.accepted == nil || !s.dryRun {
		return encode(s.reply.Body)
	}
	failed := h.enter(s.authenticated)
	if failed == nil {
		a = encode(s.reply.Body)
		s.authenticated.leave()
		_, failed = h.reserve(s.authenticated, int64(len(a.body)))
	}
	for i := range s.accepted.Alerts {
		accepted := &s.accepted.Alerts[i]
		accepted.Alert, accepted.Sources = nil, nil // they may be collected while the answer is written
	}
	if failed != nil {
		s.problem, s.reply = failed, failed.Reply(s.operation)
		a = encode(s.reply.Body)
	}
	return a
}

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
