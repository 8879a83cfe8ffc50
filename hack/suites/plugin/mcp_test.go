package plugin

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// assistantCommand is the command in docs/mcp.md that a program starts, for the context of the tests and a namespace.
func assistantCommand(t *testing.T, namespace string, more ...string) *exec.Cmd {
	t.Helper()
	g := NewWithT(t)
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "mcp.md"))
	g.Expect(err).NotTo(HaveOccurred())
	examples := blocks(string(page), "json")
	g.Expect(examples).To(HaveLen(1))
	var file struct {
		Servers map[string]struct {
			Command string   `json:"command"`
			Args    []string `json:"args"`
		} `json:"mcpServers"`
	}
	g.Expect(json.Unmarshal([]byte(examples[0]), &file)).To(Succeed())
	args := file.Servers["tocsin"].Args
	for i, word := range args {
		args[i] = map[string]string{"production": "test", "shop": namespace}[word]
		if args[i] == "" {
			args[i] = word
		}
	}
	path := os.Getenv("PATH") + string(os.PathListSeparator) + testenv.Assets()
	t.Setenv("PATH", path)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(writeKubeconfig(kubeconfig, "default")).To(Succeed())
	command := exec.CommandContext(t.Context(), file.Servers["tocsin"].Command, append(args, more...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	command.Stderr = os.Stderr
	return command
}

// TestAnAssistant runs the example in docs/mcp.md with a real API server and manager.
func TestAnAssistant(t *testing.T) {
	startManager(t)
	b := newBoard(t)
	event := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{
		IntegrationName: "mon", Alerts: `[{"status": "firing", "dedupKey": "disk", "title": "Disk full"}]`,
	}}
	event.Namespace, event.GenerateName = b.namespace, "first-"
	g := NewWithT(t)
	g.Expect(b.Create(t.Context(), event)).To(Succeed())
	key := client.ObjectKey{Namespace: b.namespace, Name: v1alpha1.IncidentName("mon", "disk")}
	incident := &v1alpha1.Incident{}
	g.Eventually(func() v1alpha1.IncidentState {
		_ = b.Get(t.Context(), key, incident)
		return incident.Status.State
	}, awaitTimeout, awaitPoll).Should(Equal(v1alpha1.IncidentOpen))

	for _, allowed := range []bool{false, true} {
		var more []string
		if allowed {
			more = append(more, "--allow-actions")
		}
		transport := &sdk.CommandTransport{Command: assistantCommand(t, b.namespace, more...), TerminateDuration: 10 * time.Second}
		session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
		g.Expect(err).NotTo(HaveOccurred())
		shown, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "show_incident", Arguments: map[string]any{"name": key.Name}})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(shown.StructuredContent).To(And(HaveKeyWithValue("state", "Open"), HaveKeyWithValue("alert", HaveKeyWithValue("title", "Disk full"))))
		resolved, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "resolve_incident", Arguments: map[string]any{"name": key.Name}})
		if !allowed {
			g.Expect(err).To(MatchError(ContainSubstring("unknown tool")))
		} else {
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(resolved.IsError).To(BeFalse())
			g.Expect(b.Get(t.Context(), key, incident)).To(Succeed())
			g.Expect(incident.Status.State).To(Equal(v1alpha1.IncidentResolved), "the call has awaited it")
			g.Expect(incident.Status.Resolution).To(HaveField("By", "admin"))
		}
		g.Expect(session.Close()).To(Succeed())
	}
}
