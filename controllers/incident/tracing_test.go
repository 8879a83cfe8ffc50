package incident

import (
	"testing"

	. "github.com/onsi/gomega"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
)

func TestAFoldIsLinkedToTheWritesOfItsAlerts(t *testing.T) {
	s := newSite(t)
	exporter := tracetest.NewInMemoryExporter()
	s.incidents.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	var events []*v1alpha1.AlertEvent
	for _, traceparent := range []string{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-1bf7651916cd43dd8448eb211c80319c-c8ad6b7169203331-01",
		"not a traceparent", "",
	} {
		event := &v1alpha1.AlertEvent{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, GenerateName: "traced-"},
			Spec: v1alpha1.AlertEventSpec{
				IntegrationName: testsite.Integration, ReceivedTime: v1alpha1.NewTimestamp(s.Clock.Now()),
				Alerts: testenv.Text(s.Alert(v1alpha1.AlertFiring, "disk")),
			},
		}
		if traceparent != "" {
			event.Annotations = map[string]string{v1alpha1.TraceparentAnnotation: traceparent}
		}
		s.Expect(s.Live.Create(s.Ctx, event)).To(Succeed())
		events = append(events, event)
	}
	s.fold("disk")

	spans := exporter.GetSpans()
	s.Expect(spans).To(HaveLen(1))
	span := spans[0]
	s.Expect(span.Name).To(Equal("fold Incident"))
	s.Expect(span.SpanKind).To(Equal(trace.SpanKindConsumer))
	s.Expect(span.Parent.IsValid()).To(BeFalse(), "it is the root of a trace of its own")
	var linked []string
	for _, link := range span.Links {
		linked = append(linked, link.SpanContext.TraceID().String())
	}
	s.Expect(linked).To(ConsistOf("0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c"))
	s.Expect(span.Attributes).To(ContainElements(
		attribute.String("k8s.namespace.name", s.Namespace),
		attribute.String("tocsin.integration.name", testsite.Integration),
		attribute.String("tocsin.incident.name", s.KeyOf("disk").Name),
		attribute.Int("tocsin.alerts.opened", 1),
		attribute.Int("tocsin.alerts.updated", len(events)-1),
	))

	exporter.Reset()
	s.fold("disk")
	s.Expect(exporter.GetSpans()).To(BeEmpty(), "there is nothing to do")
}

func TestWithoutTracingAFoldCostsNothingMore(t *testing.T) {
	g := NewWithT(t)
	f := &facts{}
	g.Expect(testing.AllocsPerRun(100, func() {
		_, end := beginSpan(t.Context(), nil, f)
		end(fold.Plan{}, nil)
	})).To(BeZero())
}
