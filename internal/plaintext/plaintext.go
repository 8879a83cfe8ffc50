// Package plaintext makes texts of others safe to print, and short lines of them and of durations.
package plaintext

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of the texts in an Incident's timeline, in characters and, as JSON, in bytes. A character may take six bytes: twenty
// entries must leave space for the rest of the Incident. An entry with a comment has a short message.
const (
	maxMessageChars = 256
	maxMessageBytes = 768
	maxNameBytes    = 256
	maxCommentBytes = 512
)

// ShortMessage returns a text as one printable line, short enough for Transition.message.
func ShortMessage(text string) string { return OneLine(text, maxMessageChars, maxMessageBytes) }

// ShortName returns the name of a user as one printable line, short enough for Transition.by.
func ShortName(name string) string { return OneLine(name, maxMessageChars, maxNameBytes) }

// ShortComment returns a comment as one printable line, short enough for Transition.comment.
func ShortComment(text string) string { return OneLine(text, maxMessageChars, maxCommentBytes) }

// Few lists names, sorted, so many at most, and how many more there are.
func Few(names []string, most int) string {
	few := slices.Sorted(slices.Values(names))
	if more := len(few) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(few[:most], ", "), more)
	}
	return strings.Join(few, ", ")
}

// OneLine makes one printable line of a text: SanitizeLine, with single spaces. The line has at most maxChars
// characters, and maxBytes bytes as JSON; an ellipsis shows where it was cut.
func OneLine(text string, maxChars, maxBytes int) string {
	line := strings.Join(strings.Fields(SanitizeLine(text)), " ")
	chars, size := 0, 0
	for at, r := range line {
		chars, size = chars+1, size+encodedCost(r)
		// One character and its three bytes are left for the ellipsis.
		if chars > maxChars-1 || size > maxBytes-3 {
			return strings.TrimRight(line[:at], " ") + "…"
		}
	}
	return line
}

// SanitizeLine makes a text safe to print on one line of a terminal or log: line breaks and tabs become
// spaces, other control characters (C0, C1 and the bidirectional ones, which can make a line read as
// something else) are stripped, what is not UTF-8 becomes U+FFFD, and spaces around the text go.
func SanitizeLine(s string) string {
	return sanitize(s, ' ', ' ')
}

// SanitizeText does what SanitizeLine does, for a text that may have line breaks and tabs.
func SanitizeText(s string) string {
	return sanitize(strings.ReplaceAll(s, "\r\n", "\n"), '\n', '\t')
}

func sanitize(s string, lineBreak, tab rune) string {
	if !isPlain(s) {
		s = strings.Map(func(r rune) rune {
			switch {
			case isLineBreak(r):
				return lineBreak
			case r == '\t':
				return tab
			case isControl(r):
				return -1
			}
			return r
		}, strings.ToValidUTF8(s, "\uFFFD"))
	}
	if trimmed := strings.TrimSpace(s); len(trimmed) < len(s) {
		return strings.Clone(trimmed) // or a short text would keep a long one in memory
	}
	return s
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

// encodedCost is how many bytes a character takes in JSON as Go's encoder writes it.
func encodedCost(r rune) int {
	switch r {
	case '<', '>', '&':
		return 6
	case '"', '\\':
		return 2
	default:
		return utf8.RuneLen(r)
	}
}

// Duration returns a duration as people write it: 2h, not 2h0m0s.
func Duration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

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
