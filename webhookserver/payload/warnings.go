package payload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Warning tells the sender of an accepted payload what was not taken as sent.
type Warning struct {
	// Field is the field's name in the payload, with a dot before a key of a bag ("labels.env"); empty for
	// the payload as a whole.
	Field string `json:"field"`
	// Detail says what was done, in plain words.
	Detail string `json:"detail"`
}

// noMatch ends the warning that an alert without a dedup_key has no effect.
const noMatch = "matches no incident without it"

// IsNoMatch reports whether the warning says that the alert has no effect because it has no dedup_key.
func (w Warning) IsNoMatch() bool {
	return w.Field == "dedup_key" && strings.HasSuffix(w.Detail, noMatch)
}

// warnings collects the warnings of one payload.
type warnings []Warning

// addf adds a warning about a field. The field's name may be of the sender's making.
func (w *warnings) addf(field, format string, args ...any) {
	*w = append(*w, Warning{Field: Shorten(v1alpha1.SanitizeLine(field), maxQuoted), Detail: fmt.Sprintf(format, args...)})
}

// sortFrom puts the warnings from position start on in order: those that came from walking a map.
func (w warnings) sortFrom(start int) {
	slices.SortStableFunc(w[start:], func(a, b Warning) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Detail, b.Detail))
	})
}

// list returns the warnings for the response: not more than maxWarnings.
func (w warnings) list() []Warning {
	if len(w) <= maxWarnings {
		return w
	}
	rest := len(w) - (maxWarnings - 1)
	return append(slices.Clip(w[:maxWarnings-1]), Warning{Detail: fmt.Sprintf("%d more warnings are left out", rest)})
}

// quote makes the sender's text fit for a warning.
func quote(s string) string { return `"` + Shorten(v1alpha1.SanitizeLine(s), maxQuoted) + `"` }

// summary lists names of the sender's making, the first few of them.
func summary(names []string) string {
	shown := make([]string, 0, maxNamesListed)
	for _, name := range names[:min(len(names), maxNamesListed)] {
		shown = append(shown, quote(name))
	}
	text := strings.Join(shown, ", ")
	if rest := len(names) - len(shown); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}
