package protocol

import (
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// maxEnvelopes is how many envelopes are opened, one within the other.
const maxEnvelopes = 2

// Envelope is what one tool puts around the payload of another.
type Envelope struct {
	Value any            // the payload
	Rest  map[string]any // what the envelope says beside it, without what proves who sent it
}

// envelopeKeys are the members that hold a payload, those of the forms that say what they are first. Each holds an object, JSON
// in a text, or, of Google's Pub/Sub, such a text in base64.
var envelopeKeys = []struct {
	marks  []string // the other members of the form
	key    string
	within string // the member of that member which holds the payload
}{
	{marks: []string{"Type", "TopicArn", "MessageId"}, key: "Message"},  // Amazon SNS
	{marks: []string{"detail-type", "source"}, key: "detail"},           // Amazon EventBridge
	{marks: []string{"eventType", "eventTime", "subject"}, key: "data"}, // Azure Event Grid
	{marks: []string{"specversion", "type", "source"}, key: "data"},     // CloudEvents without their media type
	{marks: []string{"subscription"}, key: "message", within: "data"},   // Google Pub/Sub
	{key: "payload"}, {key: "body"}, {key: "message"}, // queues, functions and scripts
}

// envelopeSecrets are what proves that an envelope is genuine, or ends the subscription: they are not kept.
var envelopeSecrets = []string{"Signature", "SignatureVersion", "SigningCertURL", "UnsubscribeURL", "Token"}

// unwrap opens the envelopes of a value. It fails only for want of memory: a text that is not JSON is no payload.
func unwrap(r *Request, value any) (within []Envelope, err error) {
	for range maxEnvelopes {
		object, _ := value.(map[string]any)
		inner, key, err := contentOfEnvelope(r, object)
		if inner == nil || err != nil {
			return within, err
		}
		rest := maps.Clone(object)
		delete(rest, key)
		for _, secret := range envelopeSecrets {
			delete(rest, secret)
		}
		within, value = append(within, Envelope{inner, rest}), inner
	}
	return within, nil
}

// Unwrap replaces the payload by the one of those within it that choose returns the place of; -1 for none. What the envelopes
// around it say becomes custom.envelope of its alerts.
func (p *Payload) Unwrap(choose func(within []any) int) {
	if len(p.Within) == 0 {
		return
	}
	values := make([]any, len(p.Within))
	for i := range p.Within {
		values[i] = p.Within[i].Value
	}
	chosen := choose(values)
	if chosen < 0 {
		return
	}
	p.Value = values[chosen]
	var said map[string]any
	for i := chosen; i >= 0; i-- {
		rest := p.Within[i].Rest
		if said != nil {
			rest["envelope"] = said
		}
		said = rest
	}
	p.Fallback = map[string]any{"custom": map[string]any{"envelope": said}}
}

// contentOfEnvelope returns what is in an envelope, and the member that holds it; nil if the object is none.
func contentOfEnvelope(r *Request, object map[string]any) (inner any, key string, err error) {
	for _, form := range envelopeKeys {
		if !hasAll(object, form.marks) {
			continue
		}
		held := object[form.key]
		if form.within != "" {
			outer, _ := held.(map[string]any)
			held = outer[form.within]
		}
		if inner, err := decodeHeld(r, held, form.within != ""); inner != nil || err != nil {
			return inner, form.key, err
		}
	}
	return nil, "", nil
}

// hasAll reports whether an object has members of all the names.
func hasAll(object map[string]any, names []string) bool {
	for _, name := range names {
		if _, has := object[name]; !has {
			return false
		}
	}
	return true
}

// decodeHeld returns the object or list that a member of an envelope holds, nil if it holds none.
func decodeHeld(r *Request, held any, encoded bool) (any, error) {
	switch v := held.(type) {
	case map[string]any, []any:
		return v, nil
	case string:
		if plain, err := base64.StdEncoding.DecodeString(v); encoded && err == nil {
			v = string(plain)
		}
		if !payload.MayBeJSON(v) {
			return nil, nil
		}
		inner, _, err := r.Parse([]byte(v))
		_, broken := errors.AsType[*payload.SyntaxError](err)
		if broken || errors.Is(err, payload.ErrTooDeep) || errors.Is(err, payload.ErrEmpty) {
			return nil, nil
		}
		return inner, err
	}
	return nil, nil
}

// isGridEvent reports whether a value is an event in Azure Event Grid's own schema:
// https://learn.microsoft.com/azure/event-grid/event-schema
func isGridEvent(value any) bool {
	event, _ := value.(map[string]any)
	return hasAll(event, []string{"id", "eventType", "eventTime", "subject", "data"})
}

// gridEvents returns the events of a list of Event Grid's, each of which is a payload, or else the value alone.
func gridEvents(value any) []any {
	list, _ := value.([]any)
	if len(list) == 0 || slices.ContainsFunc(list, func(element any) bool { return !isGridEvent(element) }) {
		return []any{value}
	}
	return list
}

// validationEvent is the type of the event by which Event Grid asks whether an address wants its events:
// https://learn.microsoft.com/azure/event-grid/end-point-validation-event-grid-events-schema
const validationEvent = "Microsoft.EventGrid.SubscriptionValidationEvent"

// answerToEventGrid returns the answer to that question, which repeats a code; nil for any other body. The token has shown that
// the address belongs to whoever gave it to Azure.
func answerToEventGrid(value any) *Reply {
	list, _ := value.([]any)
	if len(list) != 1 || !isGridEvent(list[0]) {
		return nil
	}
	event := list[0].(map[string]any)
	data, _ := event["data"].(map[string]any)
	code, _ := data["validationCode"].(string)
	if event["eventType"] != validationEvent || code == "" {
		return nil
	}
	return &Reply{Status: http.StatusOK, Body: map[string]string{"validationResponse": code}}
}
