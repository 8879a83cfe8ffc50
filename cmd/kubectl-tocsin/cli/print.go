package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// What --color may be.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// style is how a text looks on a terminal: the parameters of an SGR sequence (ECMA-48, section 8.3.117).
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	alarm  style = "1;31"
	green  style = "32"
	yellow style = "33"
	blue   style = "34"
)

// severityStyles are the colours of the severities.
var severityStyles = map[v1alpha1.Severity]style{
	v1alpha1.SeverityCritical: alarm,
	v1alpha1.SeverityError:    red,
	v1alpha1.SeverityWarning:  yellow,
	v1alpha1.SeverityInfo:     blue,
}

// screen is where a command prints to. It remembers the first error, for the end.
type screen struct {
	out    io.Writer
	colors bool
	width  int // of the terminal in cells; 0: it is none
	height int
	err    error
}

// screen finds out what can be printed to.
func (p *plugin) screen() (*screen, error) {
	s := &screen{out: p.Out}
	file, isFile := p.Out.(*os.File)
	if isFile && term.IsTerminal(int(file.Fd())) {
		s.measure()
		s.colors = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" // https://no-color.org
	}
	switch p.color {
	case colorAuto:
	case colorAlways:
		s.colors = true
	case colorNever:
		s.colors = false
	default:
		return nil, fmt.Errorf("--color is %s, %s or %s", colorAuto, colorAlways, colorNever)
	}
	return s, nil
}

// isTerminal says whether somebody looks at a terminal.
func (s *screen) isTerminal() bool { return s.width > 0 }

// measure asks the terminal for its size, which may have changed.
func (s *screen) measure() {
	const usualWidth, usualHeight = 80, 24
	s.width, s.height = usualWidth, usualHeight
	if file, isFile := s.out.(*os.File); isFile {
		if width, height, err := term.GetSize(int(file.Fd())); err == nil && width > 0 && height > 0 {
			s.width, s.height = width, height
		}
	}
}

func (s *screen) printf(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.out, format, args...)
	}
}

// styled is a text in a style, where there are colours. The text must be safe already.
func (s *screen) styled(look style, text string) string {
	if !s.colors || look == plain || text == "" {
		return text
	}
	return "\x1b[" + string(look) + "m" + text + "\x1b[0m"
}

// safe makes a text that anybody may have written safe to print: on one line, without control characters.
func safe(text string) string { return payload.SanitizeLine(text) }

// safeLines is safe for a text of several lines.
func safeLines(text string) []string {
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(text), "\r\n", "\n"), "\n")
	for i, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		lines[i] = indent + safe(line)
	}
	return lines
}

// cut shortens a text to a number of cells.
func cut(text string, cells int) string {
	return runewidth.Truncate(text, cells, "…")
}

// pad lengthens a text to a number of cells.
func pad(text string, cells int) string {
	return text + strings.Repeat(" ", max(0, cells-runewidth.StringWidth(text)))
}

// machineOutput is -o: the formats for programs, of kubectl's own making, and none for people.
type machineOutput struct {
	*genericclioptions.PrintFlags
}

func newMachineOutput() machineOutput {
	return machineOutput{genericclioptions.NewPrintFlags("")}
}

// wanted says whether -o was given.
func (m machineOutput) wanted() bool { return *m.OutputFormat != "" }

// write prints an object as -o wants it.
func (m machineOutput) write(object runtime.Object, out io.Writer) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	printer, err := m.WithTypeSetter(scheme).ToPrinter()
	if err != nil {
		return err
	}
	if *m.OutputFormat == outputName && meta.IsListType(object) {
		return meta.EachListItem(object, func(item runtime.Object) error { return printer.PrintObj(item, out) })
	}
	return printer.PrintObj(object, out)
}

// outputName is the value of -o that gives resource/name.
const outputName = "name"
