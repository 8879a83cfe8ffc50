package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// style holds the parameters of an SGR sequence (ECMA-48, section 8.3.117).
type style string

const (
	plain   style = ""
	bold    style = "1"
	dim     style = "2"
	red     style = "31"
	boldRed style = "1;31"
	green   style = "32"
	yellow  style = "33"
	blue    style = "34"
)

var severityStyles = map[v1alpha1.Severity]style{
	v1alpha1.SeverityCritical: boldRed,
	v1alpha1.SeverityError:    red,
	v1alpha1.SeverityWarning:  yellow,
	v1alpha1.SeverityInfo:     blue,
}

// screen is the output of a command. It remembers the first write error in err.
type screen struct {
	out    io.Writer
	colors bool
	width  int // of the terminal in cells; 0 if out is not a terminal
	height int
	err    error
}

// newScreen returns a screen with the capabilities of out and the value of --color.
func newScreen(out io.Writer, color string) *screen {
	s := &screen{out: out}
	file, isFile := out.(*os.File)
	if isFile && term.IsTerminal(int(file.Fd())) {
		s.measure()
		s.colors = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" // https://no-color.org
	}
	if color != colorAuto {
		s.colors = color == colorAlways
	}
	return s
}

func (s *screen) isTerminal() bool { return s.width > 0 }

// measure updates the size, which changes when the user resizes the terminal.
func (s *screen) measure() {
	const defaultWidth, defaultHeight = 80, 24
	s.width, s.height = defaultWidth, defaultHeight
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

// styled returns a sanitized text in a style, if colors are on.
func (s *screen) styled(look style, text string) string {
	if !s.colors || look == plain || text == "" {
		return text
	}
	return "\x1b[" + string(look) + "m" + text + "\x1b[0m"
}

// safe sanitizes untrusted text for the terminal: one line without control characters.
func safe(text string) string { return plaintext.SanitizeLine(text) }

// safeLines sanitizes text of several lines.
func safeLines(text string) []string {
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(text), "\r\n", "\n"), "\n")
	for i, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		lines[i] = indent + safe(line)
	}
	return lines
}

func cut(text string, cells int) string {
	return runewidth.Truncate(text, cells, "…")
}

// wrap breaks a text at spaces so that it fits the terminal. The text begins after indent cells, and so does each further line.
func (s *screen) wrap(text string, indent int) string {
	if !s.isTerminal() {
		return text
	}
	return strings.ReplaceAll(plaintext.Wrap(text, s.width-indent), "\n", "\n"+strings.Repeat(" ", indent))
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

const (
	// progressDelay is how long a read takes before its progress is shown.
	progressDelay    = time.Second
	progressInterval = 100 * time.Millisecond

	eraseLine = "\r\x1b[K"
)

// progress shows on stderr how far a read has come, if the read takes long. Nil shows nothing.
type progress struct {
	out   io.Writer
	now   func() time.Time
	next  time.Time // of the next update
	shown bool
}

// newProgress returns nil if stderr is no terminal.
func (p *plugin) newProgress() *progress {
	file, isFile := p.ErrOut.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &progress{out: file, now: time.Now, next: time.Now().Add(progressDelay)}
}

func (p *progress) update(format string, args ...any) {
	if p == nil || p.now().Before(p.next) {
		return
	}
	p.next, p.shown = p.now().Add(progressInterval), true
	_, _ = fmt.Fprintf(p.out, eraseLine+format, args...)
}

// clear removes the line, so that other text can be printed.
func (p *progress) clear() {
	if p != nil && p.shown {
		_, _ = io.WriteString(p.out, eraseLine)
		p.shown = false
	}
}
