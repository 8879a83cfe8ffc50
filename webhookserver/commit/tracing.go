package commit

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// tracerOf returns the tracer of a provider; nil if there is none.
func tracerOf(provider trace.TracerProvider) trace.Tracer {
	if provider == nil {
		return nil
	}
	return provider.Tracer("github.com/tocsin-dev/tocsin/webhookserver/commit")
}

// startSpan begins the span of a write, and returns the function that ends it. A nil tracer makes no spans, at no cost. The span
// belongs to the first request and is linked to the others. The AlertEvent keeps its context, so that the fold can link to it.
func startSpan(tracer trace.Tracer, entries []*entry, event *v1alpha1.AlertEvent) func(error) {
	if tracer == nil {
		return func(error) {}
	}
	var links []trace.Link
	for _, e := range entries[1:] {
		if other := trace.SpanContextFromContext(e.ctx); other.IsValid() {
			links = append(links, trace.Link{SpanContext: other})
		}
	}
	ctx, span := tracer.Start(entries[0].ctx, "create AlertEvent",
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithLinks(links...),
		trace.WithAttributes(
			attribute.String("k8s.namespace.name", event.Namespace),
			attribute.String("tocsin.integration.name", event.Spec.IntegrationName),
			attribute.String("tocsin.alertevent.name", event.Name),
			attribute.Int("tocsin.alert.count", len(event.Alerts)),
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
