package app

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
)

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
