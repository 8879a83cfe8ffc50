package plugin

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// terminal is a terminal with the plugin in it, and somebody before it.
type terminal struct {
	screen  vt10x.Terminal
	pty     *os.File
	command *exec.Cmd
	drawn   chan struct{} // closed when the plugin's end of the terminal is
}

// atTerminal starts the plugin in a terminal.
func atTerminal(t *testing.T, namespace string, env []string, columns, rows uint16, args ...string) *terminal {
	t.Helper()
	g := NewWithT(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(writeKubeconfig(kubeconfig, namespace)).To(Succeed())
	command := exec.CommandContext(t.Context(), "kubectl-tocsin", args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "TERM=xterm-256color", "NO_COLOR=")
	command.Env = append(command.Env, env...)
	file, err := pty.StartWithSize(command, &pty.Winsize{Cols: columns, Rows: rows})
	g.Expect(err).NotTo(HaveOccurred())
	term := &terminal{
		screen: vt10x.New(vt10x.WithSize(int(columns), int(rows))), pty: file, command: command, drawn: make(chan struct{}),
	}
	go func() {
		defer close(term.drawn)
		buffer := make([]byte, 4096)
		for {
			n, err := file.Read(buffer)
			_, _ = term.screen.Write(buffer[:n])
			if err != nil { // Linux says EIO at the end
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = file.Close()
		<-term.drawn
	})
	return term
}

// lines are those on the screen, without the empty ones at its end.
func (term *terminal) lines() []string {
	lines := strings.Split(strings.TrimRight(term.screen.String(), " \n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// resize makes the terminal larger or smaller.
func (term *terminal) resize(columns, rows uint16) error {
	term.screen.Resize(int(columns), int(rows))
	return pty.Setsize(term.pty, &pty.Winsize{Cols: columns, Rows: rows})
}

// press presses a key.
func (term *terminal) press(key string) error {
	_, err := term.pty.WriteString(key)
	return err
}

// wait waits for the plugin's end and returns its exit code.
func (term *terminal) wait() int {
	<-term.drawn
	if exit, failed := errors.AsType[*exec.ExitError](term.command.Wait()); failed {
		return exit.ExitCode()
	}
	return 0
}

// colour is that of the first letter of a text on the screen; -1 when the text is not there.
func (term *terminal) colour(text string) vt10x.Color {
	for y, line := range term.lines() {
		if before, _, found := strings.Cut(line, text); found {
			return term.screen.Cell(len([]rune(before)), y).FG
		}
	}
	return vt10x.Color(^uint32(0))
}

// board makes Incidents as the manager does.
type board struct {
	client.Client
	namespace string
}

func newBoard(t *testing.T) board {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return board{c, testenv.Namespace(t, c)}
}

func (b board) open(t *testing.T, key string, severity v1alpha1.Severity, since time.Duration, title string) *v1alpha1.Incident {
	t.Helper()
	g := NewWithT(t)
	name := v1alpha1.IncidentName("mon", key)
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "mon", DedupKey: key},
	}
	g.Expect(b.Create(t.Context(), incident)).To(Succeed())
	opened := v1alpha1.NewTimestamp(time.Now().Add(-since))
	incident.Status.State = v1alpha1.IncidentOpen
	incident.Status.Alert.Severity, incident.Status.Alert.Title = severity, title
	incident.Status.AlertCount, incident.Status.OpenedTime, incident.Status.LastAlertTime = 1, &opened, &opened
	g.Expect(b.Status().Update(t.Context(), incident)).To(Succeed())
	return incident
}

func (b board) resolve(t *testing.T, incident *v1alpha1.Incident) {
	t.Helper()
	incident.Status.State = v1alpha1.IncidentResolved
	NewWithT(t).Expect(b.Status().Update(t.Context(), incident)).To(Succeed())
}

func (b board) acknowledge(t *testing.T, incident *v1alpha1.Incident) {
	t.Helper()
	meta.SetStatusCondition(&incident.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAcknowledgedByUser,
	})
	incident.Status.Acknowledgement = &v1alpha1.Acknowledgement{
		Time: v1alpha1.NewTimestamp(time.Now()), Severity: incident.Status.Alert.Severity,
	}
	NewWithT(t).Expect(b.Status().Update(t.Context(), incident)).To(Succeed())
}

// table is a pattern for the whole screen of a live table: its first line, and the rows.
func table(title string, rows ...string) string {
	const header = `NAME +STATE +SEVERITY +ACK +COUNT +OPENED +LAST-SEEN +TITLE`
	return `^` + title + ` +\d\d:\d\d:\d\d\n\n` + header + "\n" + strings.Join(rows, "\n") + `$`
}

// row is a pattern for the row of an Incident of a board.
func row(state, severity, acknowledged, opened, title string) string {
	return fmt.Sprintf(`mon-\w{6} +%s +%s +%s +1 +%s +%[4]s +%s`, state, severity, acknowledged, opened, title)
}

func TestLiveTable(t *testing.T) {
	for _, args := range [][]string{{"watch", "--all"}, {"get", "--watch", "--all"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			g := NewWithT(t)
			b := newBoard(t)
			b.open(t, "cert", "warning", 5*time.Hour, "Certificate ends\x1b[2J\x1b]0;x\x07 soon")
			disk := b.open(t, "disk", "critical", 7*time.Minute, "Disk full")
			b.resolve(t, b.open(t, "backup", "critical", 30*time.Hour, "Backup failed"))
			term := atTerminal(t, b.namespace, nil, 120, 24, args...)
			screen := func() string { return strings.Join(term.lines(), "\n") }
			const cert, backup = `Certificate ends\[2J\]0;x soon`, `Backup failed`

			g.Eventually(screen, awaitTimeout).Should(MatchRegexp(table("2 open, 3 total",
				row("Open", "critical", "-", "7m.*", "Disk full"), row("Open", "warning", "-", "5h.*", cert),
				row("Resolved", "critical", "-", "30h", backup))))
			g.Expect(term.screen.CursorVisible()).To(BeFalse())
			g.Expect(term.screen.Mode()&vt10x.ModeAltScreen).NotTo(BeZero(), "what was on the terminal stays there")
			g.Expect(term.colour("critical")).To(Equal(vt10x.LightRed), "bold red")
			g.Expect(term.colour("warning")).To(Equal(vt10x.Yellow))
			g.Expect(term.colour("Resolved")).To(Equal(vt10x.Green))

			// It keeps itself up to date, and in order.
			queue := b.open(t, "queue", "error", 2*time.Minute, "Queue stalls")
			b.acknowledge(t, disk)
			g.Eventually(screen, awaitTimeout).Should(MatchRegexp(table("3 open, 4 total",
				row("Open", "critical", "yes", "7m.*", "Disk full"), row("Open", "error", "-", "2m.*", "Queue stalls"),
				row("Open", "warning", "-", "5h.*", cert), row("Resolved", "critical", "-", "30h", backup))))
			b.resolve(t, disk)
			g.Expect(b.Delete(t.Context(), queue)).To(Succeed())
			g.Eventually(screen, awaitTimeout).Should(MatchRegexp(table("1 open, 3 total", row("Open", "warning", "-", "5h.*", cert),
				row("Resolved", "critical", "-", "30h", backup), row("Resolved", "critical", "yes", "7m.*", "Disk full"))))

			// It has room in a small terminal too: no line is broken, and what is not shown is counted.
			g.Expect(term.resize(60, 6)).To(Succeed())
			g.Eventually(screen, awaitTimeout).Should(MatchRegexp(
				`^1 open, 3 total +\S+\n\nNAME +STATE +SEVERITY +ACK +TITLE\nmon-\w{6} +Open +warning +- +Certificate ends.*\nmon-\w{6} .*Backup failed\nand 1 more$`))

			// Ctrl-C gives the terminal back, and so does q.
			g.Expect(term.press(map[string]string{"watch": "\x03", "get": "q"}[args[0]])).To(Succeed())
			g.Expect(term.wait()).To(Equal(0))
			g.Expect(term.screen.CursorVisible()).To(BeTrue())
			g.Expect(term.screen.Mode() & vt10x.ModeAltScreen).To(BeZero())
			g.Expect(screen()).NotTo(ContainSubstring("Backup"))
		})
	}
}

func TestLiveTableSaysThatItIsOutOfDate(t *testing.T) {
	g := NewWithT(t)
	b := newBoard(t)
	b.open(t, "disk", "critical", 7*time.Minute, "Disk full")
	proxy := startProxy(t)
	term := atTerminal(t, b.namespace, nil, 120, 24, "watch", "--server", proxy.URL)
	screen := func() string { return strings.Join(term.lines(), "\n") }
	g.Eventually(screen, awaitTimeout).Should(MatchRegexp(table("1 open", row("Open", "critical", "-", "7m.*", "Disk full"))))
	proxy.CloseClientConnections()
	proxy.Close()
	g.Eventually(screen, awaitTimeout).Should(MatchRegexp(`^1 open .*\nOut of date: .*\nNAME .*\n.*Disk full$`))
}

// A person who looks sees at once that an Alertmanager does not accept what is open.
func TestTablesSayThatNobodyIsTold(t *testing.T) {
	g := NewWithT(t)
	b := newBoard(t)
	disk := b.open(t, "disk", "critical", 7*time.Minute, "Disk full")
	disk.Status.Forwarding = &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingFailing, Time: v1alpha1.NewTimestamp(time.Now())}
	g.Expect(b.Status().Update(t.Context(), disk)).To(Succeed())
	b.open(t, "queue", "error", 2*time.Minute, "Queue stalls")
	for _, args := range [][]string{{"get"}, {"watch"}} {
		term := atTerminal(t, b.namespace, nil, 120, 24, args...)
		screen := func() string { return strings.Join(term.lines(), "\n") }
		const said = "Nobody is told of 1 open incident: no Alertmanager accepts what Tocsin forwards."
		g.Eventually(screen, awaitTimeout).Should(And(ContainSubstring(said), ContainSubstring("Queue stalls")))
		g.Expect(term.colour(said)).To(Equal(vt10x.LightRed), "bold red")
	}
}

func TestColours(t *testing.T) {
	b := newBoard(t)
	b.open(t, "disk", "critical", 7*time.Minute, "Disk full")
	for name, test := range map[string]struct {
		env      []string
		coloured bool
	}{
		"on a terminal there are colours":   {nil, true},
		"unless NO_COLOR says no":           {[]string{"NO_COLOR=1"}, false},
		"nor on a terminal that knows none": {[]string{"TERM=dumb"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			term := atTerminal(t, b.namespace, test.env, 120, 24, "get")
			g.Expect(term.wait()).To(Equal(0))
			g.Expect(strings.Join(term.lines(), "\n")).To(MatchRegexp(`^NAME .*\n` + row("Open", "critical", "-", "7m.*", "Disk full") + `$`))
			if test.coloured {
				g.Expect(term.colour("critical")).To(Equal(vt10x.LightRed))
			} else {
				g.Expect(term.colour("critical")).To(Equal(vt10x.DefaultFG))
			}
		})
	}
}
