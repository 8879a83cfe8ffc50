package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/tocsin-dev/tocsin/controllers/archive/records"
)

const (
	// progressDelay is how long a read takes before its progress is shown.
	progressDelay = time.Second
	// progressInterval is the minimum interval of updates.
	progressInterval = 100 * time.Millisecond
	progressWidth    = 30

	eraseLine = "\r\x1b[K"
)

// progress shows on stderr how far a read has come, if stderr is a terminal and the read takes long. Nil shows nothing.
type progress struct {
	out   io.Writer // nil if stderr is not a terminal
	now   func() time.Time
	next  time.Time // of the next update
	shown bool
	count int // of listed Incidents
}

func (p *plugin) newProgress() *progress {
	shows := &progress{now: time.Now, next: time.Now().Add(progressDelay)}
	if file, isFile := p.ErrOut.(*os.File); isFile && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" {
		shows.out = file
	}
	return shows
}

// list counts listed Incidents.
func (p *progress) list(incidents int) {
	if p != nil {
		p.count += incidents
		p.update("Listed %d incidents …", p.count)
	}
}

// reset counts anew.
func (p *progress) reset() {
	if p != nil {
		p.count = 0
	}
}

// read shows how much of an archive has been read.
func (p *progress) read(of records.Progress) {
	part := float64(of.Bytes) / float64(max(1, of.BytesTotal))
	full := min(progressWidth, int(part*progressWidth))
	const mebibyte = 1 << 20
	p.update("%s%s %3.0f%% of %.1f MiB, %d of %d objects", strings.Repeat("█", full), strings.Repeat("░", progressWidth-full),
		part*100, float64(of.BytesTotal)/mebibyte, of.Objects, of.ObjectsTotal)
}

// update writes the line, if it is time.
func (p *progress) update(format string, args ...any) {
	if p.out == nil || p.now().Before(p.next) {
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
