package readme

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const scriptTimeout = time.Minute

// notHere are the commands that need nodes, which a bare control plane lacks; the manager runs beside it.
var notHere = regexp.MustCompile(`(?m)^.*(--for=condition=Available|port-forward).*\n`)

func TestFiveMinutesOnACluster(t *testing.T) {
	for _, command := range []string{"bash", "curl", "openssl"} {
		if _, err := exec.LookPath(command); err != nil {
			testenv.SkipOrFail(t, "the walkthrough needs %s", command)
		}
	}
	g := NewWithT(t)
	script, err := Walkthrough()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(notHere.FindAllString(script, -1)).To(HaveLen(2))
	script = notHere.ReplaceAllString(script, "")

	kubeconfig := startControlPlane(t)
	// The CRDs come before the manager: it watches them from its start.
	run(t, kubeconfig, "kubectl apply --server-side -k config/default")
	manager := testenv.TestManager(t, testenv.ManagerOptions{Kubeconfig: kubeconfig})
	script = strings.ReplaceAll(script, "http://127.0.0.1:8080/api/v1/events/webhook/", manager.WebhookURL)

	output := run(t, kubeconfig, script)
	g.Expect(output).To(MatchRegexp(`"status":"accepted","event":"[-0-9a-f]{36}"`))
	g.Expect(output).To(MatchRegexp(`monitoring-\w{26} +Open +critical +1 .* Disk 97 % full +monitoring +disk-db-1 +db-1 `))
	g.Expect(output).To(MatchRegexp(`incident.tocsin.dev/monitoring-\w{26} condition met`))
}

// startControlPlane starts a control plane without the CRDs and returns the path of a kubeconfig for it.
func startControlPlane(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	cluster, err := testenv.StartEmptyCluster(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(cluster.Stop()).To(Succeed()) })
	return cluster.Kubeconfig
}

// run runs a script of the README in the project's folder and returns what it prints.
func run(t *testing.T, kubeconfig, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scriptTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.Dir = testenv.Root()
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+testenv.Assets()+":"+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(output))
	return string(output)
}
