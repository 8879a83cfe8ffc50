package cli

import (
	"os"
	"os/exec"
	"testing"

	. "github.com/onsi/gomega"
)

// TestThePluginIsBuiltWithoutXDS keeps 17 MB out of the plugin: the client of Google Cloud Storage links gRPC's xDS unless it
// is built with this tag, and what is shipped is built with it.
func TestThePluginIsBuiltWithoutXDS(t *testing.T) {
	g := NewWithT(t)
	const tag = "disable_grpc_modules"
	packages, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tag, "..").Output()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(packages)).To(And(ContainSubstring("cloud.google.com/go/storage\n"),
		Not(ContainSubstring("google.golang.org/grpc/xds")), Not(ContainSubstring("envoyproxy/go-control-plane"))))
	for _, file := range []string{"../../../Makefile", "../../../hack/release/build.go"} {
		content, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(content)).To(ContainSubstring(tag), file)
	}
}
