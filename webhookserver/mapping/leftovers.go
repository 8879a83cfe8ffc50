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
//   - the object of a top-level key that the expression of a bag looked up and whose every entry is in the bag.
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

// identityOf is the identity of an object or list that is not empty; ok is false for other values.
func identityOf(value any) (id identity, ok bool) {
	switch value.(type) {
	case map[string]any, []any:
		v := reflect.ValueOf(value)
		return identity{kind: v.Kind(), pointer: v.Pointer(), length: v.Len()}, v.Len() > 0
	}
	return identity{}, false
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
func (l *leftovers) settle(bag bool, result any, object any, looked keySet) {
	l.hold(result)
	source, _ := object.(map[string]any)
	entries, isObject := result.(map[string]any)
	if !bag || !isObject {
		entries = nil
	}
	var scalars map[any]bool // the values of the entries
	for key, entry := range entries {
		l.hold(entry)
		if value, found := source[key]; found && isEqual(entry, value) {
			l.keys.add(key)
		}
		if isScalar(entry) && len(looked) > 0 {
			if scalars == nil {
				scalars = map[any]bool{}
			}
			scalars[entry] = true
		}
	}
	for key := range looked {
		value, found := source[key]
		if found && (isEqual(result, value) || isScalar(value) && scalars[value] || within(entries, value)) {
			l.keys.add(key)
		}
	}
}

// within reports whether every entry of an object is in a bag.
func within(bag map[string]any, object any) bool {
	parts, isObject := object.(map[string]any)
	if len(parts) > len(bag) {
		return false
	}
	for key, part := range parts {
		entry, found := bag[key]
		if !found || !isEqual(entry, part) {
			return false
		}
	}
	return isObject && bag != nil
}

// of is what is left of the value at a top-level key; some is false when nothing is. The value is not changed.
func (l *leftovers) of(key string, value any) (rest any, some bool) {
	if l.keys[key] {
		return nil, false
	}
	return l.prune(value)
}

// prune is a value without the objects and lists in it that are held whole.
func (l *leftovers) prune(value any) (rest any, some bool) {
	if len(l.whole) == 0 {
		return value, true
	}
	if id, ok := identityOf(value); ok && l.whole[id] {
		return nil, false
	}
	switch v := value.(type) {
	case map[string]any:
		return l.pruneObject(v)
	case []any:
		return l.pruneList(v)
	}
	return value, true
}

func (l *leftovers) pruneObject(object map[string]any) (any, bool) {
	left := object
	for key, element := range object {
		rest, some := l.prune(element)
		if some && isEqual(rest, element) {
			continue
		}
		if len(left) == len(object) && isEqual(left, object) {
			left = maps.Clone(object)
		}
		if some {
			left[key] = rest
		} else {
			delete(left, key)
		}
	}
	return left, len(left) > 0 || len(object) == 0
}

func (l *leftovers) pruneList(list []any) (any, bool) {
	var left []any
	changed := false
	for i, element := range list {
		rest, some := l.prune(element)
		if !changed && some && isEqual(rest, element) {
			continue
		}
		if !changed {
			left, changed = append(make([]any, 0, len(list)), list[:i]...), true
		}
		if some {
			left = append(left, rest)
		}
	}
	if !changed {
		return list, true
	}
	return left, len(left) > 0
}

// common is what is held by every one of several alerts.
func common(all []*leftovers) leftovers {
	kept := leftovers{whole: maps.Clone(all[0].whole), keys: maps.Clone(all[0].keys)}
	for _, other := range all[1:] {
		maps.DeleteFunc(kept.whole, func(id identity, _ bool) bool { return !other.whole[id] })
		maps.DeleteFunc(kept.keys, func(key string, _ bool) bool { return !other.keys[key] })
	}
	return kept
}

// isEqual reports whether two values are the same scalar, or the same object or list and not only equal ones.
func isEqual(a, b any) bool {
	if isScalar(a) || isScalar(b) {
		return isScalar(a) && isScalar(b) && a == b
	}
	return isSame(a, b)
}

func isScalar(value any) bool {
	switch value.(type) {
	case nil, string, bool, json.Number:
		return true
	}
	return false
}

// isSame reports whether two values are the same object or list, not only equal ones.
func isSame(a, b any) bool {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	if va.Kind() != vb.Kind() || va.Kind() != reflect.Map && va.Kind() != reflect.Slice {
		return false
	}
	return va.Len() == vb.Len() && va.Pointer() == vb.Pointer()
}
