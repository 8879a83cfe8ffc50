package webhookserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/origins"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// decoded is a request whose body has been decoded.
type decoded struct {
	*read
	mapping.Result
	requestKey string          // idempotency key for this operation; empty: copies of the request are not told from it
	answer     *protocol.Reply // to a request that holds no alert but a question; nil for others
	invalid    []string        // parts of the request that are not valid
	idle       []bool          // the alerts that change nothing, as far as is known
	beats      []string        // the heartbeats of which the alerts are signals; empty for the others, nil if none is
}

// kept returns the alerts that are to be stored.
func (d *decoded) kept() []v1alpha1.Alert {
	alerts := make([]v1alpha1.Alert, 0, len(d.Alerts))
	for i := range d.Alerts {
		if !d.Alerts[i].Dropped && d.heartbeat(i) == "" {
			alerts = append(alerts, d.Alerts[i].Alert)
		}
	}
	return alerts
}

// forget drops the alerts of the request, of which the answer has what it needs. Otherwise a client that takes its time to read
// the answer would keep all that its body has decoded to, and nothing counts that any more.
func (d *decoded) forget() { d.Alerts, d.idle, d.beats = nil, nil, nil }

// decode verifies the body, decodes it as the operation does, and evaluates the mapping on its payloads.
func (h *handler) decode(r *read) (*decoded, *problem) {
	body, p := r.takeBody()
	if p != nil {
		return nil, p
	}
	if p = h.enter(r.authenticated); p != nil {
		return nil, p
	}
	h.capture(r, body)
	d, p := h.decodeBody(r, body)
	r.leave()
	if large := h.checkSize(r.authenticated, len(body), d); large != nil {
		d, p = nil, large // whatever else is wrong with it
	}
	r.memory.Shrink(minBodyMemory) // the queue now accounts for the alerts; this minimum keeps counting the open connection
	return d, p
}

func (h *handler) decodeBody(r *read, body []byte) (_ *decoded, p *problem) {
	limit := int64(maxDecodedMemory)
	if int64(len(body)) > h.options.MaxBodyBytes {
		// A group that decodes to more than its integration's share would keep everybody else waiting. Alerts with texts
		// decode to about five times their length.
		limit /= 4
	}
	parser := h.newParser(r.authenticated, limit)
	defer parser.release()
	request := r.forOperation()
	request.Body, request.Parser = body, parser
	content, err := r.operation.Read(request)
	if err != nil {
		return nil, decodeProblem(err)
	}
	if content.Answer != nil {
		return &decoded{read: r, answer: content.Answer}, nil
	}
	d := &decoded{read: r, invalid: content.Invalid}
	if d.Result, p = h.evaluate(r, request.Header, content.Payloads); p != nil {
		return nil, p
	}
	key, identity := r.key, body
	if key == "" && content.Key != "" {
		key, identity = content.Key, content.Identity
	}
	if key != "" {
		d.requestKey = r.operationKey(key)
	}
	identify(d.Alerts, r.integration.Name, d.requestKey, identity)
	d.findSignals(h.heartbeats(r.authenticated))
	tellDefaults(d.Alerts, r.integration, r.operation.Path == "")
	d.idle = h.findIdle(r.integration.Namespace, d.Alerts)
	d.Warnings = allWarnings(content.Warnings, &d.Result)
	for i := range d.Alerts {
		if !r.dryRun { // whose answer has the sources
			d.Alerts[i].TellOrigins()
		}
	}
	return d, nil
}

// evaluate applies a mapping to the payloads of a request: that of the operation's preset, or the integration's.
func (h *handler) evaluate(r *read, requestHeader http.Header, payloads []protocol.Payload) (all mapping.Result, p *problem) {
	isList := func(p protocol.Payload) bool { _, list := p.Value.([]any); return list }
	program, err := h.options.Mappings.Program(r.mappingOwner(slices.ContainsFunc(payloads, isList)))
	if err != nil {
		unusableMappings.Of(r.integrationName()).Inc()
	}
	ctx := context.Background()
	if program.Mapped() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(mapping.WithPause(ctx, r.place), h.evaluation)
		defer cancel()
	}
	defaults := r.defaults
	if len(payloads) > 1 { // one key for all would make them one Incident
		defaults = maps.Clone(defaults)
		delete(defaults, "dedup_key")
	}
	for i := range payloads {
		header := requestHeader
		if own := payloads[i].Header; len(own) > 0 {
			header = maps.Clone(requestHeader)
			maps.Copy(header, own)
		}
		reader := program
		payloads[i].Open(func(within []any) (chosen int) {
			chosen, reader = program.Open(payloads[i].Value, within, header, r.received)
			return chosen
		})
		result, err := reader.Alerts(ctx, payload.WithDefaults(payloads[i].Value, defaults), header, r.received)
		if err != nil {
			return all, decodeProblem(err)
		}
		noteParameters(&result, payloads[i].Value, defaults, r.integration)
		complete(&result, &payloads[i], r.received)
		giveSeverity(&result, r.integration)
		h.admit(r.integration, result.Alerts, r.received)
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
	if r.dryRun {
		return all, nil
	}
	h.reportResult(r, &all)
	return all, nil
}

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
		fallback, _ = payload.Normalise(p.Fallback, received)
	}
	if len(result.Alerts) > 1 {
		fallback.DedupKey = ""
	}
	for i := range result.Alerts {
		alert := &result.Alerts[i]
		alert.About(result.Warnings)
		if size := alertcontent.Size(&fallback.AlertContent); i == 1 && (size > maxFallback || size*len(result.Alerts) > maxFallbacks) {
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
			alert.Warnings = slices.DeleteFunc(alert.Warnings, payload.Warning.IsNoMatch)
		}
	}
}

// noteParameters notes which fields the parameters of the request gave, rather than the payload. With a list of alerts within the
// payload, they gave none.
func noteParameters(result *mapping.Result, value any, defaults map[string]any, integration *v1alpha1.WebhookIntegration) {
	own := integration.Spec.Mapping
	if len(defaults) == 0 || result.Preset != "" || own != nil && own.Alerts != "" {
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
			if _, given := defaults[f.String()]; given && *kind == origins.Key && !payload.IsGiven(object, f.String()) {
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

func decodeProblem(err error) *problem {
	var own *problem
	var syntax *payload.SyntaxError
	var invalid *protocol.InvalidError
	var tooMany *mapping.TooManyError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &invalid):
		return problemInvalid.withDetail(invalid.Detail)
	case errors.As(err, &tooMany):
		return problemTooManyAlerts.withDetail(tooMany.Error() + ".")
	case errors.Is(err, mapping.ErrInterrupted):
		return &problemMappingTimeout
	case errors.Is(err, payload.ErrNotObject):
		return &problemNotObject
	case errors.Is(err, payload.ErrEmpty):
		return &problemEmpty
	case errors.Is(err, payload.ErrTooDeep):
		return &problemTooDeep
	case errors.As(err, &syntax):
		p := problemSyntax.withDetail(fmt.Sprintf("At byte %d: %s.", syntax.Offset, strings.TrimSuffix(syntax.Detail, ".")))
		p.Offset = &syntax.Offset
		return p
	default:
		return problemSyntax.withDetail("It could not be decoded.")
	}
}

// findIdle finds the alerts that end or acknowledge Incidents which are not open. An alert that another replica has just
// accepted may not be known yet. Of a namespace with AlertEvents that are not in the cache, nothing is.
func (h *handler) findIdle(namespace string, alerts []mapping.Alert) []bool {
	idle, opens := make([]bool, len(alerts)), map[string]bool{}
	if h.options.Capacity.Hides(namespace) {
		return idle
	}
	for i := range alerts {
		switch alert := &alerts[i]; {
		case alert.Dropped:
		case alert.Status == v1alpha1.AlertFiring:
			opens[alert.IncidentName] = true
		default:
			idle[i] = !opens[alert.IncidentName] && !h.options.Capacity.ExpectsIncident(namespace, alert.IncidentName)
		}
	}
	return idle
}

// tellDefaults warns of what a firing alert lacks and Tocsin makes up. Whoever speaks the API of another service does not know
// our fields: it hears of the key only.
func tellDefaults(alerts []mapping.Alert, integration *v1alpha1.WebhookIntegration, ours bool) {
	defaults := cmp.Or(integration.Spec.Defaults, &v1alpha1.AlertDefaults{})
	after := integrations.GeneratedAutoResolve
	if own := integration.Spec.AutoResolveAfter; own != nil {
		after = own.Duration
	}
	for i := range alerts {
		alert := &alerts[i]
		if alert.Status != v1alpha1.AlertFiring || alert.Dropped {
			continue
		}
		isTold := func(field string) bool {
			return slices.ContainsFunc(alert.Warnings, func(w payload.Warning) bool {
				return slices.Contains(payload.Names(field), w.Field)
			})
		}
		if ours && cmp.Or(alert.Title, alert.Description, defaults.Title) == "" && !isTold("title") {
			alert.Warn("title", "it is absent; a new Incident is called \"Alert from %s\"", integration.Name)
		}
		if ours && cmp.Or(alert.Severity, defaults.Severity) == "" && !isTold("severity") {
			alert.Warn("severity", "it is absent; a new Incident is a warning")
		}
		if alert.DedupKey == v1alpha1.GeneratedKey(alert.ID) {
			alert.Warn("dedup_key", "it is absent; only a resolve with the generated key matches the alert, whose Incident is resolved "+
				"after %s", plaintext.Duration(after))
		}
	}
}

// allWarnings lists the warnings about the body and about each alert, for the answer.
func allWarnings(ofBody []payload.Warning, result *mapping.Result) []payload.Warning {
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

// invalidProblem returns the problem for a request of which only a part is valid.
func (d *decoded) invalidProblem() *problem {
	shown := d.invalid[:min(len(d.invalid), maxInvalid)]
	detail := strings.Join(shown, " ")
	if more := len(d.invalid) - len(shown); more > 0 {
		detail += fmt.Sprintf(" And %d more.", more)
	}
	if len(d.Alerts) > 0 {
		detail += " The others were stored."
	}
	return problemInvalid.withDetail(detail)
}
