package payload

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// encoder writes JSON as the API server writes what it stores (Go's encoding/json: compact, keys sorted,
// <, > and & escaped), so that an alert has the same size and bytes before and after. It is several times
// faster than json.Marshal, which has to find out each value's type and to check what it is given.
type encoder struct {
	asText  bool     // the JSON is stored as a text, in which every number keeps its literal
	inexact []string // the numbers that it wrote as strings
}

func (e *encoder) append(dst []byte, value any) []byte {
	switch v := value.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case string:
		return appendString(dst, v)
	case json.Number:
		return e.appendNumber(dst, string(v))
	case map[string]any:
		dst = append(dst, '{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, key), ':')
			dst = e.append(dst, v[key])
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for i, element := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = e.append(dst, element)
		}
		return append(dst, ']')
	}
	return append(dst, "null"...)
}

func (e *encoder) appendNumber(dst []byte, literal string) []byte {
	stored, exact := storedNumber(literal)
	switch {
	case e.asText:
		return append(dst, literal...)
	case exact:
		return append(dst, stored...)
	}
	e.inexact = append(e.inexact, literal)
	return appendString(dst, literal)
}

// appendString writes a JSON string. Each byte that is not UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"', r == '\\':
			dst = append(dst, '\\', byte(r))
		case '\b' <= r && r <= '\r' && r != '\v':
			dst = append(dst, '\\', "btn fr"[r-'\b'])
		case r < ' ', r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029':
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

const numberBytes = "0123456789+-.eE"

// storedNumber returns how the API server would store a JSON number, and whether that keeps its value. The API server reads a
// number without a point as int64 if it fits and anything else as float64, which it writes with the fewest digits that read back
// as the same float64. 9007199254740993.0, 18446744073709551615 and 1e400 are not kept.
func storedNumber(literal string) (stored string, exact bool) {
	switch whole, err := strconv.ParseInt(literal, 10, 64); {
	case err != nil: // not an int64
	case whole == 0:
		return "0", true // and not -0
	default:
		return literal, true
	}
	float, err := strconv.ParseFloat(literal, 64)
	if err != nil || strings.Trim(literal, numberBytes) != "" { // ParseFloat reads NaN and 0x1p-2 too
		return "", false
	}
	if float == 0 {
		float = 0 // and not -0, which is read back as the integer 0
	}
	encoded, err := json.Marshal(float)
	stored = string(encoded)
	return stored, err == nil && (stored == literal || decimalOf(stored) == decimalOf(literal))
}

// IsExact reports whether the API server would store a JSON number without changing its value.
func IsExact(literal string) bool {
	_, exact := storedNumber(literal)
	return exact
}

// decimalOf returns the exact value of a JSON number in one way to write it: ±0.digits × 10^exponent, with digits that neither
// begin nor end with 0. It does no arithmetic on the digits, so that a literal of any length or exponent costs no more than its
// length.
func decimalOf(literal string) string {
	mantissa := strings.TrimPrefix(literal, "-")
	sign := literal[:len(literal)-len(mantissa)]
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
		return "0"
	}
	return fmt.Sprintf("%s0.%se%d", sign, significant, exponent)
}
