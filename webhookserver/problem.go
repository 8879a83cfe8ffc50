package webhookserver

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// problem is an answer to a request that is not accepted, in the format of RFC 9457.
type problem struct {
	// The members of the body, in RFC 9457's order, the extension members last.
	Type   problemType `json:"type"`
	Title  string      `json:"title"`
	Status int         `json:"status"`
	Detail string      `json:"detail,omitempty"`
	Offset *int64      `json:"offset,omitempty"` // the position of the error in the body, if it has one
	Limit  int64       `json:"limit,omitempty"`  // the limit in bytes that was exceeded, if any

	reason      string // in status.lastRejection of the integration; empty: it is not shown there
	ownerDetail string // shown in status.lastRejection and not to the sender
	retryAfter  int    // seconds, 0: no such header
	allow       string // the header Allow
	cause       error  // for the log; nil: the problem says all
}

// problemType is the type of a problem without problemTypePrefix.
type problemType string

// problemTypePrefix begins the type of every problem. It is a tag URI (RFC 4151): a name, not an address.
const problemTypePrefix = "tag:tocsin.dev,2026:"

// MarshalText writes the whole type.
func (t problemType) MarshalText() ([]byte, error) { return []byte(problemTypePrefix + t), nil }

// The problems that the endpoint answers with. docs/http.md lists them.
var (
	problemNotFound = problem{Type: "not-found", Status: http.StatusNotFound, Title: "Not found",
		Detail: "Post to /api/v1/events/webhook/{token}, or to /api/v1/events/webhook with the token in the Authorization header."}
	problemMethod = problem{Type: "method-not-allowed", Status: http.StatusMethodNotAllowed, Title: "The method is not allowed",
		reason: "MethodNotAllowed"}
	problemToken = problem{Type: "unauthorized", Status: http.StatusUnauthorized, Title: "The token is not valid",
		Detail: "No integration accepts this token."}
	problemNoToken = *problemToken.withDetail(
		"The request has no token. It belongs at the end of the path, or behind Bearer in the Authorization header.")
	problemSuspended = problem{Type: "suspended", Status: http.StatusForbidden, Title: "The integration is suspended",
		Detail: "The integration of this token has spec.suspend set.", reason: "Suspended"}
	problemParameterValue = problem{
		Type: "invalid-parameter", Status: http.StatusBadRequest, Title: "A query parameter is not valid",
		Detail: "dryRun is neither true nor false.", reason: "InvalidParameter"}
	problemParameter = *problemParameterValue.withDetail(
		"A parameter's name resembles dryRun. Write dryRun=true to store nothing, or remove the parameter. Nothing was stored.")
	problemKey = problem{Type: "invalid-idempotency-key", Status: http.StatusBadRequest, Title: "The idempotency key is too long",
		Detail: "Idempotency-Key may have at most " + strconv.Itoa(maxIdempotencyKeyLength) + " bytes.",
		reason: "InvalidIdempotencyKey"}
	problemHeartbeat = problem{Type: "unknown-heartbeat", Status: http.StatusNotFound, Title: "There is no such heartbeat",
		reason: "UnknownHeartbeat"}
	problemOutcome = *problemParameterValue.withDetail(
		"The outcome is neither ok nor failed, nor an exit code from 0 to 255. Nothing was stored.")
	problemPingParameter = *problemParameterValue.withDetail(
		"A ping has no such parameter. It reports an outcome by status=ok or status=failed, and an exit code by the end of the path, " +
			"/heartbeat/NAME/1. Nothing was stored.")
	problemEncoding = problem{Type: "unsupported-encoding", Status: http.StatusUnsupportedMediaType,
		Title: "The content encoding is not supported", Detail: "Send the body uncompressed or compressed with gzip.",
		reason: "UnsupportedEncoding"}
	problemTooLarge = problem{Type: "body-too-large", Status: http.StatusRequestEntityTooLarge, Title: "The body is too large",
		Detail: "The body has more bytes than this server accepts, as sent or after decompression.", reason: "BodyTooLarge"}
	problemUnreadable = problem{Type: "unreadable-body", Status: http.StatusBadRequest, Title: "The body could not be read",
		Detail: "The body is truncated or corrupt.", reason: "UnreadableBody"}
	problemGzip = problem{Type: "malformed-gzip", Status: http.StatusBadRequest, Title: "The body is not valid gzip",
		Detail: "The Content-Encoding is gzip, but the body cannot be decompressed.", reason: "MalformedGzip"}
	problemEmpty = problem{Type: "empty-body", Status: http.StatusBadRequest, Title: "The body is empty",
		Detail: "Send a JSON object.", reason: "EmptyBody"}
	problemSyntax = problem{Type: "malformed-json", Status: http.StatusBadRequest, Title: "The body is not valid JSON",
		reason: "MalformedJSON"}
	problemNotObject = problem{Type: "not-an-object", Status: http.StatusBadRequest, Title: "The body is not a JSON object",
		Detail: "The top-level value must be a JSON object.", reason: "NotAnObject"}
	problemInvalid = problem{Type: "invalid-request", Status: http.StatusBadRequest, Title: "The request is not valid",
		reason: "InvalidRequest"}
	problemTooManyAlerts = problem{Type: "too-many-alerts", Status: http.StatusRequestEntityTooLarge,
		Title: "The payload has too many alerts", reason: "TooManyAlerts"}
	problemBatchTooLarge = problem{Type: "batch-too-large", Status: http.StatusRequestEntityTooLarge,
		Title: "The payload's alerts are too large to be stored together", Detail: "Send them in several requests.",
		reason: "BatchTooLarge"}
	problemTooDeep = problem{Type: "nested-too-deep", Status: http.StatusBadRequest, Title: "The body is nested too deeply",
		Detail: "Objects and arrays may be nested 64 levels deep.", reason: "NestedTooDeep"}
	problemTooComplex = problem{Type: "body-too-complex", Status: http.StatusRequestEntityTooLarge,
		Title: "The body has too many values", Detail: "It would take too much memory to decode. Send it in several requests.",
		reason: "BodyTooComplex"}
	problemConflict = problem{Type: "idempotency-conflict", Status: http.StatusUnprocessableEntity,
		Title: "The idempotency key was used for another request",
		Detail: "An earlier request with the same key had another body or other fields in its query. Nothing of this one " +
			"was stored.",
		reason: "IdempotencyConflict"}
	problemRejected = problem{Type: "rejected", Status: http.StatusUnprocessableEntity, Title: "The alert is not valid",
		reason: "RejectedByAPIServer"}

	problemUnsynced = problem{Type: "not-ready", Status: http.StatusServiceUnavailable, Title: "The server is not ready",
		Detail:     "Its caches are not synced, or it cannot store alerts completely. Nothing was stored; try again.",
		retryAfter: retryAfterUnsynced}
	problemOverload = problem{Type: "overloaded", Status: http.StatusServiceUnavailable, Title: "Too many alerts are waiting",
		Detail: "Nothing was stored; try again later.", retryAfter: retryAfterOverload}
	problemBusy = problem{Type: "busy", Status: http.StatusServiceUnavailable, Title: "The server is busy",
		Detail: "Requests of all namespaces take turns at its processors. Nothing was stored; try again.", reason: "Busy",
		retryAfter: retryAfterUnavailable}
	problemSlow = problem{Type: "body-timeout", Status: http.StatusServiceUnavailable, Title: "The body arrived too slowly",
		Detail: "The body must arrive within 10 seconds. Nothing was stored; try again.", reason: "BodyTimeout",
		retryAfter: retryAfterUnavailable} // not 408, at which many senders give up
	problemNamespaceFull = problem{Type: "namespace-full", Status: http.StatusServiceUnavailable,
		Title:  "Too many alerts of this namespace are waiting",
		Detail: "Nothing was stored; try again later.", reason: "NamespaceFull", retryAfter: retryAfterOverload}
	problemIntegrationsTooLarge = problem{Type: "integrations-too-large", Status: http.StatusServiceUnavailable,
		Title: "The integrations of this namespace are too large together", reason: "IntegrationsTooLarge",
		Detail:     "The server has no memory for the settings of the integration. Nothing was stored; try again later.",
		retryAfter: retryAfterDenied}
	problemIncidentLimit = problem{Type: "incident-limit", Status: http.StatusServiceUnavailable,
		Title: "The namespace has reached its limit of incidents", reason: "IncidentLimit", retryAfter: retryAfterDenied,
		Detail: "Alerts of existing incidents are accepted. Nothing was stored; try again later."}
	problemMappingTimeout = problem{Type: "mapping-timeout", Status: http.StatusServiceUnavailable,
		Title:  "The mapping took too long",
		Detail: "The expressions of the integration's mapping were interrupted. Nothing was stored; try again.",
		reason: "MappingTimeout", retryAfter: retryAfterUnavailable}
	problemUnavailable = problem{Type: "not-stored", Status: http.StatusServiceUnavailable, Title: "The alert could not be stored",
		Detail:     "The Kubernetes API server did not accept it in time. Nothing was stored; try again.",
		retryAfter: retryAfterUnavailable}
	problemDenied = problem{Type: "refused", Status: http.StatusServiceUnavailable,
		Title:      "The cluster refused the alert",
		Detail:     "Nothing was stored; try again later. See status.lastRejection of the integration.",
		retryAfter: retryAfterDenied}
	problemUntagged = *problemToken.withDetail(
		"The token has no tag of an integration: a token is tocsin_, the tag, _ and a secret. " +
			"Create one with \"kubectl tocsin token create\", or see docs/getting-started.md.")
	problemUnknown = problem{Type: "outcome-unknown", Status: http.StatusServiceUnavailable,
		Title: "It is unknown whether the alert was stored",
		Detail: "The Kubernetes API server did not confirm the alert in time. Try again; " +
			"with a dedup_key or an Idempotency-Key a second copy does no harm.",
		retryAfter: retryAfterUnavailable}
	problemInternal = problem{Type: "internal-error", Status: http.StatusInternalServerError, Title: "Internal server error",
		Detail: "The log of the server has details."}
)

func (p problem) withDetail(detail string) *problem {
	p.Detail = detail
	return &p
}

func (p problem) causedBy(err error) *problem {
	p.cause = err
	return &p
}

// ownerMessage describes the problem to the owner of the integration, with nothing of the request but what a policy of
// the cluster quotes.
func (p *problem) ownerMessage() string {
	switch {
	case p.ownerDetail != "":
		return p.Title + ": " + p.ownerDetail
	case p.Offset != nil:
		return fmt.Sprintf("%s, at byte %d.", p.Title, *p.Offset)
	case p.Limit > 0:
		return fmt.Sprintf("%s, the limit is %d bytes.", p.Title, p.Limit)
	default:
		return p.Title + "."
	}
}

// Error implements error, so that a problem can pass through functions that return any error.
func (p *problem) Error() string { return p.Title }

// blocksOnlyNew reports whether only alerts without an open Incident got the problem: no Incident is quiet because of it. If it
// counted as a missed alert, Incidents would stay open that could make space for those that are rejected.
func (p *problem) blocksOnlyNew() bool { return p != nil && p.Type == problemIncidentLimit.Type }

// reply returns the answer, in the form of the operation if it has one.
func (p *problem) reply(operation *protocol.Operation) protocol.Reply {
	reply := protocol.Reply{Status: p.Status, Header: map[string]string{}, Body: p}
	if p.retryAfter > 0 {
		reply.Header["Retry-After"] = strconv.Itoa(p.retryAfter)
	}
	if p.allow != "" {
		reply.Header["Allow"] = p.allow
	}
	if p.Status == http.StatusUnauthorized {
		reply.Header["WWW-Authenticate"] = "Bearer" // RFC 9110, section 11.6.1
	}
	if p.Status == http.StatusUnsupportedMediaType {
		reply.Header["Accept-Encoding"] = "gzip, identity" // RFC 9110, section 12.5.3
	}
	if operation != nil && operation.Rejected != nil {
		reply.Body = operation.Rejected(p.Status, p.Title, p.Detail)
	}
	return reply
}
