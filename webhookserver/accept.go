package webhookserver

import (
	"github.com/tocsin-dev/tocsin/api/v1alpha1"
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
	ID       string          `json:"id"`
	DedupKey string          `json:"dedup_key"`
	Incident string          `json:"incident"`        // namespace/name
	Alert    *v1alpha1.Alert `json:"alert,omitempty"` // only for dryRun
}

// accept turns a body into alerts and has them stored.
func (h *handler) accept(x *exchange, body []byte) (*acceptance, *problem) {
	object, warnings, p := parse(body)
	if p != nil {
		return nil, p
	}
	received := h.now()
	alert, more := payload.Normalise(object, received)
	alerts := []v1alpha1.Alert{alert}
	warnings = append(warnings, more...)
	identify(alerts, x.integration.Name, x.key, body)
	if x.dryRun {
		return answerWith("dryRun", "", x.integration.Namespace, alerts, warnings), nil
	}

	submission := Submission{
		Namespace:   x.integration.Namespace,
		Integration: x.integration.Name,
		Defaults:    x.integration.Spec.Defaults,
		Received:    received,
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
		return nil, storeProblem(err)
	}
	observeAlerts(x.integration, receipt.Alerts)
	return answerWith("accepted", receipt.EventName, x.integration.Namespace, receipt.Alerts, warnings), nil
}

// answerWith makes the body of an answer.
func answerWith(status, event, namespace string, alerts []v1alpha1.Alert, warnings []payload.Warning) *acceptance {
	body := &acceptance{Status: status, Event: event, Warnings: warnings}
	if body.Warnings == nil {
		body.Warnings = []payload.Warning{} // an empty list, not null
	}
	for i := range alerts {
		accepted := acceptedAlert{ID: alerts[i].ID, DedupKey: alerts[i].DedupKey, Incident: namespace + "/" + alerts[i].IncidentName}
		if status == "dryRun" {
			accepted.Alert = &alerts[i]
		}
		body.Alerts = append(body.Alerts, accepted)
	}
	return body
}
