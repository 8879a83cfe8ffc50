package mapping

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// leftovers finds what of a value no expression has used.
type leftovers struct {
	gave    expressions // the expressions that gave something
	results []any       // what they gave, to see whether it has a value in it
}

// of is what is left of a value, given what the expressions use of it; some is false when nothing is. The
// value is not changed.
func (l *leftovers) of(u *usage, value any) (rest any, some bool) {
	switch {
	case u == nil:
		return value, true
	case u.passed&l.gave != 0, u.made&l.gave != 0 && isPlain(value), u.perhaps&l.gave != 0 && l.hold(value):
		return nil, false
	}
	switch v := value.(type) {
	case map[string]any:
		if u.keys != nil || u.rest != nil {
			return l.ofMap(u, v)
		}
	case []any:
		if u.elements != nil || u.rest != nil {
			return l.ofList(u, v)
		}
	}
	return value, true
}

func (l *leftovers) ofMap(u *usage, m map[string]any) (any, bool) {
	left := make(map[string]any, len(m))
	for key, element := range m {
		if rest, some := l.ofKey(u, key, element); some {
			left[key] = rest
		}
	}
	return left, len(left) > 0 || len(m) == 0
}

// ofKey is what is left of an entry of a map.
func (l *leftovers) ofKey(u *usage, key string, element any) (any, bool) {
	if known, found := u.keys[key]; found {
		rest, some := l.of(known, element)
		if !some || u.rest == nil {
			return rest, some
		}
		return l.of(u.rest, rest)
	}
	return l.of(u.rest, element)
}

func (l *leftovers) ofList(u *usage, list []any) (any, bool) {
	left := make([]any, 0, len(list))
	for _, element := range list {
		rest, some := element, true
		for _, each := range []*usage{u.elements, u.rest} {
			if some && each != nil {
				rest, some = l.of(each, rest)
			}
		}
		if some {
			left = append(left, rest)
		}
	}
	return left, len(left) > 0 || len(list) == 0
}

// isPlain tells scalars and lists of scalars.
func isPlain(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		for _, element := range v {
			switch element.(type) {
			case map[string]any, []any:
				return false
			}
		}
	}
	return true
}

// hold reports whether the results have a value in them: an object or list as it is, the text of a scalar
// word for word.
func (l *leftovers) hold(value any) bool {
	text := ""
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any, []any:
		for _, result := range l.results {
			if isSame(result, value) {
				return true
			}
		}
		return false
	case string:
		text = strings.TrimSpace(v)
	case json.Number:
		text = v.String()
	case bool:
		text = strconv.FormatBool(v)
	}
	for _, result := range l.results {
		switch r := result.(type) {
		case string:
			if strings.Contains(r, text) {
				return true
			}
		case json.Number:
			if r.String() == text {
				return true
			}
		}
	}
	return text == ""
}

// isSame reports whether two values are the same object or list, not only equal ones.
func isSame(a, b any) bool {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	if va.Kind() != vb.Kind() || va.Kind() != reflect.Map && va.Kind() != reflect.Slice {
		return false
	}
	return va.Len() == vb.Len() && va.Pointer() == vb.Pointer()
}
