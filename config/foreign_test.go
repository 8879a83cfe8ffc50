package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/testenv"
)

// installForeignCRDs installs the CustomResourceDefinitions of others that the components need: those of
// hack/crds in their own schemas, so that strict validation means something.
func (c *cluster) installForeignCRDs(t *testing.T) {
	t.Helper()
	certManager := filepath.Join(moduleFolder(t, "github.com/cert-manager/cert-manager"), "deploy", "crds")
	gatewayAPI := filepath.Join(moduleFolder(t, "sigs.k8s.io/gateway-api"), "config", "crd", "standard")
	monitoring := generateMonitoringCRDs(t)
	c.kubectl(t, "apply", "--server-side",
		"-f", filepath.Join(certManager, "cert-manager.io_certificates.yaml"),
		"-f", filepath.Join(certManager, "cert-manager.io_issuers.yaml"),
		"-f", filepath.Join(gatewayAPI, "gateway.networking.k8s.io_gateways.yaml"),
		"-f", filepath.Join(gatewayAPI, "gateway.networking.k8s.io_httproutes.yaml"),
		"-f", filepath.Join(monitoring, "monitoring.coreos.com_servicemonitors.yaml"),
		"-f", filepath.Join(monitoring, "monitoring.coreos.com_prometheusrules.yaml"),
		"-f", filepath.Join("testdata", "envoyproxies.yaml"))
	c.kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
}

// moduleFolder is where a module of hack/crds lies; the first time it is downloaded.
func moduleFolder(t *testing.T, path string) string {
	t.Helper()
	g := NewWithT(t)
	download := exec.CommandContext(t.Context(), "go", "mod", "download", path)
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", path)
	var folder []byte
	for _, command := range []*exec.Cmd{download, list} {
		command.Dir = filepath.Join(testenv.Root(), "hack", "crds")
		command.Env = append(os.Environ(), "GOWORK=off")
		output, err := command.Output()
		g.Expect(err).NotTo(HaveOccurred(), "%s", output)
		folder = output
	}
	return strings.TrimSpace(string(folder))
}

// generateMonitoringCRDs generates those of the Prometheus Operator from its types, as its own build does.
func generateMonitoringCRDs(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	command := exec.CommandContext(t.Context(), filepath.Join(testenv.Root(), "bin", "tools", "controller-gen"),
		"crd:maxDescLen=0", "paths=github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1",
		"output:crd:dir="+folder)
	command.Dir = filepath.Join(testenv.Root(), "hack", "crds")
	command.Env = append(os.Environ(), "GOWORK=off")
	output, err := command.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), "\"make tools\" builds controller-gen: %s", output)
	return folder
}
