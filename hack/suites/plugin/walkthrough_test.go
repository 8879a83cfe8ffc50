package plugin

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/mattn/go-runewidth"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	walkthroughColumns = 80

	// writeWalkthrough is the environment variable that makes TestWalkthrough write the page.
	writeWalkthrough = "TOCSIN_WRITE_WALKTHROUGH"
)

var (
	session = regexp.MustCompile("(?s)```console\n(.*?)```")

	// passing is what differs each time: times, ages and generated keys.
	passing = []*regexp.Regexp{
		regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`),
		regexp.MustCompile(`\b\d+(ms|s|m)\b`),
		regexp.MustCompile(`tocsin:[-0-9a-f…]+`),
		regexp.MustCompile(`example-[a-z2-7]{26}`),
		regexp.MustCompile(` +`), // columns are as wide as what is in them
	}
)

// TestWalkthrough runs the commands of docs/walkthrough.md on the demo of "make run", in a terminal with 80 columns.
func TestWalkthrough(t *testing.T) {
	g := NewWithT(t)
	w := startDemo(t)
	path := filepath.Join(testenv.Root(), "docs", "walkthrough.md")
	page, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	written := session.ReplaceAllStringFunc(string(page), func(block string) string {
		played := &strings.Builder{}
		for _, command := range commandsOf(session.FindStringSubmatch(block)[1]) {
			played.WriteString("$ " + command + "\n" + w.run(t, command))
		}
		return "```console\n" + played.String() + "```"
	})
	if os.Getenv(writeWalkthrough) != "" {
		g.Expect(os.WriteFile(path, []byte(written), 0o600)).To(Succeed())
		return
	}
	g.Expect(mask(written)).To(Equal(mask(string(page))), `"make walkthrough" writes the page anew`)
}

// mask replaces what differs each time.
func mask(page string) string {
	for _, pattern := range passing {
		page = pattern.ReplaceAllString(page, " ")
	}
	return page
}

// commandsOf returns the commands of a session. A command goes on in the next line after a backslash or a pipe.
func commandsOf(block string) []string {
	var commands []string
	continued := false
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		if command, begins := strings.CutPrefix(line, "$ "); begins {
			commands = append(commands, command)
		} else if continued {
			commands[len(commands)-1] += "\n" + line
		} else {
			continue
		}
		continued = strings.HasSuffix(line, `\`) || strings.HasSuffix(line, "|")
	}
	return commands
}

// demo is a namespace with the integration of "make run".
type demo struct {
	client.Client
	env []string
}

const demoNamespace = "tocsin-demo"

func startDemo(t *testing.T) *demo {
	t.Helper()
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: demoNamespace}})).To(Succeed())
	manager := startManager(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(writeKubeconfig(kubeconfig, demoNamespace)).To(Succeed())
	w := &demo{c, append(os.Environ(), "KUBECONFIG="+kubeconfig, "TOCSIN_ENDPOINT="+endpoint(manager), "TZ=UTC",
		"NO_COLOR=1", "TERM=xterm", "PATH="+os.Getenv("PATH")+":"+testenv.Assets())}
	w.run(t, "kubectl tocsin integration create demo --quiet >/dev/null")
	return w
}

// run runs a command in a terminal and returns what it prints, after the alerts that it created have been folded. No line
// is wider than the terminal.
func (w *demo) run(t *testing.T, line string) string {
	t.Helper()
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), awaitTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", line)
	command.Env = w.env
	file, err := pty.StartWithSize(command, &pty.Winsize{Cols: walkthroughColumns, Rows: 40})
	g.Expect(err).NotTo(HaveOccurred())
	output, _ := io.ReadAll(file) // Linux reports EIO at the end
	g.Expect(command.Wait()).To(Succeed(), "%s\n%s", line, output)
	g.Expect(file.Close()).To(Succeed())
	text := strings.ReplaceAll(string(output), "\r\n", "\n")
	for printed := range strings.Lines(text) {
		g.Expect(runewidth.StringWidth(strings.TrimSuffix(printed, "\n"))).To(BeNumerically("<=", walkthroughColumns), "%s\n%s", line, text)
	}
	g.Eventually(func() ([]v1alpha1.AlertEvent, error) {
		events := &v1alpha1.AlertEventList{}
		err := w.List(t.Context(), events, client.InNamespace(demoNamespace))
		return events.Items, err
	}, awaitTimeout, awaitPoll).Should(BeEmpty())
	return text
}
