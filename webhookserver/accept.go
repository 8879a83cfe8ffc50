package webhookserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

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

// acceptedAlert is one alert of it.
type acceptedAlert struct {
	ID       string           `json:"id,omitempty"`
	DedupKey string           `json:"dedup_key,omitempty"`
	Incident string           `json:"incident,omitempty"` // namespace/name
	Dropped  bool             `json:"dropped,omitempty"`  // the integration's mapping does not want it stored
	Alert    *v1alpha1.Alert  `json:"alert,omitempty"`    // only for dryRun
	Sources  []mapping.Source `json:"sources,omitempty"`  // only for dryRun
}

// reading is what a body was read as.
type reading struct {
	alerts   []mapping.Alert
	sources  [][]mapping.Source // of each alert; only for dryRun
	warnings []payload.Warning
}

// accept has alerts stored.
func (h *handler) accept(x *exchange, read *reading) (*acceptance, *problem) {
	answer := &acceptance{Status: "accepted", Warnings: read.warnings}
	if x.dryRun {
		answer.Status = "dryRun"
		answer.list(x.integration.Namespace, read, nil)
		return answer, nil
	}
	alerts := kept(read.alerts)
	if len(alerts) == 0 {
		answer.list(x.integration.Namespace, read, nil)
		return answer, nil
	}
	if commit.Size(alerts) > commit.MaxBytes {
		return nil, &problemBatchTooLarge
	}
	if stored, refused := h.split(x, alerts); refused > 0 {
		return nil, h.storePart(x, stored, refused)
	}
	receipt, p := h.commit(x, alerts)
	if p != nil {
		return nil, p
	}
	observeAlerts(x.integration, receipt.Alerts)
	answer.Event = receipt.EventName
	answer.list(x.integration.Namespace, read, receipt.Alerts)
	return answer, nil
}

// read decodes a body and reads it as the integration's mapping wants it, if it has one. What the body decodes
// to is counted as long as anything refers to it.
func (h *handler) read(x *exchange, body []byte) (*reading, *problem) {
	text := body
	if json, ok := payload.FromForm(body); ok {
		text = json
	}
	size := payload.Footprint(text)
	switch {
	case size > maxDecodedBudget:
		return nil, &problemTooComplex
	case !h.decoded.reserve(x.sender(), size, maxDecodeWait):
		return nil, &problemOverload
	}
	defer h.decoded.release(x.sender(), size)
	decoded, warnings, p := parse(text)
	if p != nil {
		return nil, p
	}
	result, p := h.evaluate(x, decoded)
	if p != nil {
		return nil, p
	}
	read := &reading{alerts: result.Alerts, warnings: gather(warnings, &result)}
	identify(read.alerts, x.integration.Name, x.key, body)
	for i := range read.alerts {
		if x.dryRun {
			read.sources = append(read.sources, read.alerts[i].Sources())
		}
		read.alerts[i].Forget()
	}
	return read, nil
}

// evaluate has the integration's mapping read a decoded body.
func (h *handler) evaluate(x *exchange, decoded any) (mapping.Result, *problem) {
	program, err := h.mappings.Program(x.integration)
	if err != nil {
		observeUnusableMapping(x.integration)
	}
	ctx := context.Background()
	if program.Mapped() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.evaluation)
		defer cancel()
	}
	result, err := program.Alerts(ctx, decoded, x.Header, x.start)
	var tooMany *mapping.TooManyError
	switch {
	case errors.Is(err, mapping.ErrInterrupted):
		return result, &problemMappingTimeout
	case errors.As(err, &tooMany):
		return result, problemTooManyAlerts.saying(tooMany.Error() + ".")
	case errors.Is(err, payload.ErrNotObject):
		return result, &problemNotObject
	case err != nil:
		return result, problemNotObject.saying(payload.SanitizeLine(err.Error()))
	}
	if len(result.Failures) > 0 && !x.dryRun {
		observeMappingFailures(x.integration, result.Failures)
		h.rejections.reportFailures(x.integration, result.Failures)
	}
	return result, nil
}

// gather lists the warnings for the answer.
func gather(ofBody []payload.Warning, result *mapping.Result) []payload.Warning {
	warnings := append(append([]payload.Warning{}, ofBody...), result.Warnings...) // an empty list, not null
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
	return warnings
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

// commit hands the alerts to the committer.
func (h *handler) commit(x *exchange, alerts []v1alpha1.Alert) (commit.Receipt, *problem) {
	submission := commit.Submission{
		Integration: client.ObjectKeyFromObject(x.integration),
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
		return commit.Receipt{}, p
	}
	return receipt, nil
}

// split takes from the alerts those that need a new Incident, when the namespace may have none: because of
// the limit, or because the leader says that the API server rejects new ones. They would wait in the queue,
// where the sender knows nothing of it. Alerts of Incidents that exist, resolves and acknowledgements stay.
func (h *handler) split(x *exchange, alerts []v1alpha1.Alert) (stored []v1alpha1.Alert, refused int) {
	namespace := x.integration.Namespace
	if x.integration.Blocked() == "" && !h.incidents.IsFull(namespace) {
		return alerts, 0
	}
	for i := range alerts {
		if alerts[i].Status == v1alpha1.AlertFiring && !h.incidents.Has(namespace, alerts[i].IncidentName) {
			refused++
			continue
		}
		stored = append(stored, alerts[i])
	}
	return stored, refused
}

// storePart stores what split has left of a request and returns the problem that tells of the rest. The part
// has no idempotency key: the request comes again under it, and then it may be stored whole.
func (h *handler) storePart(x *exchange, alerts []v1alpha1.Alert, refused int) *problem {
	if len(alerts) == 0 {
		return &problemIncidentLimit
	}
	x.key = ""
	receipt, p := h.commit(x, alerts)
	if p != nil {
		return p
	}
	observeAlerts(x.integration, receipt.Alerts)
	return problemIncidentLimit.saying(fmt.Sprintf("Of %d alerts, %d need a new incident, and the namespace may have no more; "+
		"they were not stored. The others were. Try again later.", len(alerts)+refused, refused))
}

// errQuotedToken stands for an error of the API server that cannot be repeated.
var errQuotedToken = errors.New("the API server refused the AlertEvent in words that quote the token")

// list puts the alerts into the answer: those that were stored as they were stored, which for a repeated
// idempotency key was earlier.
func (a *acceptance) list(namespace string, read *reading, stored []v1alpha1.Alert) {
	a.Alerts = make([]acceptedAlert, 0, len(read.alerts))
	for i := range read.alerts {
		if read.alerts[i].Dropped {
			a.Alerts = append(a.Alerts, acceptedAlert{Dropped: true})
			continue
		}
		alert := &read.alerts[i].Alert
		if len(stored) > 0 {
			alert, stored = &stored[0], stored[1:]
		}
		accepted := acceptedAlert{ID: alert.ID, DedupKey: alert.DedupKey, Incident: namespace + "/" + alert.IncidentName}
		if a.Status == "dryRun" {
			accepted.Alert, accepted.Sources = alert, read.sources[i]
		}
		a.Alerts = append(a.Alerts, accepted)
	}
}
