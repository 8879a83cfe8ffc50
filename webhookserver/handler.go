package webhookserver

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// eventsPath is where alerts are posted, followed by a slash and the token, or by nothing when the token is
// in the Authorization header.
const eventsPath = "/api/v1/events/webhook"

// notifierPath is what Prometheus, vmalert and others that take the endpoint for an Alertmanager put behind the
// address that they are given.
const notifierPath = "/api/v2/alerts"

// handler answers the requests of senders.
type handler struct {
	maxBodyBytes int64

	synced     func() bool // whether tokens and pending know all there is, and alerts may be stored
	tokens     *tokenIndex
	mappings   *mapping.Cache
	pending    *commit.PendingEvents
	incidents  *commit.Incidents
	bodies     *memoryBudget
	decoded    *memoryBudget
	committer  committer
	rejections reporter
	refused    func(integration types.NamespacedName) // Options.Refused; may be nil
	tracing    *tracing
	now        func() time.Time
	log        logr.Logger

	evaluation time.Duration // how long a mapping may take for a request

	stopping atomic.Bool // every answer is the last one of its connection
}

// reporter shows a refusal on the integration whose token the request bore. It never blocks.
type reporter interface {
	report(integration *v1alpha1.WebhookIntegration, reason, message string)
	// reportFailures shows expressions of the mapping that failed.
	reportFailures(integration *v1alpha1.WebhookIntegration, failures []mapping.Failure)
}

// committer is a *commit.Committer.
type committer interface {
	CheckCapacity(integration types.NamespacedName) error
	Commit(ctx context.Context, submission commit.Submission) (commit.Receipt, error)
}

// exchange is one request and what is known of it.
type exchange struct {
	*http.Request
	writer http.ResponseWriter // for the limit of the body only; the answer is a return value
	start  time.Time

	token       string
	integration *v1alpha1.WebhookIntegration // of a valid token
	dryRun      bool
	key         string     // idempotency key
	read        bool       // the body has been read to its end
	cause       error      // what is behind a problem, for the log
	span        trace.Span // nil without tracing
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == openAPIPath {
		serveOpenAPI(w, r)
		return
	}
	x := &exchange{Request: r, writer: w, start: h.now(), read: r.Body == nil || r.Body == http.NoBody}
	accepted, p := h.guard(x)
	if !x.read || h.stopping.Load() {
		// Or net/http would read the rest of a body that nobody wants, to keep the connection. While the
		// server stops, a sender that keeps its connection would send its next request into the end of it.
		w.Header().Set("Connection", "close")
	}
	status := http.StatusAccepted
	switch {
	case p != nil:
		status = p.status
		p.write(w)
	case x.dryRun:
		status = http.StatusOK
		writeJSON(w, status, "application/json", accepted)
	default:
		writeJSON(w, status, "application/json", accepted)
	}
	took := h.now().Sub(x.start)
	observeRequest(status, x.integration, took)
	x.end(accepted, p, status, took)
	h.logAnswer(x, accepted, p, status, took)
	if p != nil && p.reason != "" && x.integration != nil {
		h.rejections.report(x.integration, p.reason, rejectionMessage(p))
	}
	if status >= http.StatusInternalServerError && x.integration != nil && !x.dryRun && h.refused != nil {
		h.refused(types.NamespacedName{Namespace: x.integration.Namespace, Name: x.integration.Name})
	}
}

// guard makes a problem of a panic.
func (h *handler) guard(x *exchange) (accepted *acceptance, p *problem) {
	defer func() {
		if v := recover(); v != nil {
			// Only the runtime's own words: another value could quote the request. The stack has no strings in it.
			cause, _ := v.(runtime.Error)
			h.log.Error(cause, "A request made the server panic", "route", eventsPath, "stack", string(debug.Stack()))
			accepted, p = nil, &problemInternal
		}
	}()
	return h.serve(x)
}

// serve takes a request from its first line to its answer.
func (h *handler) serve(x *exchange) (*acceptance, *problem) {
	p := h.authenticate(x)
	h.tracing.begin(x)
	if p != nil {
		return nil, p
	}
	if p := h.check(x); p != nil {
		return nil, p
	}
	sender := x.sender()
	if h.pending.IsFull(sender.Namespace) {
		return nil, &problemNamespaceFull
	}
	if h.committer.CheckCapacity(sender) != nil {
		return nil, &problemOverload
	}
	reserved := h.bodyReservation(x.Request)
	if !h.bodies.reserve(sender, reserved, 0) {
		return nil, &problemOverload
	}
	defer func() { h.bodies.release(sender, reserved) }()
	body, p := h.readBody(x.writer, x.Request)
	if p != nil {
		return nil, p
	}
	x.read = true
	if spare := reserved - int64(len(body)); spare > 0 {
		h.bodies.release(sender, spare)
		reserved -= spare
	}
	read, p := h.read(x, body)
	if p != nil {
		return nil, p
	}
	h.bodies.release(sender, reserved) // what waits for the store is counted there
	reserved = 0
	return h.accept(x, read)
}

// sender is the name of the request's integration.
func (x *exchange) sender() types.NamespacedName {
	return types.NamespacedName{Namespace: x.integration.Namespace, Name: x.integration.Name}
}

// authenticate finds the integration of the request. A request for anything but the endpoint, or with
// another method than POST, is answered whether or not its token is valid; that a valid token came that way
// is shown on its integration.
func (h *handler) authenticate(x *exchange) *problem {
	pathToken, found := strings.CutPrefix(strings.TrimSuffix(x.URL.Path, notifierPath), eventsPath)
	x.token = strings.Trim(pathToken, "/")
	if !found || strings.Contains(x.token, "/") || pathToken != "" && pathToken[0] != '/' {
		return &problemNotFound
	}
	if x.token == "" {
		x.token = bearerToken(x.Header)
	}
	if !h.synced() {
		if x.Method != http.MethodPost {
			return &problemMethod
		}
		return &problemUnsynced
	}
	integration, verdict := h.tokens.lookup(x.token, x.start)
	if verdict == tokenValid {
		x.integration = integration
	}
	switch {
	case x.Method != http.MethodPost:
		return &problemMethod
	case verdict == tokenUndecided:
		return problemUndecided
	case verdict == tokenExpired:
		h.rejections.report(integration, "TokenExpired", "A token was used that has expired.")
		return &problemToken
	case verdict != tokenValid:
		return &problemToken
	case integration.Spec.Suspend:
		return &problemSuspended
	}
	return nil
}

// bearerToken is the token of the Authorization header (RFC 6750, section 2.1), empty when there is none.
func bearerToken(header http.Header) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// check refuses what the headers and the query suffice to refuse.
func (h *handler) check(x *exchange) *problem {
	if p := h.checkHeaders(x.Request); p != nil {
		return p
	}
	if values, given := x.URL.Query()["dryRun"]; given {
		dryRun, err := strconv.ParseBool(values[len(values)-1])
		if err != nil {
			return &problemDryRun
		}
		x.dryRun = dryRun
	}
	key, p := idempotencyKey(x.Header)
	x.key = key
	return p
}

// storeContext bounds the wait for the store. It does not end when the client hangs up: what has come in
// whole is better stored, and many senders do not wait for the answer.
func (h *handler) storeContext(x *exchange) (context.Context, context.CancelFunc) {
	left := min(commit.Timeout, requestTimeout-h.now().Sub(x.start))
	return context.WithTimeout(context.WithoutCancel(x.Context()), left)
}

// storeProblem tells the sender what an error of the committer means for the alert.
func storeProblem(err error) *problem {
	var rejected *commit.RejectedError
	var refused *commit.RefusedError
	switch {
	case errors.As(err, &refused):
		p := problemRefused
		p.reason, p.owner = refused.Reason, refused.Message
		return &p
	case errors.As(err, &rejected):
		return problemRejected.saying("The alert is " + rejected.Message + ".")
	case errors.Is(err, commit.ErrConflict):
		return &problemConflict
	case errors.Is(err, commit.ErrOverloaded):
		return &problemOverload
	case errors.Is(err, commit.ErrUnavailable):
		return &problemUnavailable
	default:
		return &problemUnknown // the one that promises least
	}
}

// logAnswer writes one line about the request. The route stands for the path, which has the token in it.
func (h *handler) logAnswer(x *exchange, accepted *acceptance, p *problem, status int, took time.Duration) {
	verbose := h.log.V(1)
	if (p == nil || x.integration == nil) && !verbose.Enabled() && x.cause == nil {
		return // nothing to say, and gathering it costs as much as reading a small payload
	}
	log := h.log.WithValues("route", eventsPath, "status", status, "duration", took.Seconds())
	if x.integration != nil {
		log = log.WithValues("namespace", x.integration.Namespace, "integration", x.integration.Name)
	}
	switch {
	case accepted != nil && len(accepted.Alerts) > 0:
		log.V(1).Info("Accepted a request", "event", accepted.Event, "alerts", len(accepted.Alerts),
			"incident", accepted.Alerts[0].Incident, "warnings", len(accepted.Warnings))
	case p == nil:
	case status >= http.StatusInternalServerError && x.cause != nil:
		log.Error(x.cause, "Could not store an alert", "problem", p.kind)
	case x.integration != nil:
		log.Info("Refused a request", "problem", p.kind)
	default: // anybody can cause these
		log.V(1).Info("Refused a request", "problem", p.kind)
	}
}
