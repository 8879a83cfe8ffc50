package webhookserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
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
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/httpserver"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/internal/tokens"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// handler answers the requests of senders.
type handler struct {
	options   Options
	ready     func() bool // all integrations and AlertEvents are known, and Incidents can be read
	tokens    *tokenIndex
	bodies    *fair.Memory // of bodies
	decoded   *fair.Memory // of their decoded form
	places    *fair.Places // to decode bodies and to encode large answers
	committer committer
	live      client.Reader // of the API server, not of a cache
	reports   reporter
	tracer    trace.Tracer // nil: no spans, at no cost
	started   time.Time
	log       logr.Logger

	evaluation time.Duration // the most that the expressions of a mapping may take for one request
	stopping   atomic.Bool   // every answer is the last one of its connection

	unauthorized       atomic.Int64 // when a request with an invalid token was last logged, in nanoseconds
	unauthorizedHidden atomic.Int64 // such requests since then
}

// committer stores alerts, as commit.Committer does.
type committer interface {
	CheckCapacity(integration types.NamespacedName) error
	Commit(ctx context.Context, submission commit.Submission) (commit.Receipt, error)
	Find(ctx context.Context, name types.NamespacedName) (commit.Receipt, error)
}

// reporter shows a refusal on the integration whose token the request bore. Only writeFailure waits, until the status says that a
// heartbeat has failed: after an error it may say so later.
type reporter interface {
	reportRejection(integration *v1alpha1.WebhookIntegration, reason, message string)
	reportFailures(integration *v1alpha1.WebhookIntegration, failures []mapping.Failure)
	reportHandshake(integration *v1alpha1.WebhookIntegration, message string)
	reportUnavailable(integration types.NamespacedName)
	reportUse(integration *v1alpha1.WebhookIntegration, token *v1alpha1.Token)
	reportSignal(heard signal)
	writeFailure(ctx context.Context, failed signal) error
}

func newHandler(
	options Options, ready func() bool, tokens *tokenIndex, committer committer, live client.Reader,
	reports reporter, log logr.Logger,
) *handler {
	h := &handler{
		options: options, ready: ready, tokens: tokens,
		bodies: fair.NewMemory(maxBodyMemory), decoded: fair.NewMemory(maxDecodedMemory),
		places:    fair.NewPlaces(max(1, runtime.GOMAXPROCS(0)-1)),
		committer: committer, live: live, reports: reports, log: log,
		started: options.Now(), evaluation: maxEvaluation,
	}
	if options.TracerProvider != nil {
		h.tracer = options.TracerProvider.Tracer("github.com/tocsin-dev/tocsin/webhookserver")
	}
	return h
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == openAPIPath {
		httpserver.NotBusy(r)
		serveOpenAPI(w, r)
		return
	}
	x := &exchange{Request: r, start: h.options.Now(), received: h.options.APITime()}
	x.read = r.Body == nil || r.Body == http.NoBody
	defer func() { // a client may take its time to read the answer
		x.leave()
		for _, memory := range x.memory {
			memory.Release()
		}
	}()
	reply, p := h.respond(x)
	a := h.encode(x, &reply, &p)
	if !x.read || h.stopping.Load() {
		// Or net/http would read the rest of an unwanted body, to keep the connection. While the
		// server stops, a sender that keeps its connection would send its next request into the end of it.
		w.Header().Set("Connection", "close")
	}
	if !x.read || x.integration == nil {
		httpserver.NotBusy(r)
	}
	a.write(w, reply)
	took := h.options.Now().Sub(x.start)
	observeRequest(reply.Status, x, took)
	x.endSpan(p, reply.Status, took)
	h.logAnswer(x, p, reply.Status, took)
	if x.integration == nil || p == nil {
		return
	}
	if p.reason != "" {
		h.reports.reportRejection(x.integration, p.reason, p.ownerMessage())
	}
	if reply.Status >= http.StatusInternalServerError && !x.dryRun && !p.meetsNewOnly() {
		h.reports.reportUnavailable(x.sender())
		if h.options.Refused != nil {
			h.options.Refused(x.sender())
		}
	}
}

// respond authenticates and serves a request. It returns the answer, and the problem if the answer is one. A panic becomes a
// problem.
func (h *handler) respond(x *exchange) (reply protocol.Reply, p *problem) {
	defer func() {
		if v := recover(); v != nil {
			// Only errors of the runtime are logged: another value could quote the request. The stack has no strings in it.
			cause, _ := v.(runtime.Error)
			h.log.Error(cause, "Recovered from a panic", "route", x.route(), "stack", string(debug.Stack()))
			p = &problemInternal
		}
		x.leave()
		if p != nil {
			x.accepted, reply = nil, p.reply(x.operation)
		}
	}()
	p = h.authenticate(x)
	h.beginSpan(x)
	if p == nil {
		reply, p = h.serve(x)
	}
	return reply, p
}

// checkIntegration returns why the integration accepts no request of this kind; nil if it does.
func (x *exchange) checkIntegration() *problem {
	switch {
	case x.integration.Spec.Suspend:
		return &problemSuspended
	case !integrations.IsWhole(x.integration):
		return &problemIntegrationsTooLarge
	case x.integration.Spec.Verify != nil && x.operation.Path != "":
		return &problemUnsignedPath
	}
	return nil
}

// serve takes a request of an integration to its answer.
func (h *handler) serve(x *exchange) (reply protocol.Reply, p *problem) {
	if p = x.checkIntegration(); p != nil {
		return reply, p
	}
	switch {
	case x.operation.Heartbeat:
		return h.ping(x)
	case x.operation.Query != nil:
		return h.query(x)
	}
	request := h.requestOf(x)
	decoded, p := h.read(x, request)
	switch {
	case p != nil:
		return reply, p
	case decoded.answer != nil:
		return *decoded.answer, nil
	}
	var receipt commit.Receipt
	alerts := decoded.kept()
	if !commit.Fits(alerts) { // the last bound, after all that anything adds
		return reply, &problemBatchTooLarge
	}
	if !x.dryRun && len(alerts) > 0 {
		if receipt, p = h.store(x, alerts); p != nil && !p.meetsNewOnly() {
			return reply, p
		}
	}
	h.noteSignals(x, decoded) // also those of alerts that need a new Incident: their sender is alive
	switch {
	case p != nil:
		return reply, p
	case len(decoded.invalid) > 0:
		return reply, decoded.invalidProblem()
	}
	x.accepted = newAcceptance(x, decoded, receipt)
	return h.accept(x, request), nil
}

// read reads, verifies and decodes the body of a request.
func (h *handler) read(x *exchange, request *protocol.Request) (decoded *decodedAlerts, p *problem) {
	signature, p := h.checkRequest(x)
	if p != nil {
		return nil, p
	}
	memory, p := h.reserve(x, h.bodyMemory(x))
	if p != nil {
		return nil, p
	}
	if request.Body, p = h.readBody(x); p != nil {
		return nil, p
	}
	memory.Shrink(max(int64(cap(request.Body)), minBodyMemory))
	if p = signature.verify(x.integration.Spec.Verify, request.Body); p != nil {
		return nil, p
	}
	if p = h.enter(x); p != nil {
		return nil, p
	}
	decoded, p = h.decode(x, request)
	x.leave()
	if large := h.checkSize(x, len(request.Body), decoded); large != nil {
		decoded, p = nil, large // whatever else is wrong with it
	}
	request.Body = nil           // it may be collected while the alerts wait
	memory.Shrink(minBodyMemory) // the queue now accounts for the alerts; this minimum keeps counting the open connection
	return decoded, p
}

// query answers a request that stores nothing. It may read an Incident from the API server.
func (h *handler) query(x *exchange) (reply protocol.Reply, p *problem) {
	if _, p = h.reserve(x, queryMemory); p != nil {
		return reply, p
	}
	return x.operation.Query(h.requestOf(x)), nil
}

// accept returns the answer to a request whose alerts are stored, or would be.
func (h *handler) accept(x *exchange, request *protocol.Request) protocol.Reply {
	switch {
	case x.dryRun:
		return protocol.Reply{Status: http.StatusOK, Body: x.accepted}
	case x.operation.Accepted != nil:
		return x.operation.Accepted(request, x.accepted.storedBy(h.options.Now().Sub(x.start)))
	}
	return protocol.Reply{Status: http.StatusAccepted, Body: x.accepted}
}

// requestOf returns the request for its operation, without the body.
func (h *handler) requestOf(x *exchange) *protocol.Request {
	return &protocol.Request{
		Header: x.contentHeader(), Parameters: x.URL.Query(), Identifier: x.identifier,
		Integration: x.integration.Name, Started: h.started,
		Exists: func(incident string) bool { return h.exists(x, incident) },
	}
}

// checkRequest checks, before the body is read, the headers, the query and whether alerts can be stored. It returns the headers
// of the signature.
func (h *handler) checkRequest(x *exchange) (s *signature, p *problem) {
	if p = h.checkBody(x); p != nil {
		return nil, p
	}
	if p = x.parseParameters(); p != nil {
		return nil, p
	}
	if x.integration.Spec.Verify != nil {
		if s, p = x.readSignature(); p != nil {
			return nil, p
		}
	}
	switch {
	case h.options.Capacity.Full(x.integration.Namespace) == v1alpha1.ReasonQueueFull:
		return nil, &problemNamespaceFull
	case h.committer.CheckCapacity(x.sender()) != nil:
		return nil, &problemOverload
	}
	return s, nil
}

// authenticate finds the integration of the request. An unknown path is not found, whatever the token. A method that the path
// does not have is answered whether or not the token is valid; if it is, its integration shows the refusal.
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
	integration, used, p := h.tokens.lookup(x.token, x.received)
	if p == nil {
		x.integration = integration
		h.reports.reportUse(integration, used)
	}
	switch {
	case x.allowed != nil:
		return allowing(x.allowed)
	case h.options.Check() != nil: // another replica may lead, and must learn of the alert that is not stored
		return &problemUnsynced
	case p != nil && integration != nil:
		h.reports.reportRejection(integration, "TokenExpired", "An expired token was used.")
	case p != nil:
		h.tokens.search(x.token, x.start, func(lister *v1alpha1.WebhookIntegration, name string) {
			h.reports.reportRejection(lister, "InvalidTokenTag",
				fmt.Sprintf("The token %q does not have the tag of this integration and cannot be used. Create a new one.", name))
		})
	}
	return p
}

// logAnswer writes one line about the request. The route stands for the path, which has the token in it.
func (h *handler) logAnswer(x *exchange, p *problem, status int, took time.Duration) {
	if status == http.StatusUnauthorized && x.integration == nil {
		h.logUnauthorized(x)
	}
	if (p == nil || x.integration == nil) && !h.log.V(1).Enabled() && x.cause == nil {
		return // gathering the values costs as much as reading a small payload
	}
	log := h.log.WithValues("route", x.route(), "status", status, "duration", took.Seconds())
	if x.integration != nil {
		log = log.WithValues("namespace", x.integration.Namespace, "integration", x.integration.Name)
	}
	switch {
	case x.accepted != nil && len(x.accepted.Alerts) > 0:
		accepted := x.accepted
		log.V(1).Info("Accepted a request", "event", accepted.Event, "alerts", len(accepted.Alerts),
			"incident", accepted.Alerts[0].Incident, "warnings", len(accepted.Warnings))
	case p == nil:
	case status >= http.StatusInternalServerError && x.cause != nil:
		log.Error(x.cause, "Could not store an alert", "problem", string(p.Type))
	case x.integration != nil:
		log.Info("Refused a request", append(whereabouts(x, p), "problem", string(p.Type))...)
	default: // anybody can cause these
		log.V(1).Info("Refused a request", "problem", string(p.Type))
	}
}

// whereabouts are the values for the log that tell where a refused request came from, and where its body is wrong.
func whereabouts(x *exchange, p *problem) []any {
	host, _, _ := net.SplitHostPort(x.RemoteAddr)
	values := []any{"address", host}
	if p.Offset != nil {
		values = append(values, "offset", *p.Offset)
	}
	return values
}

// logUnauthorized tells, at most once per unauthorizedInterval, where a request with an invalid token came from, and whose tag
// the token has. The user agent is any text, and may quote the token.
func (h *handler) logUnauthorized(x *exchange) {
	now, last := x.start.UnixNano(), h.unauthorized.Load()
	if time.Duration(now-last).Abs() < unauthorizedInterval || !h.unauthorized.CompareAndSwap(last, now) {
		h.unauthorizedHidden.Add(1)
		return
	}
	host, _, _ := net.SplitHostPort(x.RemoteAddr)
	agent := plaintext.OneLine(x.UserAgent(), maxLoggedAgent, maxLoggedAgent)
	if strings.Contains(agent, tokens.Prefix) ||
		len(x.token) >= quotedTokenPrefix && strings.Contains(agent, x.token[:quotedTokenPrefix]) {
		agent = "(quotes the token)"
	}
	log := h.log.WithValues("address", host, "userAgent", agent, "othersSinceLastLine", h.unauthorizedHidden.Swap(0))
	if owner := h.tokens.tagged(x.token); owner != nil {
		log = log.WithValues("namespace", owner.Namespace, "tagOfIntegration", owner.Name)
	}
	log.Info("Refused a request without a valid token")
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
func (x *exchange) endSpan(p *problem, status int, took time.Duration) {
	if x.span == nil {
		return
	}
	x.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if p != nil {
		x.span.SetAttributes(attribute.String("error.type", string(p.Type)))
	}
	if status >= http.StatusInternalServerError {
		x.span.SetStatus(codes.Error, "")
	}
	if x.accepted != nil {
		x.span.SetAttributes(
			attribute.Int("tocsin.alert.count", len(x.accepted.Alerts)), attribute.Bool("tocsin.dry_run", x.dryRun))
	}
	x.span.End(trace.WithTimestamp(x.start.Add(took)))
}
