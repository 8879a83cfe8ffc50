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
