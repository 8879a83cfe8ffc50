// Package webhookserver accepts alerts over HTTP and stores them as AlertEvents.
//
// A request goes through these phases (handler.serve in handler.go). Each has a function, which may end the request with a
// problem. Each but the last makes a value of its type, which embeds that of the phase before:
//
//  1. arrived: the operation of the path and the method (package protocol), and the token (authenticate.go).
//  2. authenticated: the integration that lists the hash of the token, from an index by the tag in the token, which the
//     informer of the WebhookIntegrations feeds (authenticate.go).
//  3. checked: the query and the headers are valid (read.go).
//  4. read: the body, within its limits (read.go). A request that cannot be stored soon is rejected before it costs memory.
//  5. decoded: the alerts, as the operation and its preset or the integration's mapping give them (decode.go, packages protocol,
//     mapping and payload).
//  6. stored: the AlertEvent, by package commit. Alerts that need a new Incident are rejected where the namespace may have none
//     (store.go). Only then the sender gets 202 (handler.answerAccepted).
//
// A query, and a request for an operation of a feature, are answered once they are checked (query.go, features.go). The metrics,
// the log, the span and the reports are made from what served says of the request.
//
// A problem of a request that bore a token of an integration is shown in that integration's status and in
// a Kubernetes Event (reports.go, statuswriter.go). The token itself is in no log, metric, status, Event or answer:
// everything is labelled by the route and by the integration's name.
package webhookserver

import (
	"context"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/httpserver"
	"github.com/tocsin-dev/tocsin/webhookserver/capture"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
	"github.com/tocsin-dev/tocsin/webhookserver/feature"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/protocol"
)

// handler answers the requests of senders.
type handler struct {
	options   Options
	ready     func() bool // all integrations and AlertEvents are known, and Incidents can be read
	tokens    *tokenIndex
	bodies    *fair.Space  // of bodies
	decoded   *fair.Space  // of their decoded form
	places    *fair.Places // to decode bodies and to encode large answers
	committer committer
	live      client.Reader // of the API server, not of a cache
	reports   reporter
	tracer    trace.Tracer // nil: no spans, at no cost
	captures  *capture.Recorder
	started   time.Time
	log       logr.Logger

	evaluation time.Duration // the most that the expressions of a mapping may take for one request
	stopping   atomic.Bool   // every answer is the last one of its connection

	unauthorized       atomic.Int64 // when a request with an invalid token was last logged, in nanoseconds
	unauthorizedHidden atomic.Int64 // such requests since then
}

// committer stores alerts, as commit.Committer does.
type committer interface {
	CheckSpace(integration types.NamespacedName) error
	Commit(ctx context.Context, submission commit.Submission) (commit.Receipt, error)
	Find(ctx context.Context, name types.NamespacedName) (commit.Receipt, error)
}

// reporter shows a rejection on the integration whose token the request bore. Only writeReport waits, until the status has the
// report of a feature: after an error it may have it later.
type reporter interface {
	reportRejection(integration *v1alpha1.WebhookIntegration, reason, message string)
	reportFailures(integration *v1alpha1.WebhookIntegration, failures []mapping.Failure)
	reportHandshake(integration *v1alpha1.WebhookIntegration, message string)
	reportUnavailable(integration types.NamespacedName)
	reportUse(integration *v1alpha1.WebhookIntegration, token *v1alpha1.Token)
	addReport(report feature.Report)
	writeReport(ctx context.Context, report feature.Report) error
}

func newHandler(
	options Options, ready func() bool, tokens *tokenIndex, committer committer, live client.Reader,
	reports reporter, log logr.Logger,
) *handler {
	h := &handler{
		options: options, ready: ready, tokens: tokens,
		bodies: fair.NewSpace(maxBodyMemory), decoded: fair.NewSpace(maxDecodedMemory),
		places:    fair.NewPlaces(max(1, runtime.GOMAXPROCS(0)-1)),
		committer: committer, live: live, reports: reports, log: log,
		started: options.Clock.Now(), evaluation: maxEvaluation,
	}
	if options.TracerProvider != nil {
		h.tracer = options.TracerProvider.Tracer("github.com/tocsin-dev/tocsin/webhookserver")
	}
	return h
}

// served is a request with its answer: logs, metrics and rejections are made of it. It does not keep the body, nor the alerts,
// except what an acceptance keeps. Otherwise a client that takes its time to read the answer would keep all that its body has
// decoded to, and nothing counts that any more.
type served struct {
	*arrived
	authenticated *authenticated // nil without a valid token
	dryRun        bool
	bodyRead      bool // to its end, or there is none
	reply         protocol.Reply
	accepted      *acceptance // the answer to a request whose alerts are stored, or would be; nil for any other
	problem       *problem    // that the reply describes; nil: the request is accepted
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == openAPIPath {
		httpserver.NotBusy(r)
		serveOpenAPI(w, r)
		return
	}
	s := h.respond(h.arrive(r))
	if s.authenticated != nil {
		defer s.authenticated.release() // a client may take its time to read the answer
		s.authenticated.captured.Answered(s.reply.Status)
	}
	encoded := h.encode(&s)
	if !s.bodyRead || h.stopping.Load() {
		// Or net/http would read the rest of an unwanted body, to keep the connection. While the
		// server stops, a sender that keeps its connection would send its next request into the end of it.
		w.Header().Set("Connection", "close")
	}
	if !s.bodyRead || s.authenticated == nil {
		httpserver.NotBusy(r)
	}
	encoded.write(w, s.reply)
	took := h.options.Clock.Now().Sub(s.start)
	s.observe(took)
	s.endSpan(took)
	h.logServed(&s, took)
	h.report(&s)
}

// respond answers a request. A panic becomes a problem.
func (h *handler) respond(a *arrived) (s served) {
	s.arrived, s.bodyRead = a, a.Body == nil || a.Body == http.NoBody
	defer func() {
		if v := recover(); v != nil {
			// Only errors of the runtime are logged: another value could quote the request. The stack has no strings in it.
			cause, _ := v.(runtime.Error)
			h.log.Error(cause, "Recovered from a panic", "route", a.route(), "stack", string(debug.Stack()))
			s.problem = &problemInternal
		}
		if s.authenticated != nil {
			s.authenticated.leave()
		}
		if s.problem != nil {
			s.reply = s.problem.Reply(a.operation)
		}
	}()
	if s.authenticated, s.problem = h.authenticate(a); s.problem == nil {
		s.reply, s.problem = h.serve(&s)
	}
	return s
}

// serve takes a request of an integration through its phases to its answer.
func (h *handler) serve(s *served) (reply protocol.Reply, p *problem) {
	checked, p := h.check(s.authenticated)
	if p != nil {
		return reply, p
	}
	s.dryRun = checked.dryRun
	switch {
	case checked.feature != nil:
		return h.answerByFeature(checked)
	case checked.operation.IsQuery():
		return h.query(checked)
	}
	read, p := h.read(checked)
	if p != nil {
		return reply, p
	}
	s.bodyRead = true
	decoded, p := h.decode(read)
	if p != nil {
		return reply, p
	}
	if decoded.answer != nil {
		return *decoded.answer, nil
	}
	accepted, p := h.store(decoded)
	if p != nil {
		return reply, p
	}
	s.accepted = accepted
	return h.answerAccepted(decoded, accepted), nil
}

// report shows a problem on the integration, and tells of alerts that could not be stored.
func (h *handler) report(s *served) {
	owner, p := s.authenticated, s.problem
	if owner == nil || p == nil {
		return
	}
	if p.Reason != "" {
		h.reports.reportRejection(owner.integration, p.Reason, p.OwnerMessage())
	}
	if s.reply.Status >= http.StatusInternalServerError && !s.dryRun && !blocksOnlyNew(p) {
		h.reports.reportUnavailable(owner.integrationName())
		h.options.Health.Missed(owner.integrationName())
	}
}
