package webhookserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/memorystore"
	"github.com/tocsin-dev/tocsin/internal/tokens"
	"github.com/tocsin-dev/tocsin/webhookserver/commit"
)

// traced has a bench make spans, which the exporter keeps.
func traced(b *bench, options ...sdktrace.TracerProviderOption) *tracetest.InMemoryExporter {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSyncer(exporter))...)
	b.tracer, b.group = provider.Tracer("webhookserver"), commit.New(b.store, DefaultMaxInFlightWrites, provider)
	b.committer = b.group
	return exporter
}

// spanNamed is the only span of the name.
func spanNamed(t *testing.T, exporter *tracetest.InMemoryExporter, name string) tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, span := range exporter.GetSpans() {
		if span.Name == name {
			found = append(found, span)
		}
	}
	NewWithT(t).Expect(found).To(HaveLen(1), name)
	return found[0]
}

func attributes(span tracetest.SpanStub) map[string]any {
	values := map[string]any{}
	for _, a := range span.Attributes {
		values[string(a.Key)] = a.Value.AsInterface()
	}
	return values
}

const requestSpan, writeSpan = "POST /api/v1/events/webhook/{token}", "create AlertEvent"

func TestARequestAndItsWriteAreTraced(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	exporter := traced(b)
	response := b.post(testPath, firing, with("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
	request, write := spanNamed(t, exporter, requestSpan), spanNamed(t, exporter, writeSpan)

	g.Expect(request.SpanKind).To(Equal(trace.SpanKindServer))
	g.Expect(request.SpanContext.TraceID().String()).To(Equal("0af7651916cd43dd8448eb211c80319c"), "it goes on with the sender's trace")
	g.Expect(request.Parent.SpanID().String()).To(Equal("b7ad6b7169203331"))
	g.Expect(request.EndTime).To(BeTemporally(">=", write.EndTime))
	g.Expect(attributes(request)).To(Equal(map[string]any{
		"http.request.method": "POST", "http.route": "/api/v1/events/webhook/{token}", "http.response.status_code": int64(202),
		"k8s.namespace.name": "team-a", "tocsin.integration.name": "prometheus",
		"tocsin.alert.count": int64(1), "tocsin.dry_run": false,
	}))
	g.Expect(write.Parent.SpanID()).To(Equal(request.SpanContext.SpanID()))
	event := b.store.Stored()[0]
	g.Expect(attributes(write)).To(HaveKeyWithValue("tocsin.alertevent.name", event.Name))
	g.Expect(event.Annotations).To(Equal(map[string]string{v1alpha1.TraceparentAnnotation: fmt.Sprintf("00-%s-%s-01",
		write.SpanContext.TraceID(), write.SpanContext.SpanID())}))
}

func TestAWriteOfSeveralRequestsIsLinkedToAll(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	exporter := traced(b)
	release := make(chan struct{})
	b.store.Before = func(_ context.Context, _ *v1alpha1.AlertEvent, call int) error {
		if call == 1 {
			<-release
		}
		return nil
	}
	const requests = 4
	answered := make(chan int, requests)
	for range requests {
		go func() { answered <- b.post(testPath, firing).StatusCode }()
	}
	g.Eventually(b.group.Backlog, "5s").Should(Equal(requests - 1))
	close(release)
	for range requests {
		g.Expect(<-answered).To(Equal(http.StatusAccepted))
	}
	links := 0
	for _, span := range exporter.GetSpans() {
		if span.Name == writeSpan {
			links += len(span.Links)
			g.Expect(span.Parent.IsValid()).To(BeTrue())
		}
	}
	g.Expect(links).To(Equal(requests-2), "the first was written alone, and of the others one is the parent")
}

func TestWhatIsNotTraced(t *testing.T) {
	t.Run("a request without a valid token has no span", func(t *testing.T) {
		b := newBench()
		exporter := traced(b)
		NewWithT(t).Expect(b.post(eventsPath+"/unknown", firing).StatusCode).To(Equal(http.StatusUnauthorized))
		NewWithT(t).Expect(exporter.GetSpans()).To(BeEmpty())
	})
	t.Run("what nobody keeps is not noted in the AlertEvent", func(t *testing.T) {
		b := newBench()
		exporter := traced(b, sdktrace.WithSampler(sdktrace.NeverSample()))
		NewWithT(t).Expect(b.post(testPath, firing).StatusCode).To(Equal(http.StatusAccepted))
		NewWithT(t).Expect(exporter.GetSpans()).To(BeEmpty())
		NewWithT(t).Expect(b.store.Stored()[0].Annotations).To(BeEmpty())
	})
	t.Run("without tracing a request costs nothing more", func(t *testing.T) {
		g := NewWithT(t)
		off := &handler{}
		a := &authenticated{
			arrived:     &arrived{Request: httptest.NewRequest(http.MethodPost, testPath, http.NoBody)},
			integration: integration("a", "b"),
		}
		s := served{authenticated: a}
		g.Expect(testing.AllocsPerRun(100, func() {
			off.beginSpan(a)
			s.endSpan(0)
		})).To(BeZero())
	})
}

func TestNoSpanHasTheTokenOrTheAlert(t *testing.T) {
	g := NewWithT(t)
	const secret = "Very secret content"
	b := newBench()
	exporter := traced(b)
	body := `{"title":"` + secret + `","dedup_key":"` + secret + `"}`
	b.post(testPath, body)
	b.post(eventsPath, body, with("Authorization", "Bearer "+testToken))
	b.post(testPath+"?dryRun="+testToken, body)
	b.post(testPath+"?dryRun=true", body)
	b.post(testPath, body, with("Idempotency-Key", testToken), with("User-Agent", testToken), with("Tracestate", "a="+testToken))
	b.post(testPath, `[`+secret)
	b.store.Before = func(context.Context, *v1alpha1.AlertEvent, int) error {
		return apierrors.NewBadRequest(secret + testToken)
	}
	b.post(testPath, body)
	spans := exporter.GetSpans()
	g.Expect(len(spans)).To(BeNumerically(">=", 10))
	for _, span := range spans {
		span.SpanContext, span.Parent = trace.SpanContext{}, trace.SpanContext{} // ids
		encoded, err := json.Marshal(struct {
			Span       tracetest.SpanStub
			Attributes map[string]any
		}{span, attributes(span)})
		g.Expect(err).NotTo(HaveOccurred())
		text := string(encoded) + fmt.Sprintf("%+v", span)
		g.Expect(text).NotTo(ContainSubstring(testToken))
		g.Expect(text).NotTo(ContainSubstring(tokens.Hash(testToken)))
		g.Expect(strings.ToLower(text)).NotTo(ContainSubstring(strings.ToLower(secret)))
	}
}

func TestFailuresShowInSpans(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	exporter := traced(b)
	b.store.Before = func(context.Context, *v1alpha1.AlertEvent, int) error {
		return memorystore.SchemaError("spec.alerts[0].title")
	}
	g.Expect(b.post(testPath, firing).StatusCode).To(Equal(http.StatusUnprocessableEntity))
	request, write := spanNamed(t, exporter, requestSpan), spanNamed(t, exporter, writeSpan)
	g.Expect(write.Status.Code).To(Equal(codes.Error))
	g.Expect(request.Status.Code).To(Equal(codes.Unset), "the sender has to mend it")
	g.Expect(request.Attributes).To(ContainElement(attribute.String("error.type", "rejected")))

	exporter.Reset()
	b.committer = refusing{}
	g.Expect(b.post(testPath, firing).StatusCode).To(Equal(http.StatusServiceUnavailable))
	request = spanNamed(t, exporter, requestSpan)
	g.Expect(request.Status.Code).To(Equal(codes.Error))
	g.Expect(request.Attributes).To(ContainElement(attribute.String("error.type", "overloaded")))
}
