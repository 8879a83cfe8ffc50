package protocol

import (
	"fmt"
	"net/http"
	"strconv"
)

// Problem is an answer to a request that is not accepted, in the format of RFC 9457.
type Problem struct {
	// The members of the body, in RFC 9457's order, the extension members last.
	Type   ProblemType `json:"type"`
	Title  string      `json:"title"`
	Status int         `json:"status"`
	Detail string      `json:"detail,omitempty"`
	Offset *int64      `json:"offset,omitempty"` // the position of the error in the body, if it has one
	Limit  int64       `json:"limit,omitempty"`  // the limit in bytes that was exceeded, if any

	Reason      string `json:"-"` // in status.lastRejection of the integration; empty: it is not shown there
	OwnerDetail string `json:"-"` // shown in status.lastRejection and not to the sender
	RetryAfter  int    `json:"-"` // seconds, 0: no such header
	Allow       string `json:"-"` // the header Allow
	Cause       error  `json:"-"` // for the log; nil: the problem says all
}

// ProblemType is the type of a problem without ProblemTypePrefix.
type ProblemType string

// ProblemTypePrefix begins the type of every problem. It is a tag URI (RFC 4151): a name, not an address.
const ProblemTypePrefix = "tag:tocsin.dev,2026:"

// MarshalText writes the whole type.
func (t ProblemType) MarshalText() ([]byte, error) { return []byte(ProblemTypePrefix + t), nil }

// The problems that features share with the endpoint.
var (
	NotFound = Problem{Type: "not-found", Status: http.StatusNotFound, Title: "Not found",
		Detail: "Post to /api/v1/events/webhook/{token}, or to /api/v1/events/webhook with the token in the Authorization header."}
	InvalidParameter = Problem{
		Type: "invalid-parameter", Status: http.StatusBadRequest, Title: "A query parameter is not valid",
		Detail: "dryRun is neither true nor false.", Reason: "InvalidParameter"}
)

// WithDetail returns the problem with another detail.
func (p Problem) WithDetail(detail string) *Problem {
	p.Detail = detail
	return &p
}

// CausedBy returns the problem with a cause.
func (p Problem) CausedBy(err error) *Problem {
	p.Cause = err
	return &p
}

// OwnerMessage describes the problem to the owner of the integration, with nothing of the request but what a policy of
// the cluster quotes.
func (p *Problem) OwnerMessage() string {
	switch {
	case p.OwnerDetail != "":
		return p.Title + ": " + p.OwnerDetail
	case p.Offset != nil:
		return fmt.Sprintf("%s, at byte %d.", p.Title, *p.Offset)
	case p.Limit > 0:
		return fmt.Sprintf("%s, the limit is %d bytes.", p.Title, p.Limit)
	default:
		return p.Title + "."
	}
}

// Error implements error, so that a problem can pass through functions that return any error.
func (p *Problem) Error() string { return p.Title }

// Reply returns the answer, in the form of the operation if it has one.
func (p *Problem) Reply(operation *Operation) Reply {
	reply := Reply{Status: p.Status, Header: map[string]string{}, Body: p}
	if p.RetryAfter > 0 {
		reply.Header["Retry-After"] = strconv.Itoa(p.RetryAfter)
	}
	if p.Allow != "" {
		reply.Header["Allow"] = p.Allow
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
