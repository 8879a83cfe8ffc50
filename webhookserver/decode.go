package webhookserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// decoded is a request whose body has been decoded.
type decoded struct {
	*read
	mapping.Result
	requestKey string          // idempotency key for this operation; empty: a copy counts as a new request
	answer     *protocol.Reply // to a request that holds no alert but a question; nil for others
	invalid    []string        // parts of the request that are not valid
	noEffect   []bool          // the alerts that change nothing, as far as is known
	takers     []string        // the objects of features that take alerts, which are not stored then; empty for the others
}

// kept returns the alerts that are to be stored.
func (d *decoded) kept() []v1alpha1.Alert {
	alerts := make([]v1alpha1.Alert, 0, len(d.Alerts))
	for i := range d.Alerts {
		if !d.Alerts[i].Dropped && d.takers[i] == "" {
			alerts = append(alerts, d.Alerts[i].Alert)
		}
	}
	return alerts
}

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
	if p == nil || p.Status < http.StatusInternalServerError { // after a 5xx no preset has read it, and another attempt may succeed
		if large := h.checkSize(r.authenticated, len(body), d); large != nil {
			d, p = nil, large // whatever else is wrong with it
		}
	}
	r.memory.Shrink(minBodyMemory) // for the open connection; the alerts will count in the queue
	return d, p
}

func (h *handler) decodeBody(r *read, body []byte) (_ *decoded, p *problem) {
	limit := int64(maxDecodedMemory)
	if int64(len(body)) > h.options.MaxBodyBytes {
		// A group that decodes to more than its integration's share would keep everybody else waiting. Alerts with texts
		// decode to about five times their length.
		limit /= 4
	}
	parser := &parser{handler: h, request: r.authenticated, limit: limit, wait: maxDecodeWait}
	defer parser.release()
	request := r.forOperation()
	request.Body, request.Parse = body, parser.Parse
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
	identify(d.Alerts, r.integration.Name, d.requestKey, append([][]byte{identity}, r.queryIdentity()...))
	d.takers = make([]string, len(d.Alerts))
	for _, f := range h.options.Features {
		f.Take(r.integrationName(), d.Alerts, d.takers)
	}
	tellDefaults(d.Alerts, r.integration, r.operation.Path == "")
	d.noEffect = h.findNoEffect(r.integration.Namespace, d.Alerts)
	d.Warnings = allWarnings(content.Warnings, &d.Result)
	for i := range d.Alerts {
		if !r.dryRun { // whose answer has the sources
			d.Alerts[i].TellOrigins()
		}
	}
	return d, nil
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
		return problemInvalid.WithDetail(invalid.Detail)
	case errors.As(err, &tooMany):
		return problemTooManyAlerts.WithDetail(tooMany.Error() + ".")
	case errors.Is(err, mapping.ErrInterrupted):
		return &problemMappingTimeout
	case errors.Is(err, payload.ErrNotObject):
		return &problemNotObject
	case errors.Is(err, payload.ErrEmpty):
		return &problemEmpty
	case errors.Is(err, payload.ErrTooDeep):
		return &problemTooDeep
	case errors.As(err, &syntax):
		p := problemSyntax.WithDetail(fmt.Sprintf("At byte %d: %s.", syntax.Offset, strings.TrimSuffix(syntax.Detail, ".")))
		p.Offset = &syntax.Offset
		return p
	default:
		return problemSyntax.WithDetail("It could not be decoded.")
	}
}

// findNoEffect finds the alerts that end or acknowledge Incidents which are not open. An alert that another replica has just
// accepted may not be known yet. Of a namespace of which the cache lacks AlertEvents, each alert may have an effect.
func (h *handler) findNoEffect(namespace string, alerts []mapping.Alert) []bool {
	noEffect, opens := make([]bool, len(alerts)), map[string]bool{}
	if h.options.Capacity.Hides(namespace) {
		return noEffect
	}
	for i := range alerts {
		switch alert := &alerts[i]; {
		case alert.Dropped:
		case alert.Status == v1alpha1.AlertFiring:
			opens[alert.IncidentName] = true
		default:
			noEffect[i] = !opens[alert.IncidentName] && !h.options.Capacity.ExpectsIncident(namespace, alert.IncidentName)
		}
	}
	return noEffect
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
	return problemInvalid.WithDetail(detail)
}

// forOperation returns the request for its operation, without the body.
func (a *authenticated) forOperation() *protocol.Request {
	return &protocol.Request{
		Header: a.contentHeader(), Parameters: a.URL.Query(), Identifier: a.identifier, Integration: a.integration.Name,
	}
}

// parser decodes the JSON of one request, up to a limit of its size. What is decoded counts against the memory budget until
// release.
type parser struct {
	handler *handler
	request *authenticated // which has a place
	limit   int64          // of what is decoded, as payload.Footprint estimates it
	size    int64
	wait    time.Duration // for memory
	held    *fair.Reservation
}

// Parse is protocol.Request.Parse. A text of JSON that is JSON in turn is decoded as well. The errors are problems, and those of
// payload.ParseAny.
func (p *parser) Parse(text []byte) (any, []payload.Warning, error) {
	value, warnings, err := p.parse(text)
	if within, is := value.(string); is && payload.MayBeJSON(within) {
		inner, more, innerErr := p.parse([]byte(within))
		if _, is := errors.AsType[*payload.SyntaxError](innerErr); !is { // else it is a text
			return inner, append(append(warnings, payload.EncodedTwice), more...), innerErr
		}
	}
	return value, warnings, err
}

func (p *parser) parse(text []byte) (any, []payload.Warning, error) {
	p.size += payload.Footprint(text)
	if p.size > p.limit {
		return nil, nil, &problemTooComplex
	}
	// One reservation for everything: a request that waited for its own memory would never get it.
	p.held.Release()
	if p.held = p.handler.decoded.Reserve(p.request.integrationName(), p.size, 0); p.held == nil && p.wait > 0 {
		p.request.leave() // nobody waits for memory at a place
		p.held = p.handler.decoded.Reserve(p.request.integrationName(), p.size, p.wait)
		if busy := p.handler.enter(p.request); busy != nil {
			return nil, nil, busy
		}
	}
	if p.held == nil {
		return nil, nil, &problemOverload
	}
	p.wait = 0 // only the first text may wait: what is decoded already is in memory, and its reservation was just released
	return payload.ParseAny(text)
}

func (p *parser) release() { p.held.Release() }

// identify gives the alerts of a request their ids, the names of their Incidents, and generated dedup keys to those that have
// neither a key nor the name of an Incident. Ids are random. Those of a request with an idempotency key are derived from what the
// request says, so that a copy of it yields the same ids and keys, and another request under the same key does not.
func identify(alerts []mapping.Alert, integration, key string, identity [][]byte) {
	for i := range alerts {
		id := uuid.Must(uuid.NewV7()).String()
		if key != "" {
			id = derivedID(integration, key, identity, i)
		}
		alerts[i].ID = id
		if alerts[i].IncidentName != "" {
			continue
		}
		if alerts[i].DedupKey == "" {
			alerts[i].DedupKey = v1alpha1.GeneratedKey(id)
		}
		alerts[i].IncidentName = v1alpha1.IncidentName(integration, alerts[i].DedupKey)
	}
}

// derivedID hashes the parts, each behind its length, into 128 bits.
func derivedID(integration, key string, identity [][]byte, index int) string {
	hash := sha256.New()
	for _, part := range append([][]byte{[]byte(integration), []byte(key)}, identity...) {
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		hash.Write(part)
	}
	hash.Write(binary.BigEndian.AppendUint64(nil, uint64(index)))
	return hex.EncodeToString(hash.Sum(nil)[:16])
}
