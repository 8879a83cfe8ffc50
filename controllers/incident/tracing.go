package incident

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// tracerName is the instrumentation scope of the folds' spans.
const tracerName = "github.com/tocsin-dev/tocsin/controllers"

// beginSpan begins the span of a fold; without a provider, or of canaries, there is none. It is the root of a trace and
// linked to the writes of the AlertEvents that it folds: they have answered their requests before it began, and there may be
// many. The result ends it.
func beginSpan(ctx context.Context, provider trace.TracerProvider, f *facts) (context.Context, func(fold.Plan, error)) {
	if provider == nil || f.key.Name == v1alpha1.CanaryName {
		return ctx, func(fold.Plan, error) {}
	}
	ctx, span := provider.Tracer(tracerName).Start(ctx, "fold Incident",
		trace.WithNewRoot(),
		trace.WithTimestamp(f.began),
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithLinks(writesOf(f.toFold)...),
		trace.WithAttributes(
			attribute.String("k8s.namespace.name", f.key.Namespace),
			attribute.String("tocsin.integration.name", f.integration().Name),
			attribute.String("tocsin.incident.name", f.key.Name),
		))
	return ctx, func(p fold.Plan, err error) {
		counts := map[string]int{}
		for _, result := range p.Results {
			counts[result.Result]++
		}
		for result, count := range counts {
			span.SetAttributes(attribute.Int("tocsin.alerts."+result, count))
		}
		switch {
		case errors.Is(err, errStale): // it starts over
			span.SetAttributes(attribute.Bool("tocsin.stale", true))
		case err != nil:
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// writesOf are links to the writes of the AlertEvents that say where they come from.
func writesOf(events []*v1alpha1.AlertEvent) []trace.Link {
	var links []trace.Link
	for _, event := range events {
		traceparent := event.Annotations[v1alpha1.TraceparentAnnotation]
		if traceparent == "" {
			continue
		}
		carrier := propagation.MapCarrier{"traceparent": traceparent}
		ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
		if write := trace.SpanContextFromContext(ctx); write.IsValid() {
			links = append(links, trace.Link{SpanContext: write})
		}
	}
	return links
}
