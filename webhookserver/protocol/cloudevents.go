package protocol

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// Media types of CloudEvents in structured and batched mode, and the headers of those in binary mode:
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md
const (
	mediaTypePrefix = "application/cloudevents"
	mediaTypeEvent  = "application/cloudevents+json"
	mediaTypeBatch  = "application/cloudevents-batch+json"

	eventHeaderPrefix = "Ce-" // of the attributes in binary mode
	specVersion       = "1.0" // that is read
)

// event is one CloudEvent.
type event struct {
	attributes map[string]any // texts but for extensions
	data       any            // a map[string]any or a []any of them
	header     http.Header    // the attributes as headers, if they are none of the request
}

// readCloudEvents reads a request that holds CloudEvents. ok is false for any other request.
func readCloudEvents(r *Request) (content Content, ok bool, err error) {
	mediaType := mediaTypeOf(r.Header.Get("Content-Type"))
	switch {
	case mediaType == mediaTypeEvent, mediaType == mediaTypeBatch:
		content, err = readJSON(r, mediaType == mediaTypeBatch)
	case strings.HasPrefix(mediaType, mediaTypePrefix):
		err = &InvalidError{Detail: "CloudEvents are read in the JSON format only."}
	case r.Header.Get(eventHeaderPrefix+"Specversion") != "":
		content, err = readBinary(r)
	default:
		return Content{}, false, nil
	}
	return content, true, err
}

// allowEvents answers a sender that asks whether it may deliver events here, at any rate:
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/http-webhook.md#4-abuse-protection
// A valid token is sufficient.
func allowEvents(r *Request) Reply {
	header := map[string]string{"Allow": http.MethodPost + ", " + http.MethodOptions}
	if origin := r.Header.Get("WebHook-Request-Origin"); origin != "" {
		header["WebHook-Allowed-Origin"], header["WebHook-Allowed-Rate"] = origin, "*"
	}
	return Reply{Status: http.StatusOK, Header: header, Body: "OK"}
}

// mediaTypeOf returns the media type of a Content-Type in lower case, without parameters.
func mediaTypeOf(contentType string) string {
	name, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(name))
}

// readBinary reads an event whose attributes are headers and whose data is the body.
func readBinary(r *Request) (Content, error) {
	e := event{attributes: map[string]any{}}
	for name, values := range r.Header {
		if attribute, ok := strings.CutPrefix(name, eventHeaderPrefix); ok && len(values) > 0 {
			value := strings.TrimSpace(values[0])
			if plain, err := url.PathUnescape(value); err == nil { // or it is not percent-encoded
				value = plain
			}
			e.attributes[strings.ToLower(attribute)] = value
		}
	}
	contentType := r.Header.Get("Content-Type")
	if contentType != "" {
		e.attributes["datacontenttype"] = contentType
	}
	if err := e.check(); err != nil {
		return Content{}, err
	}
	warnings, err := e.readData(r, r.Body, contentType)
	return contentOf([]event{e}, warnings), err
}

// readJSON reads an event or a list of them. In a list, an event that is not valid does not affect the others.
func readJSON(r *Request, batch bool) (Content, error) {
	value, warnings, err := r.Parse(r.Body)
	if err != nil {
		return Content{}, err
	}
	list, isList := value.([]any)
	switch {
	case !batch:
		list = []any{value}
	case !isList:
		return Content{}, &InvalidError{Detail: "A batch of CloudEvents is a JSON array."}
	case len(list) > mapping.MaxAlerts:
		return Content{}, &mapping.TooManyError{Count: len(list)}
	}
	var events []event
	var invalid []string
	for i, element := range list {
		e, dataWarnings, err := readEvent(r, element)
		var notValid *InvalidError
		switch {
		case batch && errors.As(err, &notValid):
			invalid = append(invalid, fmt.Sprintf("Event %d: %s", i+1, notValid.Detail))
			continue
		case err != nil:
			return Content{}, err
		}
		events, warnings = append(events, e), append(warnings, dataWarnings...)
	}
	content := contentOf(events, warnings)
	content.Invalid = invalid
	return content, nil
}

func readEvent(r *Request, value any) (e event, warnings []payload.Warning, err error) {
	object, ok := value.(map[string]any)
	if !ok {
		return e, nil, &InvalidError{Detail: "It is not a JSON object."}
	}
	e.attributes = maps.Clone(object)
	data, encoded := object["data"], object["data_base64"]
	delete(e.attributes, "data")
	delete(e.attributes, "data_base64")
	if err := e.check(); err != nil {
		return e, nil, err
	}
	e.header = http.Header{} // so that expressions find the attributes there in every mode
	for name, value := range e.attributes {
		if text, ok := value.(string); ok {
			e.header.Set(eventHeaderPrefix+name, text)
		}
	}
	if encoded == nil {
		e.data = dataObject(data)
		return e, nil, nil
	}
	text, ok := encoded.(string)
	if !ok {
		return e, nil, &InvalidError{Detail: "data_base64 is not a string."}
	}
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return e, nil, &InvalidError{Detail: "data_base64 is not base64."}
	}
	contentType, _ := object["datacontenttype"].(string)
	warnings, err = e.readData(r, decoded, contentType)
	return e, warnings, err
}

// check reports what the specification requires and the event lacks.
func (e *event) check() error {
	if version, _ := e.attributes["specversion"].(string); version != specVersion {
		return &InvalidError{Detail: "The attribute specversion is not " + specVersion + "."}
	}
	for _, name := range []string{"id", "source", "type"} {
		if value, _ := e.attributes[name].(string); strings.TrimSpace(value) == "" {
			return &InvalidError{Detail: "The attribute " + name + " is absent, empty or not a string."}
		}
	}
	return nil
}

// readData reads data that was sent as bytes. Data of an unknown type is JSON if it can be read as such, else text.
func (e *event) readData(r *Request, data []byte, contentType string) ([]payload.Warning, error) {
	mediaType := mediaTypeOf(contentType)
	isJSON := strings.HasSuffix(mediaType, "/json") || strings.HasSuffix(mediaType, "+json")
	if len(data) == 0 {
		e.data = dataObject(nil)
		return nil, nil
	}
	if isJSON || mediaType == "" {
		value, warnings, err := r.Parse(data)
		var syntax *payload.SyntaxError
		switch {
		case err == nil:
			e.data = dataObject(value)
			return warnings, nil
		case isJSON && errors.As(err, &syntax), isJSON && errors.Is(err, payload.ErrEmpty):
			return nil, &InvalidError{Detail: "The data is not valid JSON, as its content type says."}
		case !errors.As(err, &syntax) && !errors.Is(err, payload.ErrEmpty):
			return nil, err
		}
	}
	if utf8.Valid(data) && !strings.HasPrefix(mediaType, "multipart/") {
		e.data = dataObject(string(data))
		return nil, nil
	}
	e.data = map[string]any{"data_base64": base64.StdEncoding.EncodeToString(data)}
	return nil, nil
}

// dataObject makes a payload of data: a text becomes the description, another value that is no object is kept as data.
func dataObject(data any) any {
	switch v := data.(type) {
	case nil:
		return map[string]any{}
	case map[string]any:
		return v
	case string:
		return map[string]any{"description": v}
	case []any:
		for _, element := range v {
			if _, ok := element.(map[string]any); !ok {
				return map[string]any{"data": v}
			}
		}
		return v
	}
	return map[string]any{"data": data}
}

// payload makes a payload of the data, to which the attributes give what it lacks: the type and the subject the title, and
// together with the source the key. Two problems never share a key, because the type is part of it; a sender that changes
// the type when a problem ends sets dedup_key in the data, or by a mapping.
func (e *event) payload() Payload {
	text := func(name string) string {
		value, _ := e.attributes[name].(string)
		return value
	}
	title, subject := text("type"), text("subject")
	labels := map[string]any{"ce_type": text("type"), "ce_source": text("source")}
	parts := []string{text("source"), text("type")}
	if subject != "" {
		title += ": " + subject
		labels["ce_subject"] = subject
		parts = append(parts, subject)
	}
	key, _ := json.Marshal(parts) // strings can be encoded
	rest := maps.Clone(e.attributes)
	for _, name := range []string{"type", "source", "subject", "specversion"} {
		delete(rest, name)
	}
	return Payload{Value: e.data, Header: e.header, Fallback: map[string]any{
		"title": title, "type": text("type"), "dedup_key": string(key), "labels": labels,
		"starts_at": e.attributes["time"], "ends_at": e.attributes["time"], "custom": map[string]any{"cloudevent": rest},
	}}
}

// contentOf returns the content of a request with these events. Copies of an event have the same source, id and data;
// other attributes may change on the way.
func contentOf(events []event, warnings []payload.Warning) Content {
	content := Content{Warnings: warnings}
	if len(events) == 0 {
		return content
	}
	var names []byte
	data := make([]any, 0, len(events))
	for _, e := range events {
		for _, name := range []string{"source", "id"} {
			value, _ := e.attributes[name].(string)
			names = append(binary.BigEndian.AppendUint64(names, uint64(len(value))), value...)
		}
		data = append(data, e.data)
		content.Payloads = append(content.Payloads, e.payload())
	}
	content.Key = fmt.Sprintf("CloudEvents: %x", sha256.Sum256(names))
	content.Identity, _ = json.Marshal(data) // it was decoded from JSON
	return content
}
