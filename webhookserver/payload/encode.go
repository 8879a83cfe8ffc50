package payload

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// encoder writes JSON as the API server writes what it stores (Go's encoding/json: compact, keys sorted,
// <, > and & escaped), so that an alert has the same size and bytes before and after. It is several times
// faster than json.Marshal, which has to find out each value's type and to check what it is given.
type encoder struct {
	buffer  []byte // holds all values written so far
	inexact int    // numbers written as strings since the caller last set it to 0
	literal string // the first of them
	asText  bool   // the JSON is stored as a text, in which every number keeps its literal
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
	if e.asText {
		e.buffer = append(e.buffer, literal...)
		return
	}
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

// numberBytes are the bytes that a JSON number is made of.
const numberBytes = "0123456789+-.eE"

// appendNumber writes a JSON number as the API server would store it, if that keeps its value, and reports
// whether it did. The API server reads a number without a point as int64 if it fits and anything else as
// float64, which it writes with the fewest digits that read back as the same float64. So a number is kept
// if it is one of these two; 9007199254740993.0, 18446744073709551615 and 1e400 are not.
func appendNumber(dst []byte, literal string) ([]byte, bool) {
	if !strings.ContainsAny(literal, ".eE") {
		if whole, err := strconv.ParseInt(literal, 10, 64); err == nil {
			return strconv.AppendInt(dst, whole, 10), true
		}
	}
	float, err := strconv.ParseFloat(literal, 64)
	if err != nil || strings.Trim(literal, numberBytes) != "" { // ParseFloat reads NaN and 0x1p-2 too
		return dst, false
	}
	start := len(dst)
	dst = appendFloat(dst, float)
	written := string(dst[start:])
	if written == literal || decimalOf(written) == decimalOf(literal) {
		return dst, true
	}
	return dst[:start], false
}

// IsExact reports whether the API server would store a JSON number without changing its value.
func IsExact(literal string) bool {
	_, exact := appendNumber(nil, literal)
	return exact
}

// appendFloat writes a float64 as encoding/json does: with an exponent below 1e-6 and from 1e21 on.
func appendFloat(dst []byte, float float64) []byte {
	if float == 0 {
		return append(dst, '0') // -0 too: it is read back as the integer 0
	}
	format := byte('f')
	if size := math.Abs(float); size < 1e-6 || size >= 1e21 {
		format = 'e'
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, float, format, -1, 64)
	if end := len(dst); format == 'e' && end-start >= 4 && string(dst[end-4:end-1]) == "e-0" {
		dst[end-2] = dst[end-1] // e-09 is written e-9
		dst = dst[:end-1]
	}
	return dst
}

// decimal is the exact value of a number, in the one way to write it: ±0.digits × 10^exponent, with digits
// that neither begin nor end with 0. Two literals are equal in value if their decimals are equal.
type decimal struct {
	negative bool
	digits   string // empty for 0
	exponent int
}

// decimalOf returns the exact value of a JSON number. It does no arithmetic on the digits, so that a literal of
// any length or exponent costs no more than its length.
func decimalOf(literal string) decimal {
	mantissa, negative := strings.CutPrefix(literal, "-")
	exponent := 0
	if i := strings.IndexAny(mantissa, "eE"); i >= 0 {
		// Beyond the range of int the result is the largest one: no float64 comes near it.
		exponent, _ = strconv.Atoi(strings.TrimPrefix(mantissa[i+1:], "+"))
		mantissa = mantissa[:i]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	significant := strings.TrimLeft(digits, "0")
	exponent += len(whole) - (len(digits) - len(significant))
	significant = strings.TrimRight(significant, "0")
	if significant == "" {
		return decimal{}
	}
	return decimal{negative: negative, digits: significant, exponent: exponent}
}
