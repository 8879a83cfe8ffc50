package webhookserver

import (
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// tracing makes the spans of requests. A nil one makes none and costs nothing. A span continues the trace of the sender,
// if it sent one.
type tracing struct {
	tracer  trace.Tracer
	headers propagation.TraceContext
}

// newTracing returns nil when there is no provider.
func newTracing(provider trace.TracerProvider) *tracing {
	if provider == nil {
		return nil
	}
	return &tracing{tracer: provider.Tracer("github.com/tocsin-dev/tocsin/webhookserver")}
}

// begin begins the span of a request with a valid token. Others have none: strangers could fill the store of traces
// with them. The span has neither the path nor the headers, where the token is.
func (t *tracing) begin(x *exchange) {
	if t == nil || x.integration == nil {
		return
	}
	ctx := t.headers.Extract(x.Context(), propagation.HeaderCarrier(x.Header))
	ctx, x.span = t.tracer.Start(ctx, x.Method+" "+x.route(),
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

// end ends the span of a request, if it has one. Of a failure it records only the problem's type: details may
// quote the alert.
func (t *tracing) end(x *exchange, accepted *acceptance, p *problem, status int, took time.Duration) {
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
