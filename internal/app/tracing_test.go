package app

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

func TestTracingWantsAProtocolThatThereIs(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	_, err := startTracing(context.Background(), logr.Discard())
	g.Expect(err).To(MatchError(ContainSubstring("http/json")))
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
		provider, err := startTracing(context.Background(), logr.Discard())
		g.Expect(err).NotTo(HaveOccurred())
		stopTracing(provider, logr.Discard())
	}
}
