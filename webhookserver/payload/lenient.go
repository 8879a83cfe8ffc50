package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// maxRepairGrowth bounds how many bytes a body may grow when it is mended.
const maxRepairGrowth = 64 << 10

const (
	rawControl = iota
	bareBackslash
	trailingComma
)

// flaws are what templates that people write by hand get wrong, and what it is read as. Each leaves no doubt about which keys
// and values there are: a bare quotation mark in a string is none of them.
var flaws = [...]string{
	rawControl:    "a control character in a string, such as a line feed, was read as if it were escaped",
	bareBackslash: "a backslash that escapes nothing was read as itself",
	trailingComma: "a comma before a closing bracket was left out",
}

// mender walks over a body, and writes it without its flaws.
type mender struct {
	body, text []byte
	first      [len(flaws)]int // where each flaw is found first, counted from 1
	count      [len(flaws)]int

	inString bool
	comma    int  // the place in the text of one that is between a value and nothing but spaces; -1: none
	last     byte // that is no space
}

// mend returns a body without flaws, which need not be JSON. ok is false if it has none, or would grow too much.
func mend(body []byte) (m *mender, ok bool) {
	m = &mender{body: body, text: make([]byte, 0, len(body)+bytes.MinRead), comma: -1}
	for i := 0; i < len(body); {
		if m.inString {
			i += m.within(i)
		} else {
			m.between(i)
			i++
		}
		if len(m.text) > len(body)+maxRepairGrowth {
			return m, false
		}
	}
	return m, slices.Max(m.count[:]) > 0
}

// within takes what is at a place in a string, and returns how many bytes it was.
func (m *mender) within(at int) int {
	char := m.body[at]
	switch {
	case char == '\\' && at+1 < len(m.body) && escapes(m.body[at+1:]):
		m.text = append(m.text, m.body[at:at+2]...)
		return 2
	case char == '\\':
		m.see(bareBackslash, at)
		m.text = append(m.text, `\\`...)
	case char < ' ':
		m.see(rawControl, at)
		m.text = fmt.Appendf(m.text, `\u%04x`, char)
	default:
		m.inString = char != '"'
		m.text = append(m.text, char)
	}
	return 1
}

// between takes what is at a place outside of strings.
func (m *mender) between(at int) {
	char := m.body[at]
	isSpace := bytes.IndexByte([]byte(jsonSpace), char) >= 0
	switch {
	case isSpace:
	case char == ',' && bytes.IndexByte([]byte("\x00{[,:"), m.last) < 0:
		m.comma = len(m.text)
	case m.comma >= 0 && (char == '}' || char == ']'):
		m.see(trailingComma, at)
		m.text = slices.Delete(m.text, m.comma, m.comma+1)
		m.comma = -1
	default:
		m.inString, m.comma = char == '"', -1
	}
	if !isSpace {
		m.last = char
	}
	m.text = append(m.text, char)
}

// escapes reports whether what follows a backslash is escaped by it (RFC 8259, section 7).
func escapes(text []byte) bool {
	if text[0] != 'u' {
		return bytes.IndexByte([]byte(`"\/bfnrt`), text[0]) >= 0
	}
	return len(text) > 4 && !slices.ContainsFunc(text[1:5], func(c byte) bool {
		return bytes.IndexByte([]byte("0123456789abcdefABCDEF"), c) < 0
	})
}

func (m *mender) see(f, at int) {
	if m.count[f]++; m.count[f] == 1 {
		m.first[f] = at + 1
	}
}

// warn tells what was mended. skipped is how many bytes of the body are before the text.
func (m *mender) warn(w *warnings, skipped int) {
	for f, flaw := range flaws {
		more := ""
		if m.count[f] > 1 {
			more = fmt.Sprintf(", and so were %d more", m.count[f]-1)
		}
		if m.count[f] > 0 {
			w.addf("the body is not valid JSON: at byte %d, %s%s", m.first[f]+skipped, flaw, more)
		}
	}
}

// EncodedTwice warns of a body that is a JSON string, whose text is JSON.
var EncodedTwice = Warning{Detail: "the body is a string whose text is JSON; the text was read"}

// MayBeJSON reports whether a text begins as an object or a list.
func MayBeJSON(text string) bool {
	text = strings.TrimLeft(text, jsonSpace)
	return text != "" && (text[0] == '{' || text[0] == '[')
}

// FromLines makes a list of a body with one JSON value a line (https://github.com/ndjson/ndjson-spec). Lines that are not JSON
// stay as they are, so that a parser tells where they are.
func FromLines(body []byte) []byte {
	list := append(make([]byte, 0, len(body)+2), '[')
	for line := range bytes.Lines(bytes.TrimPrefix(body, []byte(byteOrderMark))) {
		content := bytes.TrimSpace(line)
		if len(content) == 0 {
			continue
		}
		if !json.Valid(content) {
			return body // it would be another thing with commas
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, content...)
	}
	return append(list, ']')
}
