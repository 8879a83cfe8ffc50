package payload

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// encoder writes JSON as the API server writes what it stores (Go's encoding/json: compact, keys sorted,
// <, > and & escaped), so that an alert has the same size and bytes before and after. It is several times
// faster than json.Marshal, which has to find out each value's type and to check what it is given.
type encoder struct {
	buffer  []byte // holds all values written so far
	inexact int    // numbers written as strings since the caller last set it to 0
	literal string // the first of them
}

// value writes one value and returns its bytes.
func (e *encoder) value(v any) json.RawMessage {
	if cap(e.buffer)-len(e.buffer) < 64 {
		e.buffer = make([]byte, 0, max(1024, min(2*cap(e.buffer), 64<<10)))
	}
	start := len(e.buffer)
	e.append(v)
	return json.RawMessage(e.buffer[start:len(e.buffer):len(e.buffer)])
}

func (e *encoder) append(v any) {
	switch v := v.(type) {
	case nil:
		e.buffer = append(e.buffer, "null"...)
	case bool:
		if v {
			e.buffer = append(e.buffer, "true"...)
		} else {
			e.buffer = append(e.buffer, "false"...)
		}
	case string:
		e.buffer = appendString(e.buffer, v)
	case json.Number:
		e.appendNumber(string(v))
	case map[string]any:
		e.appendObject(v)
	case []any:
		e.buffer = append(e.buffer, '[')
		for i, element := range v {
			if i > 0 {
				e.buffer = append(e.buffer, ',')
			}
			e.append(element)
		}
		e.buffer = append(e.buffer, ']')
	default:
		e.appendOther(v)
	}
}

func (e *encoder) appendObject(object map[string]any) {
	e.buffer = append(e.buffer, '{')
	for i, key := range slices.Sorted(maps.Keys(object)) {
		if i > 0 {
			e.buffer = append(e.buffer, ',')
		}
		e.buffer = appendString(e.buffer, key)
		e.buffer = append(e.buffer, ':')
		e.append(object[key])
	}
	e.buffer = append(e.buffer, '}')
}

func (e *encoder) appendNumber(literal string) {
	var exact bool
	if e.buffer, exact = appendNumber(e.buffer, literal); exact {
		return
	}
	e.buffer = appendString(e.buffer, literal)
	if e.inexact++; e.inexact == 1 {
		e.literal = literal
	}
}

// appendOther writes a value that Parse never makes, by way of its JSON; what has none is written as text.
func (e *encoder) appendOther(v any) {
	if encoded, err := json.Marshal(v); err == nil {
		if decoded, err := decode(encoded); err == nil {
			e.append(decoded)
			return
		}
	}
	e.buffer = appendString(e.buffer, fmt.Sprint(v))
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string. What is not UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	done := 0 // bytes of s that are written
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if plainByte[c] {
				i++
				continue
			}
			dst = append(dst, s[done:i]...)
			dst = appendEscape(dst, c)
			i++
			done = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, s[done:i]...)
			dst = append(dst, "\uFFFD"...)
			done = i + size
		case r == '\u2028' || r == '\u2029': // line ends in JavaScript
			dst = append(dst, s[done:i]...)
			dst = append(dst, `\u202`...)
			dst = append(dst, hexDigits[r&0xf])
			done = i + size
		}
		i += size
	}
	dst = append(dst, s[done:]...)
	return append(dst, '"')
}

// plainByte marks the ASCII characters that stand for themselves in a JSON string.
var plainByte = func() (plain [utf8.RuneSelf]bool) {
	for c := range plain {
		switch c {
		case '"', '\\', '<', '>', '&':
		default:
			plain[c] = c >= ' '
		}
	}
	return plain
}()

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}
