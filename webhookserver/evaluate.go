package webhookserver

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/origins"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// evaluate applies a mapping to the payloads of a request: that of the operation's preset, or the integration's.
func (h *handler) evaluate(r *read, requestHeader http.Header, payloads []protocol.Payload) (all mapping.Result, p *problem) {
	isList := func(p protocol.Payload) bool { _, list := p.Value.([]any); return list }
	program, err := h.options.Mappings.Program(r.mappingOwner(slices.ContainsFunc(payloads, isList)))
	if err != nil {
		unusableMappings.Of(r.integrationName()).Inc()
	}
	var pauser mapping.Pauser
	if program.Mapped() {
		pauser = h.beginEvaluation(r)
	}
	query := r.query
	if len(payloads) > 1 { // one key for all would make them one Incident
		query = maps.Clone(query)
		delete(query, "dedup_key")
	}
	for i := range payloads {
		header := requestHeader
		if own := payloads[i].Header; len(own) > 0 {
			header = maps.Clone(requestHeader)
			maps.Copy(header, own)
		}
		reader := program
		payloads[i].Unwrap(func(within []any) (chosen int) {
			chosen, reader = program.Unwrap(payloads[i].Value, within, header, r.received)
			return chosen
		})
		result, err := reader.AlertsWithQuery(pauser, payloads[i].Value, query, header, r.received)
		if err != nil {
			return all, decodeProblem(err)
		}
		noteParameters(&result, payloads[i].Value, query, r.integration)
		complete(&result, &payloads[i], r.received)
		giveSeverity(&result, r.integration)
		h.dropForwarded(r.integration, result.Alerts, r.received)
		all.Preset, all.Handshake = cmp.Or(all.Preset, result.Preset), cmp.Or(all.Handshake, result.Handshake)
		all.Alerts = append(all.Alerts, result.Alerts...)
		all.Warnings = append(all.Warnings, result.Warnings...)
		all.Failures = append(all.Failures, result.Failures...)
		if len(all.Alerts) > mapping.MaxAlerts {
			return all, decodeProblem(&mapping.TooManyError{Count: len(all.Alerts)})
		}
	}
	if beginsUnforwarded(r.integration, all.Preset) {
		all.Warnings = append(all.Warnings, payload.Warning{Detail: fmt.Sprintf("Tocsin does not forward these alerts, because with "+
			"the preset %s they are in an Alertmanager already; spec.forward: Always does", all.Preset)})
	}
	if !r.dryRun {
		h.reportResult(r, &all)
	}
	return all, nil
}

// evaluation is the time that the expressions of a request may take. Their waits for a processor do not count. Otherwise, no
// large group would be evaluated while other namespaces keep the processors busy.
type evaluation struct {
	place        *fair.Place
	ends, latest time.Time // latest is the end of what waits may add
}

// beginEvaluation begins the evaluation of a request. Its waits leave the time to store its alerts.
func (h *handler) beginEvaluation(r *read) *evaluation {
	now := time.Now()
	left := requestTimeout - commit.Timeout - h.options.Clock.Now().Sub(r.start)
	return &evaluation{place: r.place, ends: now.Add(h.evaluation), latest: now.Add(left)}
}

// Pause implements mapping.Pauser.
func (e *evaluation) Pause() {
	began := time.Now()
	e.place.Pause()
	e.ends = e.ends.Add(max(0, min(time.Since(began), e.latest.Sub(e.ends))))
}

// IsOver implements mapping.Pauser.
func (e *evaluation) IsOver() bool { return !time.Now().Before(e.ends) }

// reportResult has the integration tell what came of its mapping.
func (h *handler) reportResult(r *read, all *mapping.Result) {
	observeMapping(r.integrationName(), all)
	h.reportReturned(r.integration, all.Alerts)
	if all.Handshake != "" {
		h.reports.reportHandshake(r.integration, all.Handshake)
	}
	if len(all.Failures) > 0 {
		h.reports.reportFailures(r.integration, all.Failures)
	}
}

// beginsUnforwarded reports whether the first alerts of an integration are not forwarded, though those of others are. Later ones
// say nothing more: their sender has been told.
func beginsUnforwarded(integration *v1alpha1.WebhookIntegration, preset string) bool {
	spec, status := &integration.Spec, &integration.Status
	return status.LastReceivedTime == nil && meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionForwarded) != nil &&
		spec.Forward != v1alpha1.ForwardNever && integrations.StaysInAlertmanager(spec, preset)
}

// complete adds to the alerts of a payload what the request says beside it.
func complete(result *mapping.Result, p *protocol.Payload, received time.Time) {
	var fallback v1alpha1.Alert
	if p.Fallback != nil {
		fallback, _, _ = payload.Read(p.Fallback, received)
	}
	if len(result.Alerts) > 1 {
		fallback.DedupKey = ""
	}
	size := alertcontent.Size(&fallback.AlertContent)
	isLarge := size > maxFallback || size*len(result.Alerts) > maxFallbacks
	for i := range result.Alerts {
		alert := &result.Alerts[i]
		alert.About(result.Warnings)
		if i == 1 && isLarge {
			fallback.Labels, fallback.Custom = nil, nil
		}
		before := origins.Present(&alert.Alert)
		fill(alert, &fallback)
		alert.From.Given(before, &alert.Alert)
		if p.IncidentName != "" {
			alert.IncidentName, alert.DedupKey = p.IncidentName, ""
		}
		if p.Status != "" {
			alert.Status, alert.From.Kinds[origins.Status] = p.Status, origins.Request
		}
		alert.Comment = p.Comment
		if alert.DedupKey != "" || alert.IncidentName != "" {
			isNoMatch := func(w payload.Warning) bool { return w.Reason == payload.NoMatch }
			alert.Warnings = slices.DeleteFunc(alert.Warnings, isNoMatch)
		}
	}
}

// noteParameters notes which fields the parameters of the request gave, rather than the payload. With a list of alerts within the
// payload, they gave none.
func noteParameters(result *mapping.Result, value any, query map[string]any, integration *v1alpha1.WebhookIntegration) {
	own := integration.Spec.Mapping
	if len(query) == 0 || result.Preset != "" || own != nil && own.Alerts != "" {
		return
	}
	sent, isList := value.([]any)
	if !isList {
		sent = []any{value}
	}
	for i := range min(len(sent), len(result.Alerts)) {
		object, _ := sent[i].(map[string]any)
		for f := range origins.Whole {
			kind := &result.Alerts[i].From.Kinds[f]
			if _, given := query[f.String()]; given && *kind == origins.Key && !payload.IsGiven(object, f.String()) {
				*kind = origins.Request
			}
		}
	}
}

// giveSeverity gives firing alerts without a severity that of the preset which read them. The integration's default goes first.
func giveSeverity(result *mapping.Result, integration *v1alpha1.WebhookIntegration) {
	severity := mapping.DefaultSeverity(result.Preset)
	if defaults := integration.Spec.Defaults; severity == "" || defaults != nil && defaults.Severity != "" {
		return
	}
	for i := range result.Alerts {
		if alert := &result.Alerts[i]; alert.Status == v1alpha1.AlertFiring && alert.Severity == "" {
			alert.Severity = severity
		}
	}
}

// fill gives an alert the fields that it lacks. An alert with a description has a title: its first line.
func fill(alert *mapping.Alert, from *v1alpha1.Alert) {
	if alert.Title == "" && alert.Description == "" {
		alert.Title = from.Title
	}
	alert.DedupKey = cmp.Or(alert.DedupKey, from.DedupKey)
	alert.Type = cmp.Or(alert.Type, from.Type)
	if alert.Status == v1alpha1.AlertFiring {
		alert.StartTime = cmp.Or(alert.StartTime, from.StartTime)
	}
	if alert.Status == v1alpha1.AlertResolved {
		alert.EndTime = cmp.Or(alert.EndTime, from.EndTime)
	}
	alert.Labels = alertcontent.Merge(from.Labels, alert.Labels)
	alert.Custom = alertcontent.Merge(from.Custom, alert.Custom)
	alert.Warnings = append(alert.Warnings, payload.LimitKeys(&alert.AlertContent)...)
}

// mappingOwner returns the integration whose preset and mapping read the payloads. The mapping of the request's own
// integration was written for another format, unless its preset is that of the operation.
func (a *authenticated) mappingOwner(list bool) *v1alpha1.WebhookIntegration {
	preset := a.preset(list)
	if preset == mapping.PresetOf(&a.integration.Spec) {
		return a.integration
	}
	return &v1alpha1.WebhookIntegration{Spec: v1alpha1.WebhookIntegrationSpec{Preset: preset}}
}

// preset returns the preset that reads the payloads: that of the operation, else that of the integration. list says that
// the payloads are lists, or may be.
func (a *authenticated) preset(list bool) string {
	own, preset := mapping.PresetOf(&a.integration.Spec), a.operation.Preset
	if list && a.integration.Spec.Mapping == nil && (own == "" || own == mapping.Auto) {
		preset = cmp.Or(preset, a.operation.ListPreset)
	}
	return cmp.Or(preset, own)
}
