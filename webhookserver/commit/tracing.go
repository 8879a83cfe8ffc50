package commit

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// tracer makes the spans of writes. A nil one makes none and costs nothing.
//
// A write has a span of its own, since it may store the alerts of many requests: it belongs to the first and is linked to
// the others. The AlertEvent keeps the write's span context, so that the fold, possibly on another replica, can link to it.
type tracer struct{ trace.Tracer }

// newTracer returns nil when there is no provider.
func newTracer(provider trace.TracerProvider) *tracer {
	if provider == nil {
		return nil
	}
	return &tracer{provider.Tracer("github.com/tocsin-dev/tocsin/webhookserver/commit")}
}

// start begins the span of a write and notes it in the AlertEvent. It returns the function that ends the span.
func (t *tracer) start(batch []*entry, event *v1alpha1.AlertEvent) func(error) {
	if t == nil {
		return func(error) {}
	}
	var links []trace.Link
	for _, e := range batch[1:] {
		if other := trace.SpanContextFromContext(e.ctx); other.IsValid() {
			links = append(links, trace.Link{SpanContext: other})
		}
	}
	ctx, span := t.Start(batch[0].ctx, "create AlertEvent",
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithLinks(links...),
		trace.WithAttributes(
			attribute.String("k8s.namespace.name", event.Namespace),
			attribute.String("tocsin.integration.name", event.Spec.IntegrationName),
			attribute.String("tocsin.alertevent.name", event.Name),
			attribute.Int("tocsin.alert.count", len(event.Spec.Alerts)),
		))
	if span.SpanContext().IsSampled() {
		carrier := propagation.MapCarrier{} // W3C Trace Context
		propagation.TraceContext{}.Inject(ctx, carrier)
		event.Annotations = map[string]string{v1alpha1.TraceparentAnnotation: carrier.Get("traceparent")}
	}
	return func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}
