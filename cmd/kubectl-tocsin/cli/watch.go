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
	// tick is how often a live table is drawn when nothing happens: ages grow.
	tick = time.Second
	// settle is how long a burst of changes is waited for before the table is drawn.
	settle = 100 * time.Millisecond
)

// follow prints what there is and what changes until ctx ends: the end of watching is no error.
func (o *getOptions) follow(ctx context.Context, c *cluster, table *incidentTable) error {
	// What does not work at all is an error now, not something to try for ever.
	if err := live.Check(ctx, c, o.filter.namespace(c)); err != nil {
		return fmt.Errorf("listing incidents: %w", err)
	}
	if err := o.verify(ctx, c, &o.filter, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := make(chan live.Change)
	feed, err := live.Follow(c, o.filter.namespace(c), nil, func(change live.Change) {
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

// denialTicks is for how many ticks in a row the API server has to deny the watch before the command gives up: a
// starting API server denies everything for a moment.
const denialTicks = 4

// outage follows what goes wrong with a feed, tick by tick.
type outage struct {
	denials int
	told    string
}

// note takes in a feed's problem. Its error is one that ends the command.
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

// tell says on a stream what goes wrong, once, and when it is over.
func (t *outage) tell(problem error, to io.Writer) {
	text := ""
	if problem != nil {
		text = live.Sentence(problem)
	}
	if text == t.told || live.Denied(problem) && t.denials < denialTicks {
		return
	}
	t.told = text
	if text == "" {
		_, _ = fmt.Fprintln(to, "The watch is up to date again.")
		return
	}
	_, _ = fmt.Fprintf(to, "error: watching incidents: %s; trying again\n", text)
}

// printLines prints a line for each Incident that there is and for each change of one. An Incident that was
// wanted and is not any more is printed once more, as it is now.
func (o *getOptions) printLines(
	ctx context.Context, feed *live.Feed, changes <-chan live.Change, table *incidentTable,
) error {
	table.reserve()
	table.printHeader()
	shown := map[types.UID]string{}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	trouble := &outage{}
	for table.screen.err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			problem := feed.Problem()
			if err := trouble.note(problem); err != nil {
				return err
			}
			trouble.tell(problem, o.ErrOut)
		case change := <-changes:
			incident := change.Incident
			_, was := shown[incident.UID]
			if change.Gone || !was && !o.filter.wants(incident) {
				delete(shown, incident.UID)
				continue
			}
			table.fit([]*v1alpha1.Incident{incident})
			// The ledger changes too, when nothing does that is shown.
			digest := fmt.Sprint(incident.Status.State, incident.Status.Alert.Severity, isAcknowledged(incident),
				incident.Status.AlertCount, incident.Status.Alert.Title)
			if shown[incident.UID] != digest {
				table.screen.printf("%s\n", table.row(incident))
				shown[incident.UID] = digest
			}
			if !o.filter.wants(incident) {
				delete(shown, incident.UID)
			}
		}
	}
	return table.screen.err
}

// drawTable keeps a table on the terminal up to date.
func (o *getOptions) drawTable(
	ctx context.Context, feed *live.Feed, changes <-chan live.Change, table *incidentTable,
) error {
	const (
		enter = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
		leave = "\x1b[?25h\x1b[?1049l"
	)
	s := table.screen
	ctx, giveBack := o.untilQuit(ctx)
	defer giveBack()
	s.printf(enter)
	defer func() { _, _ = fmt.Fprint(s.out, leave) }()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	settled := time.NewTimer(settle)
	defer settled.Stop()
	trouble := &outage{}
	for s.err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
			settled.Reset(settle)
			continue
		case <-settled.C:
		case <-ticker.C:
			if err := trouble.note(feed.Problem()); err != nil {
				return err
			}
		}
		s.measure()
		s.printf("%s", o.frame(feed, table))
	}
	return s.err
}

// frame is the whole screen: a line that says what there is, the table, as much of it as there is room for,
// and what is wrong.
func (o *getOptions) frame(feed *live.Feed, table *incidentTable) string {
	const (
		home      = "\x1b[H"
		lineEnd   = "\x1b[K\r\n" // clears what an earlier frame had there
		screenEnd = "\x1b[J"
	)
	s := table.screen
	var incidents []*v1alpha1.Incident
	open := 0
	all := namesOf(feed.Incidents())
	for _, incident := range feed.Incidents() {
		if o.filter.wants(incident) {
			incidents = append(incidents, incident)
			if incident.Status.State == v1alpha1.IncidentOpen {
				open++
			}
		}
	}
	slices.SortFunc(incidents, byUrgency)
	title := fmt.Sprintf("%d open, %d in all", open, len(incidents))
	if !feed.Synced() {
		title = "Listing incidents …"
	}
	lines := []string{
		s.styled(bold, cut(title, max(0, s.width-10))) + "  " + s.styled(dim, o.now().Format(time.TimeOnly)), "",
	}
	if problem := feed.Problem(); problem != nil {
		lines[1] = s.styled(alarm, cut("Out of date: "+live.Sentence(problem), s.width))
	}
	rows := max(0, s.height-len(lines)-2) // less the header and the last line
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
