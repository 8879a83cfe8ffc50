package webhookserver

import (
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// beginSpan begins the span of a request with a valid token, in the trace of the sender if it sent one. Others have none:
// strangers could fill the store of traces with them. The span has neither the path nor the headers, where the token is.
func (h *handler) beginSpan(a *authenticated) *authenticated {
	if h.tracer == nil {
		return a
	}
	ctx := propagation.TraceContext{}.Extract(a.Context(), propagation.HeaderCarrier(a.Header))
	ctx, a.span = h.tracer.Start(ctx, a.Method+" "+a.route(),
		trace.WithTimestamp(a.start),
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("http.request.method", a.Method),
			attribute.String("http.route", a.route()),
			attribute.String("k8s.namespace.name", a.integration.Namespace),
			attribute.String("tocsin.integration.name", a.integration.Name),
		))
	traced := *a.arrived
	traced.Request = a.WithContext(ctx)
	a.arrived = &traced
	return a
}

// endSpan ends the span of a request, if it has one. Of a failure it records only the problem's type: details may
// quote the alert.
func (s *served) endSpan(took time.Duration) {
	owner, p, status := s.authenticated, s.problem, s.reply.Status
	if owner == nil || owner.span == nil {
		return
	}
	owner.span.SetAttributes(attribute.Int("http.response.status_code", status))
	if p != nil {
		owner.span.SetAttributes(attribute.String("error.type", string(p.Type)))
	}
	if status >= http.StatusInternalServerError {
		owner.span.SetStatus(codes.Error, "")
	}
	if s.accepted != nil && p == nil {
		owner.span.SetAttributes(
			attribute.Int("tocsin.alert.count", len(s.accepted.Alerts)), attribute.Bool("tocsin.dry_run", s.dryRun))
	}
	owner.span.End(trace.WithTimestamp(owner.start.Add(took)))
}
