package webhookserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// problemTypePrefix begins the type of every problem. It is a tag URI (RFC 4151): a name, not an address.
const problemTypePrefix = "tag:tocsin.dev,2026:"

// problem is an answer that refuses a request, in the format of RFC 9457.
type problem struct {
	kind        string // the end of the type
	status      int
	title       string
	detail      string
	reason      string // in status.lastRejection of the integration; empty: it is not shown there
	ownerDetail string // shown in status.lastRejection and not to the sender
	offset      *int64 // the position of the error in the body, if it has one
	limit       int64  // the limit in bytes that was exceeded, if any
	retryAfter  int    // seconds, 0: no such header
	allow       string // the header Allow
}

// The problems that the endpoint answers with. docs/http.md lists them.
var (
	problemNotFound = problem{kind: "not-found", status: http.StatusNotFound, title: "Not found",
		detail: "Post to /api/v1/events/webhook/{token}, or to /api/v1/events/webhook with the token in the Authorization header."}
	problemMethod = problem{kind: "method-not-allowed", status: http.StatusMethodNotAllowed, title: "The method is not allowed",
		reason: "MethodNotAllowed"}
	problemToken = problem{kind: "unauthorized", status: http.StatusUnauthorized, title: "The token is not valid",
		detail: "No integration accepts this token."}
	problemSignature = problem{kind: "invalid-signature", status: http.StatusUnauthorized, title: "The signature is not valid",
		detail: "The integration of this token requires a valid signature.", reason: "InvalidSignature"}
	problemSuspended = problem{kind: "suspended", status: http.StatusForbidden, title: "The integration is suspended",
		detail: "The integration of this token has spec.suspend set.", reason: "Suspended"}
	problemUnsignedPath = problem{kind: "unsigned-path", status: http.StatusForbidden, title: "The path is not signed",
		detail: "The integration of this token requires signatures, which do not include the path. " +
			"Post to the address of the integration.",
		reason: "UnsignedPath"}
	problemDryRun = problem{kind: "invalid-parameter", status: http.StatusBadRequest, title: "A query parameter is not valid",
		detail: "dryRun is neither true nor false.", reason: "InvalidParameter"}
	problemParameter = *problemDryRun.withDetail(
		"A parameter's name resembles dryRun. Write dryRun=true to store nothing, or remove the parameter. Nothing was stored.")
	problemKey = problem{kind: "invalid-idempotency-key", status: http.StatusBadRequest, title: "The idempotency key is too long",
		detail: "Idempotency-Key may have at most " + strconv.Itoa(maxIdempotencyKeyLength) + " bytes.",
		reason: "InvalidIdempotencyKey"}
	problemHeartbeat = problem{kind: "unknown-heartbeat", status: http.StatusNotFound, title: "There is no such heartbeat",
		reason: "UnknownHeartbeat"}
	problemOutcome = *problemDryRun.withDetail(
		"The outcome is neither ok nor failed, nor an exit code from 0 to 255. Nothing was stored.")
	problemEncoding = problem{kind: "unsupported-encoding", status: http.StatusUnsupportedMediaType,
		title: "The content encoding is not supported", detail: "Send the body uncompressed or compressed with gzip.",
		reason: "UnsupportedEncoding"}
	problemTooLarge = problem{kind: "body-too-large", status: http.StatusRequestEntityTooLarge, title: "The body is too large",
		detail: "The body has more bytes than this server accepts, as sent or after decompression.", reason: "BodyTooLarge"}
	problemUnreadable = problem{kind: "unreadable-body", status: http.StatusBadRequest, title: "The body could not be read",
		detail: "The body is truncated or corrupt.", reason: "UnreadableBody"}
	problemSlow = problem{kind: "body-timeout", status: http.StatusRequestTimeout, title: "The body arrived too slowly",
		detail: "The body must arrive within 10 seconds.", reason: "BodyTimeout"}
	problemGzip = problem{kind: "malformed-gzip", status: http.StatusBadRequest, title: "The body is not valid gzip",
		detail: "The Content-Encoding is gzip, but the body cannot be decompressed.", reason: "MalformedGzip"}
	problemEmpty = problem{kind: "empty-body", status: http.StatusBadRequest, title: "The body is empty",
		detail: "Send a JSON object.", reason: "EmptyBody"}
	problemSyntax = problem{kind: "malformed-json", status: http.StatusBadRequest, title: "The body is not valid JSON",
		reason: "MalformedJSON"}
	problemNotObject = problem{kind: "not-an-object", status: http.StatusBadRequest, title: "The body is not a JSON object",
		detail: "The top-level value must be a JSON object.", reason: "NotAnObject"}
	problemInvalid = problem{kind: "invalid-request", status: http.StatusBadRequest, title: "The request is not valid",
		reason: "InvalidRequest"}
	problemTooManyAlerts = problem{kind: "too-many-alerts", status: http.StatusRequestEntityTooLarge,
		title: "The payload has too many alerts", reason: "TooManyAlerts"}
	problemBatchTooLarge = problem{kind: "batch-too-large", status: http.StatusRequestEntityTooLarge,
		title: "The payload's alerts are too large to be stored together", detail: "Send them in several requests.",
		reason: "BatchTooLarge"}
	problemTooDeep = problem{kind: "nested-too-deep", status: http.StatusBadRequest, title: "The body is nested too deeply",
		detail: "Objects and arrays may be nested 64 levels deep.", reason: "NestedTooDeep"}
	problemTooComplex = problem{kind: "body-too-complex", status: http.StatusRequestEntityTooLarge,
		title: "The body has too many values", detail: "It would take too much memory to decode. Send it in several requests.",
		reason: "BodyTooComplex"}
	problemConflict = problem{kind: "idempotency-conflict", status: http.StatusUnprocessableEntity,
		title:  "The idempotency key was used for another request",
		detail: "An earlier request with the same key had another body. Nothing of this one was stored.", reason: "IdempotencyConflict"}
	problemRejected = problem{kind: "rejected", status: http.StatusUnprocessableEntity, title: "The alert is not valid",
		reason: "RejectedByAPIServer"}

	problemUnsynced = problem{kind: "not-ready", status: http.StatusServiceUnavailable, title: "The server is not ready",
		detail:     "Its caches are not synced, or it cannot store alerts completely. Nothing was stored; try again.",
		retryAfter: retryAfterUnsynced}
	problemOverload = problem{kind: "overloaded", status: http.StatusServiceUnavailable, title: "Too many alerts are waiting",
		detail: "Nothing was stored; try again later.", retryAfter: retryAfterOverload}
	problemNamespaceFull = problem{kind: "namespace-full", status: http.StatusServiceUnavailable,
		title:  "Too many alerts of this namespace are waiting",
		detail: "Nothing was stored; try again later.", reason: "NamespaceFull", retryAfter: retryAfterOverload}
	problemIncidentLimit = problem{kind: "incident-limit", status: http.StatusServiceUnavailable,
		title: "The namespace has reached its limit of incidents", reason: "IncidentLimit", retryAfter: retryAfterRefused,
		detail: "Alerts of existing incidents are accepted. Nothing was stored; try again later."}
	problemMappingTimeout = problem{kind: "mapping-timeout", status: http.StatusServiceUnavailable,
		title:  "The mapping took too long",
		detail: "The expressions of the integration's mapping were interrupted. Nothing was stored; try again.",
		reason: "MappingTimeout", retryAfter: retryAfterUnavailable}
	problemUnavailable = problem{kind: "not-stored", status: http.StatusServiceUnavailable, title: "The alert could not be stored",
		detail:     "The Kubernetes API server did not accept it in time. Nothing was stored; try again.",
		retryAfter: retryAfterUnavailable}
	problemRefused = problem{kind: "refused", status: http.StatusServiceUnavailable,
		title:      "The cluster refused the alert",
		detail:     "Nothing was stored; try again later. See status.lastRejection of the integration.",
		retryAfter: retryAfterRefused}
	problemUntagged = *problemToken.withDetail(
		"The token has no tag of an integration: a token is tocsin_, the tag, _ and a secret. " +
			"Create one with \"kubectl tocsin token create\", or see docs/getting-started.md.")
	problemUnknown = problem{kind: "outcome-unknown", status: http.StatusServiceUnavailable,
		title: "It is unknown whether the alert was stored",
		detail: "The Kubernetes API server did not confirm the alert in time. Try again; " +
			"with a dedup_key or an Idempotency-Key a second copy does no harm.",
		retryAfter: retryAfterUnavailable}
	problemInternal = problem{kind: "internal-error", status: http.StatusInternalServerError, title: "Internal server error",
		detail: "The log of the server has details."}
)

// MarshalJSON writes the problem's members in RFC 9457's order, the extension members last.
func (p *problem) MarshalJSON() ([]byte, error) {
	members := struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
		Offset *int64 `json:"offset,omitempty"`
		Limit  int64  `json:"limit,omitempty"`
	}{problemTypePrefix + p.kind, p.title, p.status, p.detail, p.offset, p.limit}
	return json.Marshal(members)
}

// allowing returns problemMethod for a path with these methods.
func allowing(methods []string) *problem {
	p := problemMethod.withDetail("Set the sender to use the method " + strings.Join(methods, " or ") + ".")
	p.allow = strings.Join(methods, ", ")
	return p
}

func (p problem) withDetail(detail string) *problem {
	p.detail = detail
	return &p
}

// ownerMessage describes the problem to the owner of the integration, with nothing of the request but what a policy of
// the cluster quotes.
func (p *problem) ownerMessage() string {
	switch {
	case p.ownerDetail != "":
		return p.title + ": " + p.ownerDetail
	case p.offset != nil:
		return fmt.Sprintf("%s, at byte %d.", p.title, *p.offset)
	case p.limit > 0:
		return fmt.Sprintf("%s, the limit is %d bytes.", p.title, p.limit)
	default:
		return p.title + "."
	}
}

// Error implements error, so that a problem can pass through functions that return any error.
func (p *problem) Error() string { return p.title }

// reply returns the answer, in the form of the operation if it has one.
func (p *problem) reply(operation *protocol.Operation) protocol.Reply {
	reply := protocol.Reply{Status: p.status, Header: map[string]string{}, Body: p}
	if p.retryAfter > 0 {
		reply.Header["Retry-After"] = strconv.Itoa(p.retryAfter)
	}
	if p.allow != "" {
		reply.Header["Allow"] = p.allow
	}
	if p.status == http.StatusUnauthorized {
		reply.Header["WWW-Authenticate"] = "Bearer" // RFC 9110, section 11.6.1
	}
	if p.status == http.StatusUnsupportedMediaType {
		reply.Header["Accept-Encoding"] = "gzip, identity" // RFC 9110, section 12.5.3
	}
	if operation != nil && operation.Refused != nil {
		reply.Body = operation.Refused(p.status, p.title, p.detail)
	}
	return reply
}
