package commit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/memorystore"
)

// writeTraced has a Committer write the alerts of requests, whose spans may be invalid, as one batch. It returns the spans of the
// writes.
func writeTraced(store Store, sampler sdktrace.Sampler, requests ...trace.SpanContext) tracetest.SpanStubs {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithSampler(sampler))
	var batch []*entry
	for i, request := range requests {
		batch = append(batch, &entry{
			Submission: submission("x", fmt.Sprint(i)), done: make(chan result, 1), deadline: time.Now().Add(Timeout),
			ctx: trace.ContextWithSpanContext(context.Background(), request),
		})
	}
	New(store, 1, provider).writeBatch(batch)
	return exporter.GetSpans()
}

// requestSpan makes the context of the span of a request.
func requestSpan(id byte) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{id}, SpanID: trace.SpanID{id}, TraceFlags: trace.FlagsSampled})
}

func TestTheSpanOfAWriteBelongsToItsFirstRequestAndIsLinkedToTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := &memorystore.Store{After: memorystore.FailFirst(io.EOF), OnGet: failOnce(io.EOF)}
		untraced := trace.SpanContext{}
		spans := writeTraced(store, sdktrace.AlwaysSample(), requestSpan(1), untraced, requestSpan(2), requestSpan(3))
		g.Expect(spans).To(HaveLen(1), "however many attempts there are")
		span := spans[0]
		g.Expect(span.Name).To(Equal("create AlertEvent"))
		g.Expect(span.SpanKind).To(Equal(trace.SpanKindProducer))
		g.Expect(span.Parent.SpanID()).To(Equal(requestSpan(1).SpanID()))
		g.Expect(span.Status.Code).To(Equal(codes.Unset))
		var linked []trace.SpanContext
		for _, link := range span.Links {
			linked = append(linked, link.SpanContext)
		}
		g.Expect(linked).To(Equal([]trace.SpanContext{requestSpan(2), requestSpan(3)}))
		g.Expect(store.Stored()).To(HaveLen(1))
		g.Expect(span.Attributes).To(ConsistOf(
			attribute.String("k8s.namespace.name", "team-a"),
			attribute.String("tocsin.integration.name", "x"),
			attribute.String("tocsin.alertevent.name", store.Stored()[0].Name),
			attribute.Int("tocsin.alert.count", 4),
		))
		g.Expect(span.EndTime.Sub(span.StartTime)).To(BeNumerically(">", minBackoff/2), "it includes the retries")
	})
}

func TestEveryAttemptKeepsTheTraceContextOfItsWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		store := &memorystore.Store{Before: memorystore.FailFirst(io.EOF)}
		spans := writeTraced(store, sdktrace.AlwaysSample(), requestSpan(1))
		g.Expect(spans).To(HaveLen(1))
		write := spans[0].SpanContext
		g.Expect(store.Calls()).To(Equal(2))
		g.Expect(store.Stored()[0].Annotations).To(Equal(map[string]string{
			v1alpha1.TraceparentAnnotation: fmt.Sprintf("00-%s-%s-01", write.TraceID(), write.SpanID()),
			v1alpha1.RetryAnnotation:       "true",
		}))
	})
}

func TestAWriteThatIsNotSampledLeavesNoTraceContext(t *testing.T) {
	g := NewWithT(t)
	store := &memorystore.Store{}
	g.Expect(writeTraced(store, sdktrace.NeverSample(), requestSpan(1))).To(BeEmpty())
	g.Expect(store.Stored()[0].Annotations).To(BeEmpty())
}

func TestTheSpanOfAWriteThatFailedIsAnErrorWithoutWords(t *testing.T) {
	g := NewWithT(t)
	answer := memorystore.ServerError(http.StatusNotFound, "", "secret words")
	spans := writeTraced(&memorystore.Store{Before: memorystore.FailAlways(answer)}, sdktrace.AlwaysSample(), requestSpan(1))
	g.Expect(spans).To(HaveLen(1))
	g.Expect(spans[0].Status).To(Equal(sdktrace.Status{Code: codes.Error}))
	g.Expect(spans[0].Events).To(BeEmpty())
}
