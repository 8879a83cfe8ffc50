package readme

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const scriptTimeout = 4 * time.Minute

// notHere are the commands that need nodes, which a bare control plane lacks; the manager runs beside it.
var notHere = regexp.MustCompile(`(?m)^.*(--for=condition=Available|port-forward).*\n`)

// maxReadmeLines keeps the README a page that is read to its end.
const maxReadmeLines = 150

// TestTheReadmeServesAStranger checks the first screen: a sentence, a picture and a first command, and the length of the page.
func TestTheReadmeServesAStranger(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(testenv.Root(), "README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	lines := strings.Split(string(content), "\n")
	g.Expect(len(lines)).To(BeNumerically("<", maxReadmeLines))
	g.Expect(lines[2]).To(MatchRegexp(`^Tocsin is .*\.$`))
	firstScreen, _, _ := strings.Cut(string(content), "\n## ")
	g.Expect(strings.Count(firstScreen, "\n")).To(BeNumerically("<", 50))
	g.Expect(strings.Count(firstScreen, "![")).To(Equal(1))
	g.Expect(commandBlocks(firstScreen)[0].commands).To(HaveLen(1), "to try it")
	g.Expect(firstScreen).To(And(ContainSubstring("**It replaces**"), ContainSubstring("**It does not**")))
}

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
	endpoint := strings.TrimSuffix(manager.WebhookURL, "api/v1/events/webhook/")
	script = strings.ReplaceAll(script, "http://127.0.0.1:8080/", endpoint)

	output := run(t, kubeconfig, script)
	g.Expect(output).To(MatchRegexp(`"status":"accepted","event":"[-0-9a-f]{36}"`))
	g.Expect(output).To(MatchRegexp(`monitoring-\w{26} +Open +critical +False +1 .* Disk 97 % full +monitoring +disk-db-1 +db-1 `))
	g.Expect(output).To(MatchRegexp(`incident.tocsin.dev/monitoring-\w{26} condition met`))
}

// startControlPlane starts a control plane without the CRDs and returns the path of a kubeconfig for it.
func startControlPlane(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	cluster, err := testenv.StartEmptyCluster(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(cluster.Stop)
	return cluster.Kubeconfig
}

// run runs a script of the documents in the project's folder and returns what it prints.
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
