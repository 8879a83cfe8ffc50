package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// period is the flags for a time range.
type period struct {
	since    time.Duration
	from, to string
}

// addFlags adds the flags. usual is the value of --since if none is set.
func (p *period) addFlags(command *cobra.Command, usual time.Duration) {
	p.since = usual
	flags := command.Flags()
	durationVar(flags, &p.since, "since", "Select episodes that ended in the last time, such as 12h or 30d.")
	flags.StringVar(&p.from, "from", "",
		"Select episodes that ended at a time or later, such as 2026-05-04, \"2026-05-04 10:00\" or RFC 3339.")
	flags.StringVar(&p.to, "to", "", "Select episodes that ended before a time. A date includes the whole day. Default: now.")
	command.MarkFlagsMutuallyExclusive("since", "from")
}

// bounds returns the time range [from, to).
func (p *period) bounds(now time.Time) (from, to time.Time, err error) {
	to = now
	if p.to != "" {
		if to, err = parseTime(p.to, true); err != nil {
			return from, to, fmt.Errorf("--to %w", err)
		}
	}
	from = to.Add(-p.since)
	if p.from != "" {
		if from, err = parseTime(p.from, false); err != nil {
			return from, to, fmt.Errorf("--from %w", err)
		}
	}
	if !from.Before(to) {
		return from, to, errors.New("the time range is empty: --from must be before --to")
	}
	return from, to, nil
}

// parseTime parses a time in the local time zone, or with its own. For a date, end selects the end of the day.
func parseTime(text string, end bool) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	t, err := time.ParseInLocation(time.DateOnly, text, time.Local)
	if err != nil {
		return t, fmt.Errorf("%q is not a time such as 2026-05-04, \"2026-05-04 10:00\" or 2026-05-04T10:00:00Z", text)
	}
	if end {
		t = t.AddDate(0, 0, 1)
	}
	return t, nil
}
