package webhookserver

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// tracerName is the instrumentation scope of the server's spans.
const tracerName = "github.com/tocsin-dev/tocsin/webhookserver"

// routePattern stands for the path, which has the token in it.
const routePattern = eventsPath + "/{token}"

// tracing makes the spans of requests and writes. A nil one makes none and costs nothing.
//
// A request's span goes on with the trace of the sender, if it sent one. A write has a span of its own, since it may
// store the alerts of many requests: it belongs to the first and is linked to the others. The AlertEvent keeps the
// write's span context, so that the fold, on another replica perhaps, can link to it.
type tracing struct {
	tracer  trace.Tracer
	headers propagation.TraceContext
}

// newTracing returns nil when there is no provider.
func newTracing(provider trace.TracerProvider) *tracing {
	if provider == nil {
		return nil
	}
	return &tracing{tracer: provider.Tracer(tracerName)}
}

// begin begins the span of a request with a valid token. Others have none: strangers could fill the store of traces
// with them. What it says of the request is neither path nor headers, where the token is.
func (t *tracing) begin(x *exchange) {
	if t == nil || x.integration == nil {
		return
	}
	ctx := t.headers.Extract(x.Context(), propagation.HeaderCarrier(x.Header))
	ctx, x.span = t.tracer.Start(ctx, "POST "+routePattern,
		trace.WithTimestamp(x.start),
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("http.request.method", http.MethodPost),
			attribute.String("http.route", routePattern),
			attribute.String("k8s.namespace.name", x.integration.Namespace),
			attribute.String("tocsin.integration.name", x.integration.Name),
		))
	x.Request = x.WithContext(ctx)
}

// end ends the span of a request, if it has one. The problem's type is all that it says of a failure: details may
// quote the alert.
func (x *exchange) end(accepted *acceptance, p *problem, status int, took time.Duration) {
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

// beginWrite begins the span of a write and notes it in the AlertEvent. The result ends it.
func (t *tracing) beginWrite(batch []*entry, event *v1alpha1.AlertEvent) func(error) {
	if t == nil {
		return func(error) {}
	}
	var links []trace.Link
	for _, e := range batch[1:] {
		if other := trace.SpanContextFromContext(e.ctx); other.IsValid() {
			links = append(links, trace.Link{SpanContext: other})
		}
	}
	ctx, span := t.tracer.Start(batch[0].ctx, "create AlertEvent",
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithLinks(links...),
		trace.WithAttributes(
			attribute.String("k8s.namespace.name", event.Namespace),
			attribute.String("tocsin.integration.name", event.Spec.IntegrationName),
			attribute.String("tocsin.alertevent.name", event.Name),
			attribute.Int("tocsin.alert.count", len(event.Spec.Alerts)),
		))
	t.note(ctx, event)
	return func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// note puts the span context into the AlertEvent, if anybody keeps the span.
func (t *tracing) note(ctx context.Context, event *v1alpha1.AlertEvent) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	carrier := propagation.MapCarrier{}
	t.headers.Inject(ctx, carrier)
	event.Annotations = map[string]string{v1alpha1.TraceparentAnnotation: carrier.Get("traceparent")}
}
