package webhookserver

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// eventsPath is the path to which alerts are posted, followed by a slash and the token, or by nothing when the token is
// in the Authorization header.
const eventsPath = "/api/v1/events/webhook"

// arrived is a request with what its path and the Authorization header say.
type arrived struct {
	*http.Request
	start    time.Time // by the clock of this process
	received time.Time // start converted to the API server's clock, with which alert times are compared

	operation  *protocol.Operation // of the path; nil for an unknown path
	identifier string              // in the path
	allowed    []string            // the methods of the path, if that of the request is not one of them
	token      string
}

// arrive finds the operation and the token of a request. A path is eventsPath/TOKEN/OPERATION. If the token is in the
// Authorization header, it is eventsPath/OPERATION, or /OPERATION for tools whose URL can have no path.
func (h *handler) arrive(r *http.Request) *arrived {
	a := &arrived{Request: r, start: h.options.Clock.Now(), received: h.options.Health.APITime()}
	path, found := strings.CutPrefix(r.URL.EscapedPath(), eventsPath)
	if found && path != "" && path[0] != '/' {
		return a
	}
	path = strings.Trim(path, "/")
	if found || path != "" {
		a.operation, a.identifier, a.allowed = protocol.Find(r.Method, path)
	}
	if a.operation == nil && found {
		token, rest, _ := strings.Cut(path, "/")
		if a.operation, a.identifier, a.allowed = protocol.Find(r.Method, strings.TrimLeft(rest, "/")); a.operation != nil {
			a.token, _ = url.PathUnescape(token) // the path has been parsed
		}
	}
	if a.token == "" {
		a.token = headerToken(r.Header)
	}
	return a
}

// headerToken returns the token of the Authorization header (RFC 6750, section 2.1; GenieKey is Opsgenie's scheme), empty
// when there is none.
func headerToken(header http.Header) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") && !strings.EqualFold(scheme, "GenieKey") {
		return ""
	}
	return strings.TrimSpace(token)
}

// route returns the pattern of the request's path, without the token; empty for an unknown path.
func (a *arrived) route() string {
	if a.operation == nil {
		return ""
	}
	return eventsPath + "/{token}" + a.operation.Path
}

func (a *arrived) arrival() *arrived     { return a }
func (a *arrived) owner() *authenticated { return nil }
func (a *arrived) isDryRun() bool        { return false }
func (a *arrived) forget()               {}
func (a *arrived) isBodyRead() bool      { return a.Body == nil || a.Body == http.NoBody }
