package mapping

import (
	"encoding/json"
	"reflect"
)

// leftovers finds what of a payload the fields of an alert do not hold whole:
//
//   - an object or list is held if it is the value of a field or of an entry of a bag, wherever in the payload it was;
//   - the scalar of a top-level key, if the expression of a field looked it up and gave it as the field or as an entry of a bag;
//   - a top-level key, if a bag has it too, with the same value;
//   - the object of a top-level key that the expression looked up, if the bag has every entry of it.
type leftovers struct {
	whole  map[identity]bool
	keys   map[string]bool
	pruned int // how often prune left something out
}

// identity tells one object or list of the payload from all others, equal ones too.
type identity struct {
	pointer uintptr
	length  int
}

// identityOf returns the identity of an object or list; ok is false for scalars and for what is empty.
func identityOf(value any) (id identity, ok bool) {
	switch value.(type) {
	case map[string]any, []any:
		v := reflect.ValueOf(value)
		return identity{pointer: v.Pointer(), length: v.Len()}, v.Len() > 0
	}
	return identity{}, false
}

// isSame reports whether two values are the same scalar, or the same object or list and not only equal ones.
func isSame(a, b any) bool {
	if isScalar(a) && isScalar(b) {
		return a == b
	}
	first, ok := identityOf(a)
	second, _ := identityOf(b)
	return ok && first == second
}

func isScalar(value any) bool {
	switch value.(type) {
	case nil, string, bool, json.Number:
		return true
	}
	return false
}

// hold notes that a field, or an entry of a bag, has the value.
func (l *leftovers) hold(value any) {
	if id, ok := identityOf(value); ok {
		l.whole[id] = true
	}
}

// settle notes what of an object is in the result of a field's expression, which looked up the keys.
func (l *leftovers) settle(bag bool, result, object any, looked map[string]bool) {
	source, _ := object.(map[string]any)
	scalars := map[any]bool{}
	note := func(value any) {
		l.hold(value)
		if isScalar(value) {
			scalars[value] = true
		}
	}
	note(result)
	var entries map[string]any
	if bag {
		entries, _ = result.(map[string]any)
	}
	for key, entry := range entries {
		note(entry)
		if value, found := source[key]; found && isSame(entry, value) {
			l.keys[key] = true
		}
	}
	for key := range looked {
		value, found := source[key]
		parts, isObject := value.(map[string]any)
		if found && isScalar(value) && scalars[value] || isObject && entries != nil && isWithin(parts, entries) {
			l.keys[key] = true
		}
	}
}

func isWithin(object, bag map[string]any) bool {
	if len(object) > len(bag) {
		return false
	}
	for key, value := range object {
		if entry, found := bag[key]; !found || !isSame(entry, value) {
			return false
		}
	}
	return true
}

// of returns what is left of the value at a top-level key; some is false when nothing is.
func (l *leftovers) of(key string, value any) (rest any, some bool) {
	if l.keys[key] {
		return nil, false
	}
	return l.prune(value)
}

// prune returns a value without the objects and lists in it that are held whole; some is false when nothing is left.
// It does not change the value, and returns the value itself if all of it is left.
func (l *leftovers) prune(value any) (rest any, some bool) {
	id, _ := identityOf(value)
	if l.whole[id] {
		l.pruned++
		return nil, false
	}
	before := l.pruned
	switch v := value.(type) {
	case map[string]any:
		left := make(map[string]any, len(v))
		for key, element := range v {
			if rest, some := l.prune(element); some {
				left[key] = rest
			}
		}
		rest, some = left, len(left) > 0
	case []any:
		left := make([]any, 0, len(v))
		for _, element := range v {
			if rest, some := l.prune(element); some {
				left = append(left, rest)
			}
		}
		rest, some = left, len(left) > 0
	}
	if l.pruned == before {
		return value, true
	}
	return rest, some
}
