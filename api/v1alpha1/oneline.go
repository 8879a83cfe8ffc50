package v1alpha1

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of the messages in an Incident, in characters and, as JSON, in bytes. A character may take six bytes: twenty
// messages must leave space for the rest of the Incident.
const (
	maxMessageChars = 256
	maxMessageBytes = 768
)

// ShortMessage returns a text as one printable line, short enough for Transition.message.
func ShortMessage(text string) string { return OneLine(text, maxMessageChars, maxMessageBytes) }

// OneLine makes one printable line of a text: white space becomes single spaces, control characters and
// those that change the direction of the text are removed. The line has at most maxChars characters, and maxBytes bytes
// as JSON; an ellipsis shows where it was cut.
func OneLine(text string, maxChars, maxBytes int) string {
	var line strings.Builder
	chars, size, space := 0, 0, false
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			space = line.Len() > 0
			continue
		case !isPrintable(r):
			continue
		}
		cost := encodedCost(r)
		need := 1
		if space {
			need, cost = 2, cost+1
		}
		// One character and its three bytes are left for the ellipsis.
		if chars+need > maxChars-1 || size+cost > maxBytes-3 {
			return line.String() + "…"
		}
		if space {
			line.WriteByte(' ')
			space = false
		}
		line.WriteRune(r)
		chars, size = chars+need, size+cost
	}
	return line.String()
}

// isPrintable says whether a character prints and leaves the direction of the text alone.
func isPrintable(r rune) bool {
	return !unicode.Is(unicode.Cc, r) && !unicode.Is(unicode.Bidi_Control, r)
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
