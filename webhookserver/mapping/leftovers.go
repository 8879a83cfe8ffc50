package mapping

import (
	"encoding/json"
	"maps"
	"reflect"
)

// leftovers finds what of a payload the fields of an alert do not hold. Nothing of a payload is lost, so only
// what is held whole is left out:
//
//   - an object or list that is the value of a field or of an entry of a bag, wherever in the payload it was;
//   - the scalar of a top-level key that the expression of a field looked up and gave unchanged, as the field
//     or as an entry of a bag;
//   - a top-level key that a bag has too, with the same value, and the object of a top-level key whose every entry
//     the bag has.
type leftovers struct {
	whole map[identity]bool
	keys  keySet
}

// identity tells one object or list of the payload from all others, equal ones too.
type identity struct {
	kind    reflect.Kind
	pointer uintptr
	length  int
}

// identityOf returns the identity of an object or list; ok is false for scalars and for what is empty.
func identityOf(value any) (id identity, ok bool) {
	switch value.(type) {
	case map[string]any, []any:
		v := reflect.ValueOf(value)
		return identity{kind: v.Kind(), pointer: v.Pointer(), length: v.Len()}, v.Len() > 0
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
		if l.whole == nil {
			l.whole = map[identity]bool{}
		}
		l.whole[id] = true
	}
}

// settle notes what of an object is in the result of a field's expression, which looked up the keys.
func (l *leftovers) settle(bag bool, result, object any, looked keySet) {
	l.hold(result)
	source, _ := object.(map[string]any)
	if entries, isObject := result.(map[string]any); bag && isObject {
		l.settleBag(entries, source, looked)
		return
	}
	for key := range looked {
		if value, found := source[key]; found && isScalar(value) && isSame(value, result) {
			l.keys.add(key)
		}
	}
}

// settleBag does what settle does, for the entries of a bag.
func (l *leftovers) settleBag(entries, source map[string]any, looked keySet) {
	scalars := map[any]bool{}
	for key, entry := range entries {
		l.hold(entry)
		if isScalar(entry) {
			scalars[entry] = true
		}
		if value, found := source[key]; found && isSame(entry, value) {
			l.keys.add(key)
		}
	}
	for key := range looked {
		value, found := source[key]
		parts, isObject := value.(map[string]any)
		if found && isScalar(value) && scalars[value] || isObject && isWithin(parts, entries) {
			l.keys.add(key)
		}
	}
}

// isWithin reports whether a bag has every entry of an object.
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
	rest, less := l.prune(value)
	return rest, !less || rest != nil
}

// prune returns a value without the objects and lists in it that are held whole, and whether that is less: nil
// when nothing is left. The value is not changed.
func (l *leftovers) prune(value any) (rest any, less bool) {
	id, isContainer := identityOf(value)
	if !isContainer || len(l.whole) == 0 {
		return value, false
	}
	if l.whole[id] {
		return nil, true
	}
	switch v := value.(type) {
	case map[string]any:
		return l.pruneObject(v)
	case []any:
		return l.pruneList(v)
	}
	return value, false
}

func (l *leftovers) pruneObject(object map[string]any) (any, bool) {
	left := object
	for key, element := range object {
		rest, less := l.prune(element)
		if !less {
			continue
		}
		if isSame(left, object) {
			left = maps.Clone(object)
		}
		if left[key] = rest; rest == nil {
			delete(left, key)
		}
	}
	if len(left) == 0 {
		return nil, true
	}
	return left, !isSame(left, object)
}

func (l *leftovers) pruneList(list []any) (any, bool) {
	left, changed := make([]any, 0, len(list)), false
	for _, element := range list {
		rest, less := l.prune(element)
		if changed = changed || less; !less {
			left = append(left, element)
		} else if rest != nil {
			left = append(left, rest)
		}
	}
	switch {
	case len(left) == 0:
		return nil, true
	case !changed:
		return list, false
	}
	return left, true
}

// common returns what every one of several alerts holds.
func common(all []*leftovers) leftovers {
	kept := leftovers{whole: maps.Clone(all[0].whole), keys: maps.Clone(all[0].keys)}
	for _, other := range all[1:] {
		maps.DeleteFunc(kept.whole, func(id identity, _ bool) bool { return !other.whole[id] })
		maps.DeleteFunc(kept.keys, func(key string, _ bool) bool { return !other.keys[key] })
	}
	return kept
}
