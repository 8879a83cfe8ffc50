package payload

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ellipsis ends a text that was cut.
const ellipsis = "…"

// textOf is the text of a scalar: a string, or the literal of a number or boolean as it was sent. Objects
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
	// Not from Parse: any other Go value that encodes as a number or a string.
	var e encoder
	encoded := string(e.value(value))
	if strings.HasPrefix(encoded, "{") || strings.HasPrefix(encoded, "[") {
		return "", false
	}
	if unquoted, err := strconv.Unquote(encoded); err == nil {
		return unquoted, true
	}
	return encoded, true
}

// isBlank reports whether a text counts as absent.
func isBlank(s string) bool {
	return strings.TrimSpace(s) == ""
}

// SanitizeLine makes a text safe to print on one line of a terminal or log: line breaks and tabs become
// spaces, other control characters (C0, C1 and the bidirectional ones, which can make a line read as
// something else) are stripped, what is not UTF-8 becomes U+FFFD, and spaces around the text go.
func SanitizeLine(s string) string {
	if !isPlain(s, false) {
		s = strings.Map(lineRune, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return strings.TrimSpace(s)
}

// sanitizeLines is SanitizeLine for a text that may have line breaks and tabs.
func sanitizeLines(s string) string {
	if !isPlain(s, true) {
		s = strings.ToValidUTF8(s, "\uFFFD")
		s = strings.ReplaceAll(s, "\r\n", "\n")
		s = strings.Map(linesRune, s)
	}
	return strings.TrimSpace(s)
}

// isPlain reports whether s is all printable ASCII, as most texts are; lines allows line feeds and tabs too.
func isPlain(s string, lines bool) bool {
	for i := range len(s) {
		c := s[i]
		if lines && (c == '\n' || c == '\t') {
			continue
		}
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// lineRune is what becomes of a character on one line; -1 drops it.
func lineRune(r rune) rune {
	switch {
	case isLineBreak(r), r == '\t':
		return ' '
	case isControl(r):
		return -1
	}
	return r
}

// linesRune is what becomes of a character in a text of several lines; -1 drops it.
func linesRune(r rune) rune {
	switch {
	case isLineBreak(r):
		return '\n'
	case r == '\t':
		return r
	case isControl(r):
		return -1
	}
	return r
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

// cutBytes is the longest beginning of s in whole characters that takes at most limit bytes.
func cutBytes(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
