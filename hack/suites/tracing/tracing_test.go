// Package tracing follows an alert through the spans that the manager sends to an OpenTelemetry collector.
package tracing

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// timeout is for everything that a busy machine may take long for.
const timeout = time.Minute

// collector takes spans in over OTLP, by HTTP.
type collector struct {
	mu      sync.Mutex
	request collectorv1.ExportTraceServiceRequest
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

func TestAnAlertIsTracedAllTheWay(t *testing.T) {
	g := NewWithT(t)
	collector := &collector{}
	server := httptest.NewServer(collector)
	defer server.Close()
	cluster, err := testenv.StartCluster(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(cluster.Stop)
	manager := testenv.TestManager(t, testenv.ManagerOptions{
		Kubeconfig: cluster.Kubeconfig, Log: os.Stderr, Args: []string{"--tracing", "--shutdown-delay=0s"},
		Env: []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=" + server.URL, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
			"OTEL_SERVICE_NAME=tocsin-of-the-test",
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()

	token, err := cluster.Integrate(ctx, "shop", "monitoring", v1alpha1.WebhookIntegrationSpec{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() (int, error) {
		response, err := http.Post(manager.WebhookURL+token, "application/json", strings.NewReader(`{"dedup_key":"one"}`))
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}, timeout).Should(Equal(http.StatusAccepted))
	_, err = loadgen.Drained(ctx, cluster.Client, "shop")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manager.Stop()).To(Succeed(), "it sends what is left")
	collector.check(g, token)
}
