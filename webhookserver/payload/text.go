package payload

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ellipsis ends a text that was cut.
const ellipsis = "…"

// textOf returns the text of a scalar: a string, or the literal of a number or boolean as it was sent. Objects
// and arrays have none.
func textOf(value any) (text string, scalar bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	case map[string]any, []any, nil:
		return "", false
	}
	return fmt.Sprint(value), true // Parse never makes it
}

// isBlank reports whether a text counts as absent.
func isBlank(s string) bool {
	return strings.TrimSpace(s) == ""
}

// SanitizeLine makes a text safe to print on one line of a terminal or log: line breaks and tabs become
// spaces, other control characters (C0, C1 and the bidirectional ones, which can make a line read as
// something else) are stripped, what is not UTF-8 becomes U+FFFD, and spaces around the text go.
func SanitizeLine(s string) string {
	return sanitize(s, ' ', ' ')
}

// sanitizeLines does what SanitizeLine does, for a text that may have line breaks and tabs.
func sanitizeLines(s string) string {
	return sanitize(strings.ReplaceAll(s, "\r\n", "\n"), '\n', '\t')
}

func sanitize(s string, lineBreak, tab rune) string {
	if isPlain(s) {
		return strings.TrimSpace(s)
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case isLineBreak(r):
			return lineBreak
		case r == '\t':
			return tab
		case isControl(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}

// isPlain reports whether s is all printable ASCII, as most texts are.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// isLineBreak reports the characters that end a line: LF, VT, FF, CR, NEL and Unicode's two separators.
func isLineBreak(r rune) bool {
	return '\n' <= r && r <= '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029'
}

// isControl reports C0, DEL, C1 and the bidirectional control characters.
func isControl(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// shorten cuts s to limit characters, the last of them an ellipsis, and reports whether it did.
func shorten(s string, limit int) (string, bool) {
	if len(s) <= limit || utf8.RuneCountInString(s) <= limit {
		return s, false
	}
	seen := 0
	for i := range s {
		if seen++; seen == limit {
			return s[:i] + ellipsis, true
		}
	}
	return s, false
}

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
