package webhookserver

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/tokens"
	"github.com/tocsin-dev/tocsin/webhookserver/capture"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
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
	feature    feature.Feature     // that has the operation; nil: it is one of package protocol
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
		h.find(a, path)
	}
	if a.operation == nil && found {
		token, rest, _ := strings.Cut(path, "/")
		if h.find(a, strings.TrimLeft(rest, "/")); a.operation != nil {
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

var ownRoutes = protocol.NewRoutes(protocol.Operations())

// find finds the operation of a path after the address of the integration, if there is one.
func (h *handler) find(a *arrived, path string) {
	a.operation, a.identifier, a.allowed = ownRoutes.Find(a.Method, path)
	for _, f := range h.options.Features {
		if a.operation != nil {
			return
		}
		if a.operation, a.identifier, a.allowed = f.Routes().Find(a.Method, path); a.operation != nil {
			a.feature = f
		}
	}
}

// authenticate finds the integration of the token, and notes the use of the token. An unknown path is not found, whatever the
// token. The problem of an invalid token is told only if the path has the method, and if this server may store alerts.
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
	if other := h.checkServable(a); other != nil {
		return nil, other
	}
	if integration != nil {
		h.reports.reportRejection(integration, "TokenExpired", "An expired token was used.")
		return nil, p
	}
	if tokens.TagOf(a.token) != "" && h.options.Health.IsCutOff() {
		return nil, &problemUnsynced // senders give up at 401, and the token may be newer than what is known
	}
	h.tokens.search(a.token, a.start, func(lister *v1alpha1.WebhookIntegration, name string) {
		h.reports.reportRejection(lister, "InvalidTokenTag",
			fmt.Sprintf("The token %q does not have the tag of this integration and cannot be used. Create a new one.", name))
	})
	return nil, p
}

// checkServable returns why no integration accepts the request; nil if one may.
func (h *handler) checkServable(a *arrived) *problem {
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
	p := problemMethod.WithDetail("Set the sender to use the method " + strings.Join(a.allowed, " or ") + ".")
	p.Allow = strings.Join(a.allowed, ", ")
	return p
}

// integrationName returns the namespace and name of the integration, by which turns and shares are counted.
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

func (a *authenticated) release() {
	a.leave()
	for _, memory := range a.memory {
		memory.Release()
	}
}

// +kubebuilder:rbac:groups=tocsin.dev,resources=webhookintegrations,verbs=list;watch

const (
	maxTokens      = 8           // the maximum length of spec.tokens
	searchInterval = time.Second // the least between two searches, however many wrong tokens come
)

// tokenIndex finds the integration of a token. The tag in the token names the integration, so an integration gains nothing
// by listing the hash of another one's token. The informer of the WebhookIntegrations feeds the index: a token works and
// ceases to work as soon as the watch has brought the change.
type tokenIndex struct {
	mu       sync.RWMutex
	byTag    map[string]*v1alpha1.WebhookIntegration // never modified
	searched atomic.Int64                            // the time of the last search, in nanoseconds
}

func newTokenIndex() *tokenIndex {
	return &tokenIndex{byTag: map[string]*v1alpha1.WebhookIntegration{}}
}

// lookup returns the integration that token belongs to, the valid token there, and the problem if it is not valid; the
// integration of an expired token as well. It makes the same comparisons whether or not there is an integration with the tag, so
// how long it takes says nothing about integrations and tokens.
func (x *tokenIndex) lookup(token string, now time.Time) (owner *v1alpha1.WebhookIntegration, used *v1alpha1.Token, p *problem) {
	switch {
	case token == "":
		return nil, nil, &problemNoToken
	case len(token) > maxTokenLength:
		return nil, nil, &problemToken
	case tokens.TagOf(token) == "":
		return nil, nil, &problemUntagged
	}
	integration := x.tagged(token)
	var own []v1alpha1.Token
	if integration != nil {
		own = integration.Spec.Tokens
	}
	hash := []byte(tokens.Hash(token))
	for i := range max(len(own), maxTokens) {
		var listed [2 * sha256.Size]byte
		if i < len(own) {
			copy(listed[:], own[i].SHA256)
		}
		if subtle.ConstantTimeCompare(hash, listed[:]) == 1 { // of two entries with this hash, the valid one counts
			owner = integration
			if expires := own[i].ExpirationTime.OrZero(); expires.IsZero() || now.Before(expires) {
				used = &own[i]
			}
		}
	}
	if used == nil {
		p = &problemToken
	}
	return owner, used, p
}

// tagged returns the integration whose tag the token has, whether or not the token is valid; nil if there is none.
func (x *tokenIndex) tagged(token string) *v1alpha1.WebhookIntegration {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.byTag[tokens.TagOf(token)]
}

// search calls report for each integration that lists the token although its tag is another one's, with the name of the token
// there. It looks at every integration, so it searches at most once per searchInterval.
func (x *tokenIndex) search(token string, now time.Time, report func(lister *v1alpha1.WebhookIntegration, name string)) {
	last := x.searched.Load()
	if time.Duration(now.UnixNano()-last).Abs() < searchInterval || !x.searched.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	hash, own := tokens.Hash(token), tokens.TagOf(token)
	x.mu.RLock()
	defer x.mu.RUnlock()
	for tag, integration := range x.byTag {
		if tag == own {
			continue // the cache has shown it since lookup
		}
		for i := range integration.Spec.Tokens {
			if listed := &integration.Spec.Tokens[i]; listed.SHA256 == hash {
				report(integration, listed.Name)
				break
			}
		}
	}
}

func (x *tokenIndex) set(integration *v1alpha1.WebhookIntegration) {
	if !integration.DeletionTimestamp.IsZero() {
		x.remove(integration)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	tag := tokens.Tag(integration.Namespace, integration.Name)
	named.Add(client.ObjectKeyFromObject(integration))
	observeExpirations(x.byTag[tag], integration)
	x.byTag[tag] = integration
}

func (x *tokenIndex) remove(integration *v1alpha1.WebhookIntegration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byTag, tokens.Tag(integration.Namespace, integration.Name))
}
