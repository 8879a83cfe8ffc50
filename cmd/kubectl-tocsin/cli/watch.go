package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	if err := c.List(ctx, &v1alpha1.IncidentList{}, client.InNamespace(o.filter.namespace(c)), client.Limit(1)); err != nil {
		return fmt.Errorf("listing incidents: %w", err)
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
	return o.printLines(ctx, changes, table)
}

// printLines prints a line for each Incident that there is and for each change of one. An Incident that was
// wanted and is not any more is printed once more, as it is now.
func (o *getOptions) printLines(ctx context.Context, changes <-chan live.Change, table *incidentTable) error {
	table.reserve()
	table.screen.printf("%s\n", table.header())
	shown := map[types.UID]string{}
	for table.screen.err == nil {
		select {
		case <-ctx.Done():
			return nil
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
	s.printf(enter)
	defer func() { _, _ = fmt.Fprint(s.out, leave) }()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	settled := time.NewTimer(settle)
	defer settled.Stop()
	for s.err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
			settled.Reset(settle)
			continue
		case <-settled.C:
		case <-ticker.C:
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
		lines[1] = s.styled(alarm, cut("Out of date: "+safe(problem.Error()), s.width))
	}
	rows := max(0, s.height-len(lines)-2) // less the header and the last line
	rest := max(0, len(incidents)-rows)
	incidents = incidents[:len(incidents)-rest]
	table.reset()
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
