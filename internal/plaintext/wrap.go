package plaintext

import (
	"strings"

	"github.com/mattn/go-runewidth"
)

// Wrap breaks a line at spaces, so that no part is wider than width unless it is a single word.
func Wrap(line string, width int) string {
	var lines []string
	current := ""
	for i, word := range strings.Split(line, " ") {
		switch {
		case i == 0:
			current = word
		case runewidth.StringWidth(current)+1+runewidth.StringWidth(word) > width:
			lines = append(lines, current)
			current = word
		default:
			current += " " + word
		}
	}
	return strings.Join(append(lines, current), "\n")
}
