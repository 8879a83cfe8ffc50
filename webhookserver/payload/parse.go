package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// The errors of Parse and ParseAny beside *SyntaxError.
var (
	ErrEmpty     = errors.New("the body is empty")
	ErrNotObject = errors.New("the body is JSON but not an object")
	ErrTooDeep   = fmt.Errorf("the body nests objects and arrays more than %d deep", maxDepth)
)

// SyntaxError says that a body is not JSON.
type SyntaxError struct {
	Offset int64  // the number of bytes that were read when it showed, the wrong one included
	Detail string // what is wrong
}

// Error returns the offset and the detail.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("malformed JSON at byte %d: %s", e.Offset, e.Detail)
}

// byteOrderMark is what some tools on Windows put before the JSON.
const byteOrderMark = "\uFEFF"

// Parse decodes a body that holds one JSON object, as ParseAny does.
func Parse(body []byte) (map[string]any, []Warning, error) {
	value, warnings, err := ParseAny(body)
	if err != nil {
		return nil, nil, err
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, nil, ErrNotObject
	}
	return object, warnings, nil
}

// ParseAny decodes a body that holds one JSON value of any kind: map[string]any, []any, string,
// json.Number, bool or nil. Numbers are json.Number, so that they keep every digit; of duplicate keys the
// last one wins; a byte order mark is skipped. The warnings are about what is not UTF-8, which becomes
// U+FFFD.
func ParseAny(body []byte) (any, []Warning, error) {
	text := bytes.TrimPrefix(body, []byte(byteOrderMark))
	if len(bytes.Trim(text, " \t\r\n")) == 0 {
		return nil, nil, ErrEmpty
	}
	found := scan(text)
	if found.tooDeep {
		return nil, nil, ErrTooDeep
	}
	value, err := decode(text)
	if err != nil {
		if syntax, ok := errors.AsType[*SyntaxError](err); ok {
			syntax.Offset += int64(len(body) - len(text))
		}
		return nil, nil, err
	}
	var w warnings
	if !utf8.Valid(text) {
		w.addf("", "the body is not valid UTF-8; the bytes that are wrong were replaced by U+FFFD")
	}
	if found.loneSurrogate {
		w.addf("", "half of a surrogate pair (\\ud800 to \\udfff) stands alone; it was replaced by U+FFFD")
	}
	return value, w, nil
}

// decode decodes one JSON value with nothing behind it.
func decode(text []byte) (any, error) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err := decoder.Decode(&value)
	if err == nil && len(bytes.Trim(text[decoder.InputOffset():], " \t\r\n")) == 0 {
		return value, nil
	}
	// Check it again in one piece: that tells the offset where a Decoder does not.
	var whole json.RawMessage
	if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(text, &whole)); ok {
		return nil, &SyntaxError{Offset: syntax.Offset, Detail: syntax.Error()}
	}
	return nil, &SyntaxError{Offset: int64(len(text)), Detail: fmt.Sprintf("not one JSON value: %v", err)}
}

// findings are what a look at the bytes alone can tell.
type findings struct {
	tooDeep       bool
	loneSurrogate bool
}

// scan walks over JSON before it is decoded, so that a body of nothing but brackets costs no more than its
// length. It does not care whether the JSON is well-formed.
func scan(text []byte) (found findings) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if depth++; depth > maxDepth {
				found.tooDeep = true
				return found
			}
		case '}', ']':
			depth--
		case '"':
			i = found.scanString(text, i+1)
		}
	}
	return found
}

// scanString returns the position of the quote that ends the string whose first character is at start.
func (f *findings) scanString(text []byte, start int) int {
	i := start
	for i < len(text) && text[i] != '"' {
		if text[i] != '\\' {
			i++
			continue
		}
		switch code := escapedUnit(text[i:]); {
		case code < 0:
			i += 2
		case isLowSurrogate(code), isHighSurrogate(code) && !isLowSurrogate(escapedUnit(text[i+6:])):
			f.loneSurrogate = true
			i += 6
		case isHighSurrogate(code):
			i += 12
		default:
			i += 6
		}
	}
	return i
}

func isHighSurrogate(code int) bool { return 0xd800 <= code && code < 0xdc00 }
func isLowSurrogate(code int) bool  { return 0xdc00 <= code && code < 0xe000 }

// escapedUnit returns the value of the \uXXXX that text begins with, -1 if it begins with none.
func escapedUnit(text []byte) int {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	code := 0
	for _, c := range text[2:6] {
		switch {
		case '0' <= c && c <= '9':
			code = code<<4 | int(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			code = code<<4 | int(c|0x20-'a'+10)
		default:
			return -1
		}
	}
	return code
}
