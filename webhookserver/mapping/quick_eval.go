package mapping

import (
	"encoding/json"
	"errors"

	"github.com/google/cel-go/common/types"
)

// maybe is an expression that may give an optional value.
type maybe interface {
	quick
	find(v *variables) (value any, found bool, err error)
}

// orElse is optional.orValue(fallback).
type orElse struct {
	of       maybe
	fallback quick
}

func (o orElse) eval(v *variables) (any, error) {
	value, found, err := o.of.find(v)
	if err != nil || found {
		return value, err
	}
	return o.fallback.eval(v)
}

// lookup is table[?key].
type lookup struct {
	table map[string]any
	key   quick
}

func (l lookup) eval(v *variables) (any, error) {
	value, _, err := l.find(v)
	return value, err
}

func (l lookup) find(v *variables) (any, bool, error) {
	key, err := l.key.eval(v)
	if err != nil {
		return nil, false, err
	}
	switch key := key.(type) {
	case string:
		value, found := l.table[key]
		return value, found, nil
	case bool:
		return nil, false, nil
	case json.Number:
		return nil, false, errSlow // CEL takes some for keys and not others
	}
	return nil, false, errNoKey
}

// hostOf is withoutPort(text).
type hostOf struct{ of quick }

func (h hostOf) eval(v *variables) (any, error) {
	value, err := h.of.eval(v)
	if err != nil {
		return nil, err
	}
	text, isText := value.(string)
	if !isText {
		return nil, errNoText
	}
	v.read += uint64(len(text))
	return cutPort(text), nil
}

var (
	errNoKey  = errors.New("a key is neither a text, a number nor true or false")
	errNoText = errors.New("withoutPort: it is not a text")
)

type literal struct{ value any }

func (l literal) eval(*variables) (any, error) { return l.value, nil }

// list is [a, b].
type list []quick

func (l list) eval(v *variables) (any, error) {
	elements := make([]any, 0, len(l))
	for _, q := range l {
		value, err := q.eval(v)
		if err != nil {
			return nil, err
		}
		elements = append(elements, plainHeaders(value))
	}
	return elements, nil
}

// object is {"a": b, "c": d}.
type object map[string]quick

func (o object) eval(v *variables) (any, error) {
	entries := make(map[string]any, len(o))
	for key, q := range o {
		if optional, ok := q.(ifFound); ok {
			value, found, err := optional.find(v)
			if err != nil {
				return nil, err
			}
			if found {
				entries[key] = plainHeaders(value)
			}
			continue
		}
		value, err := q.eval(v)
		if err != nil {
			return nil, err
		}
		entries[key] = plainHeaders(value)
	}
	return entries, nil
}

// ifFound is the value of {?"a": optional}, an entry that there is only if the value is.
type ifFound struct{ maybe }

// plainHeaders gives a value as payload.Parse would: the variable headers has another type.
func plainHeaders(value any) any {
	headers, ok := value.(map[string]string)
	if !ok {
		return value
	}
	object := make(map[string]any, len(headers))
	for name, text := range headers {
		object[name] = text
	}
	return object
}

// presence is has(path.key).
type presence struct {
	of  *path
	key string
}

func (p presence) eval(v *variables) (any, error) {
	value, err := p.of.eval(v)
	if err != nil {
		return nil, err
	}
	switch m := value.(type) {
	case map[string]any:
		_, found := m[p.key]
		return found, nil
	case map[string]string:
		_, found := m[p.key]
		return found, nil
	case []any:
		return nil, errors.New("a list has no keys")
	}
	return false, nil
}

// choice is condition ? yes : no.
type choice struct{ condition, yes, no quick }

func (c choice) eval(v *variables) (any, error) {
	chosen, err := truth(c.condition, v)
	if err != nil {
		return nil, err
	}
	if chosen {
		return c.yes.eval(v)
	}
	return c.no.eval(v)
}

// comparison is path == literal or path != literal.
type comparison struct {
	of       quick
	literal  any // as CEL has it
	expected any
	negated  bool
}

func (c comparison) eval(v *variables) (any, error) {
	value, err := c.of.eval(v)
	if err != nil {
		return nil, err
	}
	equal := false
	switch value := value.(type) {
	case json.Number:
		if _, isNumber := c.expected.(json.Number); isNumber {
			equal = numberValue(string(value)).Equal(adapter{}.NativeToValue(c.literal)) == types.True
		}
	case string:
		equal = any(value) == c.expected
	case bool, nil:
		equal = value == c.expected
	}
	return equal != c.negated, nil
}

// logic is a && b or a || b: as in CEL, an operand that decides the matter makes up for one that fails.
type logic struct {
	or       bool
	operands []quick
}

func (l logic) eval(v *variables) (any, error) {
	var failed error
	for _, operand := range l.operands {
		value, err := truth(operand, v)
		switch {
		case errors.Is(err, errSlow):
			return nil, err
		case err != nil:
			if failed == nil {
				failed = err
			}
		case value == l.or:
			return value, nil
		}
	}
	if failed != nil {
		return nil, failed
	}
	return !l.or, nil
}

// negation is !a.
type negation struct{ of quick }

func (n negation) eval(v *variables) (any, error) {
	value, err := truth(n.of, v)
	return !value, err
}

var errNoTruth = errors.New("a condition is neither true nor false")

// truth is the value of a condition.
func truth(of quick, v *variables) (bool, error) {
	value, err := of.eval(v)
	if err != nil {
		return false, err
	}
	b, isBool := value.(bool)
	if !isBool {
		return false, errNoTruth
	}
	return b, nil
}

// first is firstNonEmpty([...]).
type first []quick

func (f first) eval(v *variables) (any, error) {
	var found any
	for _, operand := range f {
		value, err := operand.eval(v)
		if err != nil {
			return nil, err // as CEL makes the whole list first
		}
		if found != nil {
			continue
		}
		if text, isText := value.(string); isText {
			v.read += uint64(min(len(text), maxBlank))
		}
		if v.mayRead > 0 && v.read > v.mayRead {
			return nil, errStopped
		}
		if !isHollow(value) {
			found = value
		}
	}
	return found, nil
}

// isHollow is isEmpty for what payload.Parse gives, and tells empty lists and maps too.
func isHollow(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return isBlank(v)
	case map[string]any:
		return len(v) == 0
	case map[string]string:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
