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
		var isDate bool
		if to, isDate, err = parseTime(p.to); err != nil {
			return from, to, fmt.Errorf("--to %w", err)
		}
		if isDate {
			to = to.AddDate(0, 0, 1)
		}
	}
	from = to.Add(-p.since)
	if p.from != "" {
		if from, _, err = parseTime(p.from); err != nil {
			return from, to, fmt.Errorf("--from %w", err)
		}
	}
	if !from.Before(to) {
		return from, to, errors.New("the time range is empty: --from must be before --to")
	}
	return from, to, nil
}

// parseTime parses a time in the local time zone, or with its own, or a date.
func parseTime(text string) (t time.Time, isDate bool, err error) {
	for _, layout := range []string{
		time.DateOnly, time.RFC3339, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04",
	} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, layout == time.DateOnly, nil
		}
	}
	return t, false, fmt.Errorf("%q is not a time such as 2026-05-04, \"2026-05-04 10:00\" or 2026-05-04T10:00:00Z", text)
}
