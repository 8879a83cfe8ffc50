package payload

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
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
	case bool:
		e.buffer = strconv.AppendBool(e.buffer, v)
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
		e.buffer = append(e.buffer, "null"...)
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

// appendString writes a JSON string. Each byte that is not UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			encoded, _ := json.Marshal(string([]rune(s))) // a string always has JSON
			return append(dst, encoded...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}
