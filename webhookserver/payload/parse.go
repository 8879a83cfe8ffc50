package payload

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// The errors of ParseAny beside *SyntaxError, and that of what makes an alert of its value.
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

// ParseAny decodes a body that holds one JSON value of any kind: map[string]any, []any, string,
// json.Number, bool or nil. Numbers are json.Number, so that they keep every digit; of duplicate keys the
// last one wins; a byte order mark is skipped. The warnings are about what is not UTF-8, which becomes
// U+FFFD.
func ParseAny(body []byte) (any, []Warning, error) {
	text := bytes.TrimPrefix(body, []byte(byteOrderMark))
	if len(bytes.Trim(text, " \t\r\n")) == 0 {
		return nil, nil, ErrEmpty
	}
	var found survey
	found.scan(text)
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

// scanString returns the position of the quote that ends the string whose first character is at start.
func (s *survey) scanString(text []byte, start int) int {
	i := start
	for i < len(text) && text[i] != '"' {
		if text[i] != '\\' {
			i++
			continue
		}
		switch code := escapedUnit(text[i:]); {
		case code < 0:
			i += 2
		case !utf16.IsSurrogate(code):
			i += 6
		case utf16.DecodeRune(code, escapedUnit(text[i+6:])) != unicode.ReplacementChar:
			i += 12
		default:
			s.loneSurrogate = true
			i += 6
		}
	}
	return i
}

// escapedUnit returns the value of the \uXXXX that text begins with, -1 if it begins with none.
func escapedUnit(text []byte) rune {
	var unit [2]byte
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	if _, err := hex.Decode(unit[:], text[2:6]); err != nil {
		return -1
	}
	return rune(binary.BigEndian.Uint16(unit[:]))
}
