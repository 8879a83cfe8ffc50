package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/cmd/kubectl-tocsin/live"
)

const (
	// tick is the interval at which a live table is drawn without changes, because of its ages.
	tick = time.Second
	// settle is how long changes are gathered before the table is drawn.
	settle = 100 * time.Millisecond
	// denialTicks is the number of successive ticks with a permission error before the command fails. An API server that
	// has just started denies everything.
	denialTicks = 4
)

// follow prints the Incidents and their changes until ctx ends, which is not an error.
func (o *getOptions) follow(ctx context.Context, c *cluster, table *incidentTable) error {
	// Fail now if listing does not work at all, instead of retrying forever.
	if err := live.Check(ctx, c, o.filter.namespace(c)); err != nil {
		return fmt.Errorf("listing incidents: %w", err)
	}
	if err := o.verify(ctx, c, &o.filter, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := make(chan live.Change)
	feed, err := live.Follow(c, o.filter.namespace(c), pruneForTable, func(change live.Change) {
		select {
		case changes <- change:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		feed.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	if table.screen.isTerminal() {
		return o.drawTable(ctx, feed, changes, table)
	}
	return o.printLines(ctx, feed, changes, table)
}

// outage tracks the error of a feed from tick to tick.
type outage struct {
	denials  int
	reported string
}

// note counts a feed's error. It returns an error if the command should fail.
func (t *outage) note(problem error) error {
	if !live.Denied(problem) {
		t.denials = 0
		return nil
	}
	t.denials++
	if t.denials < denialTicks {
		return nil
	}
	return fmt.Errorf("watching incidents: %w", problem)
}

// report prints a feed's error when it changes or ends.
func (t *outage) report(problem error, to io.Writer) {
	text := ""
	if problem != nil {
		text = live.Sentence(problem)
	}
	if text == t.reported || live.Denied(problem) && t.denials < denialTicks {
		return
	}
	t.reported = text
	if text == "" {
		_, _ = fmt.Fprintln(to, "The watch is up to date again.")
		return
	}
	_, _ = fmt.Fprintf(to, "error: watching incidents: %s; retrying\n", text)
}

// printLines prints a line for each Incident and for each change. It prints an Incident that no longer matches the
// filter once more.
func (o *getOptions) printLines(
	ctx context.Context, feed *live.Feed, changes <-chan live.Change, table *incidentTable,
) error {
	table.reserve()
	table.printHeader()
	shown := map[types.UID]string{}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	failures := &outage{}
	for table.screen.err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			problem := feed.Problem()
			if err := failures.note(problem); err != nil {
				return err
			}
			failures.report(problem, o.ErrOut)
		case change := <-changes:
			incident := change.Incident
			_, was := shown[incident.UID]
			if change.Deleted || !was && !o.filter.matches(incident) {
				delete(shown, incident.UID)
				continue
			}
			table.fit([]*v1alpha1.Incident{incident})
			// The status also changes in fields that the table does not show, such as the ledger.
			digest := fmt.Sprint(incident.Status.State, incident.Status.Alert.Severity, isAcknowledged(incident), isSilenced(incident),
				incident.Status.AlertCount, incident.Status.Alert.Title)
			if shown[incident.UID] != digest {
				table.screen.printf("%s\n", table.row(incident))
				shown[incident.UID] = digest
			}
			if !o.filter.matches(incident) {
				delete(shown, incident.UID)
			}
		}
	}
	return table.screen.err
}

// drawTable draws a live table on the terminal.
func (o *getOptions) drawTable(
	ctx context.Context, feed *live.Feed, changes <-chan live.Change, table *incidentTable,
) error {
	const (
		enter = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
		leave = "\x1b[?25h\x1b[?1049l"
	)
	s := table.screen
	ctx, restore := o.untilQuit(ctx)
	defer restore()
	s.printf(enter)
	defer func() { _, _ = fmt.Fprint(s.out, leave) }()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	settled := time.NewTimer(settle)
	defer settled.Stop()
	failures := &outage{}
	for s.err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
			settled.Reset(settle)
			continue
		case <-settled.C:
		case <-ticker.C:
			if err := failures.note(feed.Problem()); err != nil {
				return err
			}
		}
		s.measure()
		s.printf("%s", o.frame(feed, table))
	}
	return s.err
}

// frame returns the whole screen: a summary, the feed's error, and as many rows as fit.
func (o *getOptions) frame(feed *live.Feed, table *incidentTable) string {
	const (
		home      = "\x1b[H"
		lineEnd   = "\x1b[K\r\n" // clears the rest of the previous frame's line
		screenEnd = "\x1b[J"
	)
	s := table.screen
	var incidents []*v1alpha1.Incident
	open := 0
	all := namesOf(feed.Incidents())
	for _, incident := range feed.Incidents() {
		if o.filter.matches(incident) {
			incidents = append(incidents, incident)
			if incident.Status.State == v1alpha1.IncidentOpen {
				open++
			}
		}
	}
	slices.SortFunc(incidents, byUrgency)
	title := fmt.Sprintf("%d open, %d total", open, len(incidents))
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
	}
	rows := max(0, s.height-len(lines)-2) // without the header and the last line
	rest := max(0, len(incidents)-rows)
	incidents = incidents[:len(incidents)-rest]
	table.reset()
	table.shorten(all)
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
