package webhookserver

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
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

// acceptedAlert is one alert of it.
type acceptedAlert struct {
	ID       string           `json:"id,omitempty"`
	DedupKey string           `json:"dedup_key,omitempty"`
	Incident string           `json:"incident,omitempty"` // namespace/name
	Dropped  bool             `json:"dropped,omitempty"`  // the integration's mapping does not want it stored
	Alert    *v1alpha1.Alert  `json:"alert,omitempty"`    // only for dryRun
	Sources  []mapping.Source `json:"sources,omitempty"`  // only for dryRun
}

// accept turns a body into alerts and has them stored.
func (h *handler) accept(x *exchange, body []byte) (*acceptance, *problem) {
	read, warnings, p := h.read(x, body)
	if p != nil {
		return nil, p
	}
	identify(read, x.integration.Name, x.key, body)
	answer := &acceptance{Status: "accepted", Warnings: warnings}
	if x.dryRun {
		answer.Status = "dryRun"
		answer.list(x.integration.Namespace, read, nil)
		return answer, nil
	}
	alerts := kept(read)
	if len(alerts) == 0 {
		answer.list(x.integration.Namespace, read, nil)
		return answer, nil
	}
	if alertsSize(alerts) > maxSubmissionBytes {
		return nil, &problemBatchTooLarge
	}
	if stored, refused := h.split(x, alerts); refused > 0 {
		return nil, h.storePart(x, stored, refused)
	}
	receipt, p := h.store(x, alerts)
	if p != nil {
		return nil, p
	}
	observeAlerts(x.integration, receipt.Alerts)
	answer.Event = receipt.EventName
	answer.list(x.integration.Namespace, read, receipt.Alerts)
	return answer, nil
}

// read decodes a body and reads it as the integration's mapping wants it, if it has one.
func (h *handler) read(x *exchange, body []byte) ([]mapping.Alert, []payload.Warning, *problem) {
	decoded, warnings, p := parse(body)
	if p != nil {
		return nil, nil, p
	}
	program, err := h.mappings.Program(x.integration)
	if err != nil {
		observeUnusableMapping(x.integration)
	}
	result, err := program.Alerts(decoded, x.Header, x.start)
	var tooMany *mapping.TooManyError
	switch {
	case errors.As(err, &tooMany):
		return nil, nil, problemTooManyAlerts.saying(tooMany.Error() + ".")
	case errors.Is(err, payload.ErrNotObject):
		return nil, nil, &problemNotObject
	case err != nil:
		return nil, nil, problemNotObject.saying(payload.SanitizeLine(err.Error()))
	}
	warnings = append(append([]payload.Warning{}, warnings...), result.Warnings...) // an empty list, not null
	for i := range result.Alerts {
		for _, warning := range result.Alerts[i].Warnings {
			if len(result.Alerts) > 1 {
				warning.Field = fmt.Sprintf("[%d].%s", i, warning.Field)
			}
			if len(warnings) < maxWarnings {
				warnings = append(warnings, warning)
			}
		}
	}
	return result.Alerts, warnings, nil
}

// kept are the alerts to store.
func kept(read []mapping.Alert) []v1alpha1.Alert {
	alerts := make([]v1alpha1.Alert, 0, len(read))
	for i := range read {
		if !read[i].Dropped {
			alerts = append(alerts, read[i].Alert)
		}
	}
	return alerts
}

// store hands the alerts to the committer.
func (h *handler) store(x *exchange, alerts []v1alpha1.Alert) (Receipt, *problem) {
	submission := Submission{
		Namespace:   x.integration.Namespace,
		Integration: x.integration.Name,
		Defaults:    x.integration.Spec.Defaults,
		Received:    x.start,
		Alerts:      alerts,
	}
	if x.key != "" {
		submission.EventName = v1alpha1.KeyedEventName(x.integration.Name, x.key)
	}
	ctx, cancel := h.storeContext(x)
	defer cancel()
	receipt, err := h.committer.Commit(ctx, submission)
	if err != nil {
		x.cause = err
		p := storeProblem(err)
		// A policy may quote an alert that has the sender's own address in it, and its words may be cut.
		if strings.Contains(p.owner, x.token[:min(len(x.token), quotedTokenPrefix)]) {
			p.owner, x.cause = "", errQuotedToken
		}
		observeRefusal(x.integration, p)
		return Receipt{}, p
	}
	return receipt, nil
}

// errQuotedToken stands for an error of the API server that cannot be repeated.
var errQuotedToken = errors.New("the API server refused the AlertEvent in words that quote the token")

// list puts the alerts into the answer: those that were stored as they were stored, which for a repeated
// idempotency key was earlier.
func (a *acceptance) list(namespace string, read []mapping.Alert, stored []v1alpha1.Alert) {
	a.Alerts = make([]acceptedAlert, 0, len(read))
	for i := range read {
		if read[i].Dropped {
			a.Alerts = append(a.Alerts, acceptedAlert{Dropped: true})
			continue
		}
		alert := &read[i].Alert
		if len(stored) > 0 {
			alert, stored = &stored[0], stored[1:]
		}
		accepted := acceptedAlert{ID: alert.ID, DedupKey: alert.DedupKey, Incident: namespace + "/" + alert.IncidentName}
		if a.Status == "dryRun" {
			accepted.Alert, accepted.Sources = alert, read[i].Sources()
		}
		a.Alerts = append(a.Alerts, accepted)
	}
}
