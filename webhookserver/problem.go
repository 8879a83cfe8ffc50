package webhookserver

import (
	"net/http"
	"strconv"

	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// problem is an answer to a request that is not accepted.
type problem = protocol.Problem

// The problems that the endpoint answers with. docs/http.md lists them.
var (
	problemNotFound = protocol.NotFound
	problemMethod   = problem{Type: "method-not-allowed", Status: http.StatusMethodNotAllowed, Title: "The method is not allowed",
		Reason: "MethodNotAllowed"}
	problemToken = problem{Type: "unauthorized", Status: http.StatusUnauthorized, Title: "The token is not valid",
		Detail: "No integration accepts this token."}
	problemNoToken = *problemToken.WithDetail(
		"The request has no token. It belongs at the end of the path, or behind Bearer in the Authorization header.")
	problemSuspended = problem{Type: "suspended", Status: http.StatusForbidden, Title: "The integration is suspended",
		Detail: "The integration of this token has spec.suspend set.", Reason: "Suspended"}
	problemParameterValue = protocol.InvalidParameter
	problemParameter      = *problemParameterValue.WithDetail(
		"A parameter's name resembles dryRun. Write dryRun=true to store nothing, or remove the parameter. Nothing was stored.")
	problemKey = problem{Type: "invalid-idempotency-key", Status: http.StatusBadRequest, Title: "The idempotency key is too long",
		Detail: "Idempotency-Key may have at most " + strconv.Itoa(maxIdempotencyKeyLength) + " bytes.",
		Reason: "InvalidIdempotencyKey"}
	problemEncoding = problem{Type: "unsupported-encoding", Status: http.StatusUnsupportedMediaType,
		Title: "The content encoding is not supported", Detail: "Send the body uncompressed or compressed with gzip.",
		Reason: "UnsupportedEncoding"}
	problemTooLarge = problem{Type: "body-too-large", Status: http.StatusRequestEntityTooLarge, Title: "The body is too large",
		Detail: "The body has more bytes than this server accepts, as sent or after decompression.", Reason: "BodyTooLarge"}
	problemUnreadable = problem{Type: "unreadable-body", Status: http.StatusBadRequest, Title: "The body could not be read",
		Detail: "The body is truncated or corrupt.", Reason: "UnreadableBody"}
	problemGzip = problem{Type: "malformed-gzip", Status: http.StatusBadRequest, Title: "The body is not valid gzip",
		Detail: "The Content-Encoding is gzip, but the body cannot be decompressed.", Reason: "MalformedGzip"}
	problemEmpty = problem{Type: "empty-body", Status: http.StatusBadRequest, Title: "The body is empty",
		Detail: "Send a JSON object.", Reason: "EmptyBody"}
	problemSyntax = problem{Type: "malformed-json", Status: http.StatusBadRequest, Title: "The body is not valid JSON",
		Reason: "MalformedJSON"}
	problemNotObject = problem{Type: "not-an-object", Status: http.StatusBadRequest, Title: "The body is not a JSON object",
		Detail: "The top-level value must be a JSON object.", Reason: "NotAnObject"}
	problemInvalid = problem{Type: "invalid-request", Status: http.StatusBadRequest, Title: "The request is not valid",
		Reason: "InvalidRequest"}
	problemTooManyAlerts = problem{Type: "too-many-alerts", Status: http.StatusRequestEntityTooLarge,
		Title: "The payload has too many alerts", Reason: "TooManyAlerts"}
	problemBatchTooLarge = problem{Type: "batch-too-large", Status: http.StatusRequestEntityTooLarge,
		Title: "The payload's alerts are too large to be stored together", Detail: "Send them in several requests.",
		Reason: "BatchTooLarge"}
	problemTooDeep = problem{Type: "nested-too-deep", Status: http.StatusBadRequest, Title: "The body is nested too deeply",
		Detail: "Objects and arrays may be nested 64 levels deep.", Reason: "NestedTooDeep"}
	problemTooComplex = problem{Type: "body-too-complex", Status: http.StatusRequestEntityTooLarge,
		Title: "The body has too many values", Detail: "It would take too much memory to decode. Send it in several requests.",
		Reason: "BodyTooComplex"}
	problemConflict = problem{Type: "idempotency-conflict", Status: http.StatusUnprocessableEntity,
		Title: "The idempotency key was used for another request",
		Detail: "An earlier request with the same key had another body or other fields in its query. Nothing of this one " +
			"was stored.",
		Reason: "IdempotencyConflict"}
	problemRejected = problem{Type: "rejected", Status: http.StatusUnprocessableEntity, Title: "The alert is not valid",
		Reason: "RejectedByAPIServer"}

	problemUnsynced = problem{Type: "not-ready", Status: http.StatusServiceUnavailable, Title: "The server is not ready",
		Detail:     "Its caches are not synced, or it cannot store alerts completely. Nothing was stored; try again.",
		RetryAfter: retryAfterUnsynced}
	problemOverload = problem{Type: "overloaded", Status: http.StatusServiceUnavailable, Title: "Too many alerts are waiting",
		Detail: "Nothing was stored; try again later.", RetryAfter: retryAfterOverload}
	problemBusy = problem{Type: "busy", Status: http.StatusServiceUnavailable, Title: "The server is busy",
		Detail: "Requests of all namespaces take turns at its processors. Nothing was stored; try again.", Reason: "Busy",
		RetryAfter: retryAfterUnavailable}
	problemSlow = problem{Type: "body-timeout", Status: http.StatusServiceUnavailable, Title: "The body arrived too slowly",
		Detail: "The body must arrive within 10 seconds. Nothing was stored; try again.", Reason: "BodyTimeout",
		RetryAfter: retryAfterUnavailable} // not 408, at which many senders give up
	problemNamespaceFull = problem{Type: "namespace-full", Status: http.StatusServiceUnavailable,
		Title:  "Too many alerts of this namespace are waiting",
		Detail: "Nothing was stored; try again later.", Reason: "NamespaceFull", RetryAfter: retryAfterOverload}
	problemIntegrationsTooLarge = problem{Type: "integrations-too-large", Status: http.StatusServiceUnavailable,
		Title: "The integrations of this namespace are too large together", Reason: "IntegrationsTooLarge",
		Detail:     "The server has no memory for the settings of the integration. Nothing was stored; try again later.",
		RetryAfter: retryAfterDenied}
	problemIncidentLimit = problem{Type: "incident-limit", Status: http.StatusServiceUnavailable,
		Title: "The namespace has reached its limit of incidents", Reason: "IncidentLimit", RetryAfter: retryAfterDenied,
		Detail: "Alerts of existing incidents are accepted. Nothing was stored; try again later."}
	problemMappingTimeout = problem{Type: "mapping-timeout", Status: http.StatusServiceUnavailable,
		Title:  "The mapping took too long",
		Detail: "The expressions of the integration's mapping were interrupted. Nothing was stored; try again.",
		Reason: "MappingTimeout", RetryAfter: retryAfterUnavailable}
	problemUnavailable = problem{Type: "not-stored", Status: http.StatusServiceUnavailable, Title: "The alert could not be stored",
		Detail:     "The Kubernetes API server did not accept it in time. Nothing was stored; try again.",
		RetryAfter: retryAfterUnavailable}
	problemDenied = problem{Type: "refused", Status: http.StatusServiceUnavailable,
		Title:      "The cluster refused the alert",
		Detail:     "Nothing was stored; try again later. See status.lastRejection of the integration.",
		RetryAfter: retryAfterDenied}
	problemUntagged = *problemToken.WithDetail(
		"The token has no tag of an integration: a token is tocsin_, the tag, _ and a secret. " +
			"Create one with \"kubectl tocsin token create\", or see docs/getting-started.md.")
	problemUnknown = problem{Type: "outcome-unknown", Status: http.StatusServiceUnavailable,
		Title: "It is unknown whether the alert was stored",
		Detail: "The Kubernetes API server did not confirm the alert in time. Try again; " +
			"with a dedup_key or an Idempotency-Key a second copy does no harm.",
		RetryAfter: retryAfterUnavailable}
	problemInternal = problem{Type: "internal-error", Status: http.StatusInternalServerError, Title: "Internal server error",
		Detail: "The log of the server has details."}
)

// blocksOnlyNew reports whether only alerts without an open Incident got the problem: no Incident is quiet because of it. If it
// counted as a missed alert, Incidents would stay open that could make space for those that are rejected.
func blocksOnlyNew(p *problem) bool { return p != nil && p.Type == problemIncidentLimit.Type }
