package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector takes spans in over OTLP, by HTTP.
type collector struct {
	mu      sync.Mutex
	request collectorv1.ExportTraceServiceRequest
}

// startCollector starts a collector and has OpenTelemetry's environment variables name it.
func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv(protocolVariable, "http/protobuf")
	t.Setenv("OTEL_SERVICE_NAME", "tocsin-of-the-test")
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collectorv1.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	proto.Merge(&c.request, &request)
}

// check makes sure that one alert was traced all the way: its request, the write, and the fold with a link to it.
func (c *collector) check(g *WithT, token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := map[string]*tracev1.Span{}
	for _, resource := range c.request.ResourceSpans {
		g.Expect(resource.Resource.String()).To(ContainSubstring("tocsin-of-the-test"))
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				if span.Name == "fold Incident" && len(span.Links) == 0 {
					continue // of an alert made by hand, which no request brought
				}
				spans[span.Name] = span
			}
		}
	}
	request, write, fold := spans["POST /api/v1/events/webhook/{token}"], spans["create AlertEvent"], spans["fold Incident"]
	g.Expect(request).NotTo(BeNil())
	g.Expect(write).NotTo(BeNil())
	g.Expect(fold).NotTo(BeNil())
	g.Expect(write.ParentSpanId).To(Equal(request.SpanId))
	g.Expect(fold.Links).To(HaveLen(1))
	g.Expect(fold.Links[0].SpanId).To(Equal(write.SpanId))
	g.Expect(c.request.String()).NotTo(ContainSubstring(token))
}

func TestTracingWantsAProtocolThatThereIs(t *testing.T) {
	g := NewWithT(t)
	t.Setenv(protocolVariable, "http/json")
	_, err := startTracing(context.Background(), logr.Discard())
	g.Expect(err).To(MatchError(ContainSubstring("http/json")))
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Setenv(tracesProtocolVariable, protocol)
		provider, err := startTracing(context.Background(), logr.Discard())
		g.Expect(err).NotTo(HaveOccurred())
		stopTracing(provider, logr.Discard())
	}
}
