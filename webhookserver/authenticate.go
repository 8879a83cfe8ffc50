package webhookserver

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/webhookserver/capture"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// eventsPath is the path to which alerts are posted, followed by a slash and the token, or by nothing when the token is
// in the Authorization header.
const eventsPath = "/api/v1/events/webhook"

// arrived is a request with what its path and the Authorization header say.
type arrived struct {
	*http.Request
	start    time.Time // by the clock of this process
	received time.Time // the same by the API server's clock, with which alert times are compared

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

// authenticated is a request with a valid token.
type authenticated struct {
	*arrived
	integration *v1alpha1.WebhookIntegration // of the token
	span        trace.Span                   // nil without tracing
	captured    *capture.Pending             // nil unless the request is kept

	// What the request has of the handler's memory and places, until it is answered.
	memory []*fair.Reservation
	place  *fair.Place // nil while it needs no processor
}

// authenticate finds the integration of the token, and notes the use of the token. An unknown path is not found, whatever the
// token. Of a request without a valid token, whatever else is wrong is told first.
func (h *handler) authenticate(a *arrived) (*authenticated, *problem) {
	if a.operation == nil {
		return nil, &problemNotFound
	}
	if !h.ready() {
		return nil, cmp.Or(a.checkMethod(), &problemUnsynced)
	}
	integration, used, p := h.tokens.lookup(a.token, a.received)
	if p == nil {
		h.reports.reportUse(integration, used)
		return h.beginSpan(&authenticated{arrived: a, integration: integration}), nil
	}
	if other := h.checkService(a); other != nil {
		return nil, other
	}
	if integration != nil {
		h.reports.reportRejection(integration, "TokenExpired", "An expired token was used.")
		return nil, p
	}
	h.tokens.search(a.token, a.start, func(lister *v1alpha1.WebhookIntegration, name string) {
		h.reports.reportRejection(lister, "InvalidTokenTag",
			fmt.Sprintf("The token %q does not have the tag of this integration and cannot be used. Create a new one.", name))
	})
	return nil, p
}

// checkService returns why no integration accepts the request; nil if one may.
func (h *handler) checkService(a *arrived) *problem {
	p := a.checkMethod()
	if p == nil && h.options.Schemas.Verdict() != nil { // another replica may lead, and must learn of the alert that is not stored
		return &problemUnsynced
	}
	return p
}

// checkMethod returns the problem if the path does not have the method.
func (a *arrived) checkMethod() *problem {
	if a.allowed == nil {
		return nil
	}
	return allowing(a.allowed)
}

func (a *authenticated) owner() *authenticated { return a }

// integrationName returns the namespace and name of the integration, whose turns and shares the request counts as.
func (a *authenticated) integrationName() types.NamespacedName {
	return types.NamespacedName{Namespace: a.integration.Namespace, Name: a.integration.Name}
}

// enter has the request wait for its turn to use a processor; leave ends that.
func (h *handler) enter(a *authenticated) (p *problem) {
	var err error
	if a.place, err = h.places.Enter(a.Context(), a.integration.Namespace, maxPlaceWait); err != nil {
		return &problemBusy
	}
	return nil
}

func (a *authenticated) leave() {
	if a.place != nil {
		a.place.Leave()
		a.place = nil
	}
}

// reserve reserves memory until the request is answered.
func (h *handler) reserve(a *authenticated, bytes int64) (*fair.Reservation, *problem) {
	memory := h.bodies.Reserve(a.integrationName(), bytes, 0)
	if memory == nil {
		return nil, &problemOverload
	}
	a.memory = append(a.memory, memory)
	return memory, nil
}

// release gives back what the request has of the handler.
func (a *authenticated) release() {
	a.leave()
	for _, memory := range a.memory {
		memory.Release()
	}
}
