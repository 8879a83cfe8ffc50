package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// installForeignCRDs installs the CustomResourceDefinitions of others that the components need.
func (c *cluster) installForeignCRDs(t *testing.T) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(testenv.Root(), "hack", "modules", "crds", "apply.sh"))
	command.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig,
		"PATH="+testenv.Assets()+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), "%s", output)
}
