package webhookserver

import (
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// handler answers the requests of senders.
type handler struct {
	ready   func() bool // all integrations and AlertEvents are known, Incidents can be read, and alerts can be stored
	tokens  *tokenIndex
	bodies  *bodyReader
	decoder *decoder
	store   *alertStore
	reports reporter
	options Options
	tracer  trace.Tracer // nil: no spans, at no cost
	started time.Time
	log     logr.Logger

	stopping atomic.Bool // every answer is the last one of its connection
}

// reporter shows a refusal on the integration whose token the request bore. It never blocks.
type reporter interface {
	reportRejection(integration *v1alpha1.WebhookIntegration, reason, message string)
	reportFailures(integration *v1alpha1.WebhookIntegration, failures []mapping.Failure)
	reportUnavailable(integration types.NamespacedName)
}

func newHandler(
	options Options, ready func() bool, tokens *tokenIndex, capacity *commit.Capacity, committer committer, live client.Reader,
	reports reporter, log logr.Logger,
) *handler {
	h := &handler{
		ready:  ready,
		tokens: tokens,
		bodies: &bodyReader{maxBytes: options.MaxBodyBytes, memory: newMemoryBudget(maxBodyMemory)},
		decoder: &decoder{
			memory: newMemoryBudget(maxDecodedMemory), maxBytes: options.MaxBodyBytes,
			mappings: options.Mappings, timeout: maxEvaluation, reports: reports,
		},
		store:   &alertStore{capacity: capacity, committer: committer, live: live, now: options.Now},
		reports: reports,
		options: options,
		started: options.Now(),
		log:     log,
	}
	if options.TracerProvider != nil {
		h.tracer = options.TracerProvider.Tracer("github.com/tocsin-dev/tocsin/webhookserver")
	}
	return h
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == openAPIPath {
		serveOpenAPI(w, r)
		return
	}
	x := &exchange{Request: r, writer: w, start: h.options.Now(), lead: h.options.ClockLead()}
	x.read = r.Body == nil || r.Body == http.NoBody
	accepted, p := h.recoverPanic(x)
	if !x.read || h.stopping.Load() {
		// Or net/http would read the rest of an unwanted body, to keep the connection. While the
		// server stops, a sender that keeps its connection would send its next request into the end of it.
		w.Header().Set("Connection", "close")
	}
	status := http.StatusAccepted
	switch {
	case p != nil:
		status = p.status
		p.writeTo(w, x.operation)
	case x.reply != nil:
		status = x.reply.Status
		writeReply(w, x.reply)
	case x.dryRun:
		status = http.StatusOK
		fallthrough
	default:
		writeJSON(w, status, jsonType, accepted)
	}
	took := h.options.Now().Sub(x.start)
	observeRequest(status, x, took)
	x.endSpan(accepted, p, status, took)
	h.logAnswer(x, accepted, p, status, took)
	if x.integration == nil || p == nil {
		return
	}
	if p.reason != "" {
		h.reports.reportRejection(x.integration, p.reason, p.ownerMessage())
	}
	if status >= http.StatusInternalServerError && !x.dryRun {
		h.reports.reportUnavailable(x.sender())
		if h.options.Refused != nil {
			h.options.Refused(x.sender())
		}
	}
}

// recoverPanic serves the request and turns a panic into a problem.
func (h *handler) recoverPanic(x *exchange) (accepted *acceptance, p *problem) {
	defer func() {
		if v := recover(); v != nil {
			// Only errors of the runtime are logged: another value could quote the request. The stack has no strings in it.
			cause, _ := v.(runtime.Error)
			h.log.Error(cause, "Recovered from a panic", "route", x.route(), "stack", string(debug.Stack()))
			accepted, p = nil, &problemInternal
		}
	}()
	return h.serve(x)
}

// serve takes a request from its first line to its answer.
func (h *handler) serve(x *exchange) (*acceptance, *problem) {
	p := h.authenticate(x)
	h.beginSpan(x)
	if p != nil {
		return nil, p
	}
	request := h.requestOf(x)
	if x.operation.Query != nil {
		reply := x.operation.Query(request)
		x.reply = &reply
		return nil, nil
	}
	signature, p := h.checkRequest(x)
	if p != nil {
		return nil, p
	}
	memory := h.bodies.reserve(x)
	if memory == nil {
		return nil, &problemOverload
	}
	defer memory.release()
	body, p := h.bodies.read(x)
	if p == nil {
		memory.shrink(int64(len(body)))
		p = signature.verify(x.integration.Spec.Verify, body)
	}
	if p != nil {
		return nil, p
	}
	request.Body = body
	decoded, p := h.decoder.decode(x, request)
	if p != nil {
		return nil, p
	}
	request.Body = nil // it may be collected while the alerts wait
	memory.release()   // from here on the alerts count as waiting submissions
	var receipt commit.Receipt
	if alerts := decoded.kept(); !x.dryRun && len(alerts) > 0 {
		if receipt, p = h.store.commit(x, alerts); p != nil {
			return nil, p
		}
	}
	if len(decoded.invalid) > 0 {
		return nil, decoded.invalidProblem()
	}
	accepted := newAcceptance(x, decoded, receipt)
	if x.operation.Accepted != nil && !x.dryRun {
		reply := x.operation.Accepted(request, accepted.storedBy(h.options.Now().Sub(x.start)))
		x.reply = &reply
	}
	return accepted, nil
}

// requestOf returns the request for its operation, without the body.
func (h *handler) requestOf(x *exchange) *protocol.Request {
	return &protocol.Request{
		Header: x.contentHeader(), Parameters: x.URL.Query(), Identifier: x.identifier,
		Integration: x.integration.Name, Started: h.started,
		Exists: func(incident string) bool {
			return h.store.exists(x.Context(), types.NamespacedName{Namespace: x.integration.Namespace, Name: incident})
		},
	}
}

// checkRequest checks, before the body is read, the headers, the query and whether alerts can be stored. It returns the headers
// of the signature.
func (h *handler) checkRequest(x *exchange) (*signature, *problem) {
	if p := h.bodies.checkHeaders(x); p != nil {
		return nil, p
	}
	if p := x.parseParameters(); p != nil {
		return nil, p
	}
	s, p := x.parseSignature()
	if p == nil {
		p = h.store.checkCapacity(x.sender())
	}
	return s, p
}

// authenticate finds the integration of the request. A request for an unknown path, or with a method that the path does not
// have, is answered whether or not its token is valid; if it is, its integration shows the refusal.
func (h *handler) authenticate(x *exchange) *problem {
	x.parsePath()
	if x.operation == nil {
		return &problemNotFound
	}
	if !h.ready() {
		if x.allowed != nil {
			return allowing(x.allowed)
		}
		return &problemUnsynced
	}
	integration, verdict := h.tokens.lookup(x.token, x.start)
	if verdict == tokenValid {
		x.integration = integration
	}
	switch {
	case x.allowed != nil:
		return allowing(x.allowed)
	case verdict == tokenExpired:
		h.reports.reportRejection(integration, "TokenExpired", "An expired token was used.")
		return &problemToken
	case verdict != tokenValid:
		h.tokens.search(x.token, x.start, func(lister *v1alpha1.WebhookIntegration, name string) {
			h.reports.reportRejection(lister, "InvalidTokenTag",
				fmt.Sprintf("The token %q does not have the tag of this integration and cannot be used. Create a new one.", name))
		})
		if verdict == tokenUntagged && x.token != "" {
			return problemUntagged
		}
		return &problemToken
	case integration.Spec.Suspend:
		return &problemSuspended
	case integration.Spec.Verify != nil && x.operation.Path != "":
		return &problemUnsignedPath
	}
	return nil
}

// logAnswer writes one line about the request. The route stands for the path, which has the token in it.
func (h *handler) logAnswer(x *exchange, accepted *acceptance, p *problem, status int, took time.Duration) {
	if (p == nil || x.integration == nil) && !h.log.V(1).Enabled() && x.cause == nil {
		return // gathering the values costs as much as reading a small payload
	}
	log := h.log.WithValues("route", x.route(), "status", status, "duration", took.Seconds())
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

// beginSpan begins the span of a request with a valid token, in the trace of the sender if it sent one. Others have none:
// strangers could fill the store of traces with them. The span has neither the path nor the headers, where the token is.
func (h *handler) beginSpan(x *exchange) {
	if h.tracer == nil || x.integration == nil {
		return
	}
	ctx := propagation.TraceContext{}.Extract(x.Context(), propagation.HeaderCarrier(x.Header))
	ctx, x.span = h.tracer.Start(ctx, x.Method+" "+x.route(),
		trace.WithTimestamp(x.start),
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("http.request.method", x.Method),
			attribute.String("http.route", x.route()),
			attribute.String("k8s.namespace.name", x.integration.Namespace),
			attribute.String("tocsin.integration.name", x.integration.Name),
		))
	x.Request = x.WithContext(ctx)
}

// endSpan ends the span of a request, if it has one. Of a failure it records only the problem's type: details may
// quote the alert.
func (x *exchange) endSpan(accepted *acceptance, p *problem, status int, took time.Duration) {
	if x.span == nil {
		return
	}
	x.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if p != nil {
		x.span.SetAttributes(attribute.String("error.type", p.kind))
	}
	if status >= http.StatusInternalServerError {
		x.span.SetStatus(codes.Error, "")
	}
	if accepted != nil {
		x.span.SetAttributes(attribute.Int("tocsin.alert.count", len(accepted.Alerts)), attribute.Bool("tocsin.dry_run", x.dryRun))
	}
	x.span.End(trace.WithTimestamp(x.start.Add(took)))
}
