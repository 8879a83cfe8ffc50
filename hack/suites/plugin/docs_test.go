package plugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

func docs(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "kubectl-plugin.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// blocks are the fenced blocks of a language.
func blocks(page, language string) []string {
	var found []string
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(page, -1) {
		found = append(found, match[1])
	}
	return found
}

// TestDocs runs the commands of docs/kubectl-plugin.md.
func TestDocs(t *testing.T) {
	g := NewWithT(t)
	manager := startManager(t)
	folder := t.TempDir()
	kubeconfig := filepath.Join(folder, "kubeconfig")
	g.Expect(writeKubeconfig(kubeconfig, "default")).To(Succeed())
	script := "set -euo pipefail\n" + strings.Join(blocks(docs(t), "sh"), "\n")
	// A script looks sooner than a person does.
	script = strings.Replace(script, "\nkubectl tocsin get\n",
		"\nuntil kubectl tocsin get 2>&1 | grep Queue; do sleep 0.1; done\nkubectl tocsin get\n", 1)
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	command.Dir = folder
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "TZ=UTC",
		"PATH="+os.Getenv("PATH")+":"+testenv.Assets(), "TOCSIN_ENDPOINT="+endpoint(manager))
	output, err := command.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(output))
	for _, said := range []string{
		`webhookintegration.tocsin.dev/monitoring created`,
		`second +in 89d`,
		`Revoked token "\d{4}-\d\d-\d\d" of integration "monitoring"\.`,
		`Accepted: incident shop/monitoring-qf4temcyqfg5jyf6hfops4jsuk, dedup key disk-db-1`,
		`Open +critical +- +1 .* Disk 97 % full`,
		`Resolved by admin: replaced the disk`,
		`nothing critical: go on`,
		`Would open shop/monitoring-\w{26}, or update it if it is open.`,
		`title +Disk 97 % full +key title`,
	} {
		g.Expect(string(output)).To(MatchRegexp(said))
	}
}
