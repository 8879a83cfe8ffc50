package payload

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// timeLayouts are RFC 3339 and its common variants, after a space or a lower-case t between date and time has become a T. All
// of them name their zone: a local time of an unknown place, read as UTC, could lie hours in the past, and the alert would
// pass for a late duplicate. (time.Parse takes a fraction of a second after any seconds.)
var timeLayouts = []string{
	time.RFC3339,
	"2006-01-02T15:04:05Z0700",
	"2006-01-02T15:04:05Z07",
	"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04:05 Z07:00",
	"2006-01-02T15:04:05 Z0700",
	"2006-01-02T15:04:05 UTC",
	"2006-01-02T15:04:05 -0700 MST",  // how Go prints a time
	"Mon, 2 Jan 2006 15:04:05 -0700", // RFC 5322; a day of one digit or two
	"Mon, 2 Jan 2006 15:04:05 GMT",   // RFC 9110
}

// Unix times count from 2000 to 2100 only: it tells seconds from milliseconds and finer units, and keeps
// numbers that are no Unix times (20240115, a duration) from being read as such.
const (
	minUnix = 946_684_800
	maxUnix = 4_102_444_800
)

// andReceiptCounts ends the warning about a time that the time of receipt replaces.
const andReceiptCounts = " and the time of receipt counts"

// readTime reads a time. otherwise is what the warning says about the time used if it is unreadable.
func readTime(otherwise string, place func(*v1alpha1.Alert) **v1alpha1.Timestamp) reader {
	return func(n *normaliser, name string, value any, text string) bool {
		t, ok := parseTime(text)
		if !ok {
			n.keep(name, name, value)
			n.warnings.add(unreadableTime, name, quote(text), otherwise)
			return false
		}
		if !t.IsZero() {
			*place(&n.alert) = new(v1alpha1.NewTimestamp(t))
		}
		return true
	}
}

// startsWhenReceived lets the trouble begin at the time of receipt.
func startsWhenReceived(n *normaliser) {
	n.alert.StartTime = new(v1alpha1.NewTimestamp(n.received))
	n.guessedStart = true
}

// endsWhenReceived lets the trouble end at the time of receipt, if the alert says that it has ended.
func endsWhenReceived(n *normaliser) {
	if n.alert.Status == v1alpha1.AlertResolved {
		n.alert.EndTime = new(v1alpha1.NewTimestamp(n.received))
	}
}

// maxLead is how far ahead of its receipt a firing alert may begin without a warning.
const maxLead = 5 * time.Minute

// settleTimes warns of a start far ahead. It drops the expiry of an alert that is not firing, and an end that lies before the
// start. A start that was only guessed gives way instead.
func (n *normaliser) settleTimes() {
	starts, ends := n.alert.StartTime, n.alert.EndTime
	if n.alert.Status != v1alpha1.AlertFiring {
		n.alert.ExpiryTime = nil
	} else if starts != nil {
		if lead := starts.Sub(n.received); lead > maxLead {
			n.warnings.add(startsAhead, "starts_at", strings.TrimSuffix(lead.Round(time.Minute).String(), "0s"))
		}
	}
	switch {
	case starts == nil, ends == nil, !ends.Before(starts.Time):
	case n.guessedStart:
		n.alert.StartTime = nil
	default:
		n.alert.EndTime = nil
		n.warnings.add(endsBeforeStart, "ends_at")
	}
}

// parseTime reads a time in one of timeLayouts or as a Unix time. The zero time of year 1, and a Unix time
// of 0, are how tools write "no time": they give a zero time.
func parseTime(text string) (time.Time, bool) {
	text = strings.TrimSpace(text)
	if t, isNumber, ok := parseUnix(text); isNumber {
		return t, ok
	}
	if len(text) > 10 && text[4] == '-' && (text[10] == ' ' || text[10] == 't') {
		text = text[:10] + "T" + text[11:]
	}
	if strings.HasSuffix(text, "z") {
		text = text[:len(text)-1] + "Z"
	}
	for _, layout := range timeLayouts {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		t = t.UTC()
		if t.Year() <= 1 {
			return time.Time{}, true
		}
		return t, t.Year() <= 9999
	}
	return time.Time{}, false
}

// ParseUnix reads a Unix time in seconds, milliseconds, microseconds or nanoseconds from 2000 to 2100, as
// the rules for starts_at and ends_at do.
func ParseUnix(text string) (time.Time, bool) {
	t, _, ok := parseUnix(text)
	return t, ok && !t.IsZero()
}

// parseUnix finds the unit of a Unix time from the size of the number. The time of 0 is the zero time.
func parseUnix(text string) (t time.Time, isNumber, ok bool) {
	whole, err := strconv.ParseInt(text, 10, 64)
	float := float64(whole)
	if err != nil {
		float, err = strconv.ParseFloat(text, 64)
		if err != nil || strings.Trim(text, numberBytes) != "" || math.Abs(float) >= math.MaxInt64 {
			return t, false, false
		}
		whole = int64(float)
	}
	if float == 0 {
		return t, true, true
	}
	for unit := int64(1); unit <= 1e9; unit *= 1000 {
		if whole/unit < minUnix || whole/unit >= maxUnix {
			continue
		}
		fraction := float - float64(whole) // of a unit; 0 for a whole number
		rest := whole % unit * (1e9 / unit)
		nanos := rest + int64(math.Round(fraction*1e6)*1e3)/unit
		return time.Unix(whole/unit, nanos), true, true
	}
	return t, true, false
}
