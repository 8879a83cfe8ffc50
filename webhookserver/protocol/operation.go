// Package protocol knows the APIs that tools already speak: PagerDuty's Events API, Opsgenie's Alert API, CloudEvents and
// Alertmanager's API. A tool that can send to one of them needs no other support for Tocsin than its address and a token.
//
// An Operation only translates one request of such an API, a method and a path, into payloads, and its outcome into an answer.
// Authentication, limits, presets and mappings, storing and idempotency are those of every other request.
//
// The package is pure: requests in, values out, with no client, no context, no network and no clock.
package protocol

import (
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// DryRunParameter is the one parameter of a query that is not a field of an alert. Its case does not matter.
const DryRunParameter = "dryRun"

// Operation is one request of an API that tools know.
type Operation struct {
	// Path is the path after the address of the integration, empty for the address itself. {identifier} stands for one
	// segment or several.
	Path    string
	Methods []string // that are allowed, the documented one first

	Preset     string // reads the payloads; empty: the preset and the mapping of the integration do
	ListPreset string // reads the payloads that are lists, if the integration has neither a preset nor a mapping

	// One of these is set, unless the operation is that of a feature. Read returns the payloads of a request; its errors are
	// those of Request.Parse, *InvalidError and *mapping.TooManyError. Answer answers a query, a request that stores nothing
	// and whose body is not read.
	Read   func(r *Request) (Content, error)
	Answer func(r *Request) Reply

	// Accepted returns the answer to a request whose alerts are stored, or that a feature accepts, and Rejected the body of the
	// answer to a request with a problem. Nil: the answer of Tocsin or the feature, and problem details.
	Accepted func(stored Stored) Reply
	Rejected func(status int, title, detail string) any
}

// IsQuery reports whether a request stores nothing.
func (o *Operation) IsQuery() bool { return o.Answer != nil }

// Request is a request with a valid token.
type Request struct {
	Header      http.Header
	Parameters  url.Values
	Body        []byte    // decompressed
	Identifier  string    // the value of {identifier}
	Integration string    // the name of the WebhookIntegration
	Started     time.Time // the time at which the server started

	// HasIncident reports for a query whether the integration's namespace has an Incident of this name.
	HasIncident func(name string) bool

	// Parse decodes JSON of a body that is read as payload.ParseAny does, within the limits of the memory of a request.
	Parse func(text []byte) (any, []payload.Warning, error)
}

// Content is what a request holds.
type Content struct {
	Payloads []Payload
	Warnings []payload.Warning
	Answer   *Reply   // to a request that holds no payload but a question; nil: it holds payloads
	Invalid  []string // describes the parts of the request that are not valid; the others are stored all the same

	// Key is the idempotency key, for a request without the header Idempotency-Key; empty: none. Requests with the same
	// key and Identity are copies.
	Key      string
	Identity []byte
}

// Payload is one payload of a request, and what the request says about it.
type Payload struct {
	Value  any         // decoded JSON: an object or a list of objects
	Header http.Header // what expressions see as headers beside those of the request, and instead of those of the same names

	// Within are the payloads in the value, the outermost first. The first of them that a preset recognizes is the payload.
	Within []Envelope

	// Fallback has the fields that the alert gets if the payload gives none, by their names in a payload. The dedup_key is
	// only for a payload with a single alert. Nil: none.
	Fallback map[string]any

	// Status, Comment and IncidentName are those of the alert. Empty: the payload decides.
	Status       v1alpha1.AlertStatus
	Comment      string
	IncidentName string
}

// InvalidError describes a request that the API does not allow, in a sentence.
type InvalidError struct{ Detail string }

func (e *InvalidError) Error() string { return e.Detail }

// Stored describes the first alert of a request whose alerts were stored, or dropped by the mapping.
type Stored struct {
	Integration  string // the name of the WebhookIntegration
	DedupKey     string
	IncidentName string
	Took         time.Duration
}

// Reply is an answer.
type Reply struct {
	Status int
	Header map[string]string
	Body   any // a string is sent as text, another value as JSON
}

// Operations returns all operations but those of features.
func Operations() []Operation {
	return slices.Concat(
		[]Operation{
			{Methods: []string{http.MethodPost}, Read: readEvents},
			{Methods: []string{http.MethodOptions}, Answer: allowEvents},
		},
		alertmanagerOperations(), pagerDutyOperations(), opsgenieOperations())
}

// route is an operation with its path in segments: those before the identifier, and those after it.
type route struct {
	*Operation
	prefix, suffix []string
	identified     bool
}

// Routes are operations by their paths.
type Routes []route

// NewRoutes returns the routes of operations.
func NewRoutes(all []Operation) Routes {
	slash := func(r rune) bool { return r == '/' }
	found := make(Routes, len(all))
	for i := range all {
		prefix, suffix, identified := strings.Cut(all[i].Path, "{identifier}")
		found[i] = route{&all[i], strings.FieldsFunc(prefix, slash), strings.FieldsFunc(suffix, slash), identified}
	}
	return found
}

// Find returns the operation of a method and an escaped path after the address of the integration, without slashes around it.
// If the path has operations but none with the method, it returns one of them, and all methods of the path as allowed.
func (all Routes) Find(method, path string) (operation *Operation, identifier string, allowed []string) {
	var segments []string
	if path != "" {
		segments = strings.Split(path, "/")
	}
	for i := range all {
		candidate := &all[i]
		found, ok := candidate.match(segments)
		switch {
		case !ok:
			continue
		case slices.Contains(candidate.Methods, method):
			return candidate.Operation, found, nil
		}
		operation, identifier, allowed = candidate.Operation, found, append(allowed, candidate.Methods...)
	}
	return operation, identifier, allowed
}

// match returns the identifier in a path of the operation. An identifier may have several segments, because some clients
// do not escape the slashes in it.
func (r *route) match(segments []string) (identifier string, ok bool) {
	n := len(segments) - len(r.prefix) - len(r.suffix)
	if n < 0 || r.identified != (n > 0) ||
		!slices.Equal(segments[:len(r.prefix)], r.prefix) || !slices.Equal(segments[len(r.prefix)+n:], r.suffix) {
		return "", false
	}
	if n == 0 {
		return "", true
	}
	parts := slices.Clone(segments[len(r.prefix) : len(r.prefix)+n])
	for i := range parts {
		if plain, err := url.PathUnescape(parts[i]); err == nil {
			parts[i] = plain
		}
	}
	return strings.Join(parts, "/"), true
}

// readEvents reads a request to the address of the integration: CloudEvents, or else a payload of any format.
func readEvents(r *Request) (Content, error) {
	if content, ok, err := readCloudEvents(r); ok {
		return content, err
	}
	return readPayload(r)
}

// lineTypes are the media types of a body with one JSON value a line.
var lineTypes = []string{"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}

// readPayload reads a body that is one payload, as it is or in a form, or one with a payload a line.
func readPayload(r *Request) (Content, error) {
	text := r.Body
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); slices.Contains(lineTypes, media) {
		text = payload.FromLines(text)
	} else if json, ok := payload.FromForm(text); ok {
		text = json
	}
	value, warnings, err := r.Parse(text)
	if err != nil {
		return Content{}, err
	}
	if answer := answerToEventGrid(value); answer != nil {
		return Content{Answer: answer}, nil
	}
	content := Content{Warnings: warnings}
	for _, value := range gridEvents(value) {
		within, err := unwrap(r, value)
		if err != nil {
			return Content{}, err
		}
		content.Payloads = append(content.Payloads, Payload{Value: value, Within: within})
	}
	return content, nil
}
