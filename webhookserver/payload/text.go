package payload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// TextOf returns the text of a scalar: a string, or the literal of a number or boolean as it was sent. Objects, arrays
// and null have none.
func TextOf(value any) (text string, scalar bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

// CutBytes returns the longest beginning of s in whole characters that takes at most limit bytes.
func CutBytes(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// Warning tells the sender of an accepted payload what was not taken as sent.
type Warning struct {
	// Field is the field's name in the payload, with a dot before a key of a bag ("labels.env"); empty for the payload as a whole.
	Field string `json:"field"`
	// Detail says what was done, in plain words.
	Detail string `json:"detail"`
	// Reason tells of it without the sender's text; 0 if nothing does.
	Reason Reason `json:"-"`
}

type warnings []Warning

// add adds a warning about a field. The field's name may be of the sender's making.
func (w *warnings) add(reason Reason, field string, args ...any) {
	*w = append(*w, reason.Warn(field, args...))
}

func (w *warnings) addf(format string, args ...any) {
	*w = append(*w, Warning{Detail: fmt.Sprintf(format, args...)})
}

// sort puts warnings in order that came from walking a map.
func (w warnings) sort() {
	slices.SortStableFunc(w, func(a, b Warning) int {
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
func quote(s string) string {
	return `"` + plaintext.Shorten(plaintext.SanitizeLine(s), maxQuoted) + `"`
}

// summary lists names of the sender's making, the first few of them.
func summary(names []string) string {
	var shown []string
	for _, name := range names[:min(len(names), maxNamesListed)] {
		shown = append(shown, quote(name))
	}
	text := strings.Join(shown, ", ")
	if rest := len(names) - len(shown); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}
