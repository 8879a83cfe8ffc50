package process

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

// An expected error is one line of the log; who looks for a bug asks for stacks.
func TestErrorsAreLoggedWithoutStacks(t *testing.T) {
	for flags, stacks := range map[string]bool{
		"--zap-encoder=json":           false,
		"--zap-stacktrace-level=error": true,
		"--zap-devel":                  true,
	} {
		t.Run(flags, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("KUBECONFIG", "/nonexistent/kubeconfig")
			var stderr bytes.Buffer
			p := &Program{Flags: NewFlags("test"), Validate: func() error { return nil }, Run: unreachable}
			g.Expect(p.Execute([]string{flags}, &bytes.Buffer{}, &stderr)).To(Equal(exitFailure))
			g.Expect(stderr.String()).To(ContainSubstring("Cannot load the kubeconfig"))
			g.Expect(bytes.Contains(stderr.Bytes(), []byte("process.go:"))).To(Equal(stacks), stderr.String())
		})
	}
}

func unreachable(context.Context, *rest.Config, logr.Logger) error {
	return errors.New("it runs without a kubeconfig")
}
