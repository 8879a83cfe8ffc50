package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("malformed JSON at byte %d: %s", e.Offset, e.Detail)
}

const (
	byteOrderMark = "\uFEFF" // what some tools on Windows put before the JSON
	jsonSpace     = " \t\r\n"
)

// ParseAny decodes a body that holds one JSON value of any kind: map[string]any, []any, string, json.Number, bool or nil.
// Numbers are json.Number, so that they keep every digit; of duplicate keys the last one wins; a byte order mark is skipped.
// The warnings are about what is not UTF-8, which becomes U+FFFD, and about flaws of JSON that leave no doubt.
func ParseAny(body []byte) (any, []Warning, error) {
	text := bytes.TrimPrefix(body, []byte(byteOrderMark))
	if len(bytes.Trim(text, jsonSpace)) == 0 {
		return nil, nil, ErrEmpty
	}
	var found survey
	found.scan(text)
	if found.tooDeep {
		return nil, nil, ErrTooDeep
	}
	var w warnings
	value, err := decodeLenient(text, len(body)-len(text), &w)
	if err != nil {
		if syntax, ok := errors.AsType[*SyntaxError](err); ok {
			syntax.Offset += int64(len(body) - len(text))
		}
		return nil, nil, err
	}
	if !utf8.Valid(text) {
		w.addf("the body is not valid UTF-8; the bytes that are wrong were replaced by U+FFFD")
	}
	if found.loneSurrogate {
		w.addf("half of a surrogate pair (\\ud800 to \\udfff) stands alone; it was replaced by U+FFFD")
	}
	return value, w, nil
}

// decodeLenient decodes JSON or, with warnings, what is JSON but for the flaws of mend. The error is about the text as it is.
func decodeLenient(text []byte, skipped int, w *warnings) (any, error) {
	value, err := decode(text)
	if err == nil {
		return value, nil
	}
	whole, ok := mend(text)
	if !ok {
		return nil, err
	}
	value, mendedErr := decode(whole.text)
	if mendedErr != nil {
		return nil, err
	}
	whole.warn(w, skipped)
	return value, nil
}

func decode(text []byte) (any, error) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err := decoder.Decode(&value)
	if err == nil && len(bytes.Trim(text[decoder.InputOffset():], jsonSpace)) == 0 {
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
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
}

// What values take in memory, in bytes, measured with the programs of this repository; a test holds them
// against what is allocated. They are what is live at the same time while an alert is made of a body: the
// decoded values, the lists of keys by which they are walked, and their encoded form in the bags.
const (
	scalarBytes = 40  // a text or number beside its characters, and its place in a list as that grows
	listBytes   = 48  // a list beside its elements
	objectBytes = 64  // an object without entries
	smallObject = 290 // the entries of an object of up to smallEntries
	entryBytes  = 240 // an entry of a larger one
	keyBytes    = 24  // a key beside its characters

	smallEntries = 8
)

// Footprint estimates how many bytes of memory it takes to decode a body and to read it, before that is done: a
// body of {"":0} takes fifty times its length.
func Footprint(body []byte) int64 {
	var found survey
	found.scan(body)
	return found.footprint
}

// survey is what the bytes of JSON tell before they are decoded.
type survey struct {
	tooDeep       bool
	loneSurrogate bool
	footprint     int64

	depth   int
	entries [maxDepth + 1]int64 // of the objects that are open
}

// scan walks over JSON, well-formed or not, so that a body of nothing but brackets costs no more than its length. It ends
// where the JSON is too deep to be decoded.
func (s *survey) scan(text []byte) {
	s.footprint = 2 * int64(len(text))
	for _, escaped := range []string{"<", ">", "&"} {
		s.footprint += escapedGrowth * int64(bytes.Count(text, []byte(escaped)))
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if s.depth++; s.depth > maxDepth {
				s.tooDeep = true
				return
			}
			s.entries[s.depth] = 0
			if text[i] == '[' {
				s.footprint += listBytes + scalarBytes
			}
		case '}', ']':
			s.depth = max(s.depth-1, 0)
			if text[i] == '}' {
				s.footprint += objectFootprint(s.entries[s.depth+1])
			}
		case ':':
			s.entries[s.depth]++
		case ',':
			s.footprint += scalarBytes
		case '"':
			start := i + 1
			i = s.scanString(text, start)
			s.footprint += int64(i-start) + keyBytes
		}
	}
}

func objectFootprint(entries int64) int64 {
	switch {
	case entries > smallEntries:
		return objectBytes + entries*entryBytes
	case entries > 0:
		return objectBytes + smallObject
	}
	return objectBytes
}
