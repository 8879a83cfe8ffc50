package payload

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

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
	}
	return "", false
}

// isBlank reports whether a text counts as absent.
func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

// Shorten cuts s to limit characters, the last of them an ellipsis.
func Shorten(s string, limit int) string {
	if len(s) <= limit || utf8.RuneCountInString(s) <= limit {
		return s
	}
	seen := 0
	for i := range s {
		if seen++; seen == limit {
			return s[:i] + "…"
		}
	}
	return s
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
