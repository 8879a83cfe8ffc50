package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/live"
)

const (
	// tick is the interval at which a live table is drawn without changes, because of its ages.
	tick = time.Second
	// settle is how long changes are gathered before the table is drawn.
	settle = 100 * time.Millisecond
	// denialTicks is how many ticks in a row have a permission error before the command fails. An API server that has just started
	// denies everything.
	denialTicks = 4
	// quitKeys end a live table: q as in less, and Ctrl-C, which is an ordinary key in raw mode.
	quitKeys = "qQ\x03"
)

// follow prints the Incidents and their changes until ctx ends, which is not an error.
func (o *getOptions) follow(ctx context.Context, c *cluster) error {
	if err := o.checkList(ctx, c, &o.filter); err != nil {
		return err
	}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := make(chan live.Change)
	feed := live.Follow(c, o.filter.namespace(c), pruneForTable, func(change live.Change) {
		select {
		case changes <- change:
		case <-ctx.Done():
		}
	})
	tasks.Go(func() { feed.Run(ctx) })
	if o.screen.isTerminal() {
		return o.drawTable(ctx, feed, changes)
	}
	return o.printLines(ctx, feed, changes)
}

// outage tracks the error of a feed from tick to tick.
type outage struct {
	denials  int
	reported string // empty while there is none
}

// note counts a feed's error, and prints it when it changes or ends. It returns an error if the command should fail.
func (t *outage) note(problem error, to io.Writer) error {
	if live.Denied(problem) {
		if t.denials++; t.denials >= denialTicks {
			return fmt.Errorf("watching incidents: %w", problem)
		}
		return nil
	}
	t.denials = 0
	text := ""
	if problem != nil {
		text = fmt.Sprintf("error: watching incidents: %s; retrying", live.Sentence(problem))
	}
	if text != t.reported {
		t.reported = text
		_, _ = fmt.Fprintln(to, cmp.Or(text, "The watch is up to date again."))
	}
	return nil
}

// printLines prints a line for each Incident and for each change. It prints an Incident that no longer matches the filter, or was
// deleted, once more.
func (o *getOptions) printLines(ctx context.Context, feed *live.Feed, changes <-chan live.Change) error {
	table := o.newTable()
	table.reserve()
	table.printHeader()
	shown := map[types.UID]string{}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var failures outage
	for table.err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := failures.note(feed.Problem(), o.ErrOut); err != nil {
				return err
			}
		case change := <-changes:
			incident := change.Incident
			if change.Deleted {
				incident = deleted(incident)
			}
			matches := !change.Deleted && o.filter.matches(incident)
			digest := digestOf(incident)
			if last, was := shown[incident.UID]; (matches || was) && digest != last {
				table.printRows(incident)
			}
			if matches {
				shown[incident.UID] = digest
			} else {
				delete(shown, incident.UID)
			}
		}
	}
	return table.err
}

// digestOf returns what a row shows of an Incident, but for times. The status also changes in other fields, such as the ledger.
func digestOf(incident *v1alpha1.Incident) string {
	status := &incident.Status
	return fmt.Sprintf("%q", []string{string(status.State), string(status.Alert.Severity), acknowledgedBy(incident),
		string(live.Untold(incident)), fmt.Sprint(status.AlertCount), fold.AssigneeOf(status), status.Alert.Title})
}

// deleted returns a deleted Incident as a row shows it.
func deleted(incident *v1alpha1.Incident) *v1alpha1.Incident {
	gone := *incident
	gone.Status.State = "Deleted"
	return &gone
}

func (o *getOptions) drawTable(ctx context.Context, feed *live.Feed, changes <-chan live.Change) error {
	const (
		enter = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
		leave = "\x1b[?25h\x1b[?1049l"
	)
	s := o.screen
	ctx, restore := o.untilQuit(ctx)
	defer restore()
	s.printf(enter)
	defer func() { _, _ = fmt.Fprint(s.out, leave) }()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	settled := time.NewTimer(settle)
	defer settled.Stop()
	var failures outage
	for s.err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
			settled.Reset(settle)
			continue
		case <-settled.C:
		case <-ticker.C:
			if err := failures.note(feed.Problem(), io.Discard); err != nil {
				return err
			}
		}
		s.measure()
		s.printf("%s", o.frame(feed))
	}
	return s.err
}

// frame returns the whole screen: a summary, the feed's error, and as many rows as fit.
func (o *getOptions) frame(feed *live.Feed) string {
	const (
		home      = "\x1b[H"
		lineEnd   = "\x1b[K\r\n" // clears the rest of the previous frame's line
		screenEnd = "\x1b[J"
	)
	s := o.screen
	var incidents []*v1alpha1.Incident
	open := 0
	for _, incident := range feed.Incidents() {
		if o.filter.matches(incident) {
			incidents = append(incidents, incident)
			if incident.Status.State == v1alpha1.IncidentOpen {
				open++
			}
		}
	}
	slices.SortFunc(incidents, live.ByUrgency)
	title := fmt.Sprintf("%d open, %d total", open, len(incidents))
	if !o.filter.wants(v1alpha1.IncidentResolved) {
		title = fmt.Sprintf("%d open", open)
	}
	if !feed.Synced() {
		title = fmt.Sprintf("%d open, listing all …", open)
		if open == 0 {
			title = "Listing incidents …"
		}
	}
	lines := []string{
		s.styled(bold, cut(title, max(0, s.width-10))) + "  " + s.styled(dim, o.now().Format(time.TimeOnly)), "",
	}
	if problem := feed.Problem(); problem != nil {
		lines[1] = s.styled(boldRed, cut("Out of date: "+live.Sentence(problem), s.width))
	} else {
		lines[1] = s.styled(boldRed, cut(failingForwards(incidents), s.width))
	}
	rows := max(0, s.height-len(lines)-2) // without the header and the last line
	rest := max(0, len(incidents)-rows)
	incidents = incidents[:len(incidents)-rest]
	table := o.newTable()
	table.framed = true
	table.fit(incidents)
	lines = append(lines, table.header())
	for _, incident := range incidents {
		lines = append(lines, table.row(incident))
	}
	if rest > 0 {
		lines = append(lines, s.styled(dim, fmt.Sprintf("and %d more", rest)))
	}
	return home + strings.Join(lines, lineEnd) + "\x1b[K" + screenEnd
}

// untilQuit returns a context that ends when the user presses a quit key, and a function that restores the terminal.
func (p *plugin) untilQuit(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	file, isFile := p.In.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return ctx, cancel
	}
	usual, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return ctx, cancel // Ctrl-C still sends a signal
	}
	go func() {
		key := make([]byte, 1)
		for {
			// This goroutine runs until the process ends: nothing else reads from the terminal.
			if _, err := file.Read(key); err != nil {
				return
			}
			if bytes.ContainsAny(key, quitKeys) {
				cancel()
			}
		}
	}()
	return ctx, func() {
		cancel()
		_ = term.Restore(int(file.Fd()), usual)
	}
}
