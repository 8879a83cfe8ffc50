package payload

import (
	"math"
	"strconv"
	"strings"
)

// numberBytes are the bytes that a JSON number is made of.
const numberBytes = "0123456789+-.eE"

// appendNumber writes a JSON number as the API server would store it, if that keeps its value, and reports
// whether it did. The API server reads a number without a point as int64 if it fits and anything else as
// float64, which it writes with the fewest digits that read back as the same float64. So a number is kept
// if it is one of these two; 9007199254740993.0, 18446744073709551615 and 1e400 are not.
func appendNumber(dst []byte, literal string) ([]byte, bool) {
	if isShortInteger(literal) {
		return append(dst, literal...), true
	}
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

// isShortInteger reports the literals that surely fit into an int64 and are spelt as it is.
func isShortInteger(literal string) bool {
	if len(literal) == 0 || len(literal) > 18 || literal[0] == '0' && len(literal) > 1 {
		return false
	}
	for i := range len(literal) {
		if literal[i] < '0' || literal[i] > '9' {
			return false
		}
	}
	return true
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
