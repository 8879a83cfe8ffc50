package payload

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// timeLayouts are RFC 3339 and its common variants, after a space or a lower-case t between date and time has
// become a T. All of them name their zone: a local time of an unknown place, read as UTC, could lie hours
// in the past, and the alert would pass for a late duplicate. (time.Parse takes a fraction of a second
// after any seconds.)
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

const unreadable = "%s cannot be read as a time with its zone; it is kept in custom%s"

// andReceiptCounts ends the warning about a time that the time of receipt replaces.
const andReceiptCounts = " and the time of receipt counts"

// readStartsAt reads when the trouble began.
func readStartsAt(n *normaliser, name string, value any, text string) bool {
	return n.readTime(&n.alert.StartsAt, name, value, text, andReceiptCounts)
}

// readEndsAt reads when the trouble ended, or when it will count as ended.
func readEndsAt(n *normaliser, name string, value any, text string) bool {
	return n.readTime(&n.alert.EndsAt, name, value, text, andReceiptCounts)
}

// readLeaseEndsAt reads until when a firing alert is valid unless it is repeated. Only a firing alert has a lease.
func readLeaseEndsAt(n *normaliser, name string, value any, text string) bool {
	var end *v1alpha1.Timestamp
	if !n.readTime(&end, name, value, text, "") {
		return false
	}
	if n.alert.Status == v1alpha1.AlertFiring {
		n.alert.LeaseEndsAt = end
	}
	return true
}

// readTime reads a time. otherwise is what the warning says about the time used if it is unreadable.
func (n *normaliser) readTime(place **v1alpha1.Timestamp, name string, value any, text, otherwise string) bool {
	t, ok := parseTime(text)
	if !ok {
		n.keep(name, name, value)
		n.warnings.addf(name, unreadable, quote(text), otherwise)
		return false
	}
	if !t.IsZero() {
		stamp := v1alpha1.NewTimestamp(t)
		*place = &stamp
	}
	return true
}

// startsWhenReceived lets the trouble begin at the time of receipt.
func startsWhenReceived(n *normaliser) {
	stamp := v1alpha1.NewTimestamp(n.received)
	n.alert.StartsAt = &stamp
	n.guessedStart = true
}

// endsWhenReceived lets the trouble end at the time of receipt, if the alert says that it has ended.
func endsWhenReceived(n *normaliser) {
	if n.alert.Status == v1alpha1.AlertResolved {
		stamp := v1alpha1.NewTimestamp(n.received)
		n.alert.EndsAt = &stamp
	}
}

// settleTimes drops an end that lies before the start. A start that was only guessed gives way instead.
func (n *normaliser) settleTimes() {
	starts, ends := n.alert.StartsAt, n.alert.EndsAt
	if starts == nil || ends == nil || !ends.Before(starts.Time) {
		return
	}
	if n.guessedStart {
		n.alert.StartsAt = nil
		return
	}
	n.alert.EndsAt = nil
	n.warnings.addf("ends_at", "it is before starts_at and was dropped")
}

// parseTime reads a time in one of timeLayouts or as a Unix time. The zero time of year 1, and a Unix time
// of 0, are how tools write "no time": they give a zero time.
func parseTime(text string) (time.Time, bool) {
	text = strings.TrimSpace(text)
	if number, ok := unixNumber(text); ok {
		return number.time()
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

// unixTime is a number that may be a Unix time: its whole part, and the nearest float when it has a
// fraction or an exponent.
type unixTime struct {
	whole int64
	float float64
}

func unixNumber(text string) (unixTime, bool) {
	if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
		return unixTime{whole: whole, float: float64(whole)}, true
	}
	if text == "" || strings.Trim(text, numberBytes) != "" {
		return unixTime{}, false
	}
	float, err := strconv.ParseFloat(text, 64)
	if err != nil || math.Abs(float) >= math.MaxInt64 {
		return unixTime{}, false
	}
	return unixTime{whole: int64(float), float: float}, true
}

// time finds the unit from the size of the number.
func (u unixTime) time() (time.Time, bool) {
	if u.float == 0 {
		return time.Time{}, true
	}
	for unit := int64(1); unit <= 1e9; unit *= 1000 {
		if u.whole/unit < minUnix || u.whole/unit >= maxUnix {
			continue
		}
		fraction := u.float - float64(u.whole) // of a unit; 0 for a whole number
		rest := u.whole % unit * (1e9 / unit)
		nanos := rest + int64(math.Round(fraction*1e6)*1e3)/unit
		return time.Unix(u.whole/unit, nanos), true
	}
	return time.Time{}, false
}
