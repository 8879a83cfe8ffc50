package payload

import (
	"slices"
	"time"
)

// Names returns the keys of a payload that a field is read from: its own, then its aliases. Without a rule for
// the field there are none.
func Names(field string) []string {
	for _, r := range rules {
		if r.field == field {
			return append([]string{field}, r.aliases...)
		}
	}
	if field == customField || slices.Contains(bagFields, field) {
		return []string{field}
	}
	return nil
}

// ParseUnix reads a Unix time in seconds, milliseconds, microseconds or nanoseconds from 2000 to 2100, as
// the rules for starts_at and ends_at do.
func ParseUnix(text string) (time.Time, bool) {
	number, ok := unixNumber(text)
	if !ok || number.float == 0 {
		return time.Time{}, false
	}
	return number.time()
}
