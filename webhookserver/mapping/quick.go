package mapping

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// quick is an expression, or a part of one, that is evaluated without CEL: what most mappings are made of
// (paths, literals, orValue, firstNonEmpty, conditions that compare with literals). It gives what CEL gives,
// as payload.Parse would write it, with a fraction of the work and memory; and it passes a number on as it
// was sent. What it takes is bounded by the length of the expression, since it has no loops.
//
// A value of nil stands for null and for a missing optional value.
type quick interface {
	eval(v *variables) (any, error)
}

// quickOf is the quick form of an expression, nil if it has none.
func quickOf(e ast.Expr) quick {
	if p := pathOf(e); p != nil {
		return p
	}
	switch e.Kind() {
	case ast.LiteralKind:
		if value, ok := plainLiteral(e); ok {
			return literal{value}
		}
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			if p := pathOf(e.AsSelect().Operand()); p != nil && !p.hasFallback && !p.optional() {
				return presence{of: p, key: e.AsSelect().FieldName()}
			}
		}
	case ast.ListKind:
		if elements := quickOfAll(e.AsList().Elements()); elements != nil && len(e.AsList().OptionalIndices()) == 0 {
			return list(elements)
		}
	case ast.MapKind:
		return quickOfMap(e.AsMap())
	case ast.CallKind:
		return quickOfCall(e.AsCall())
	}
	return nil
}

// plainLiteral is the value of a literal that JSON has too, so not of bytes.
func plainLiteral(e ast.Expr) (any, bool) {
	if e.Kind() != ast.LiteralKind {
		return nil, false
	}
	if _, isBytes := e.AsLiteral().(types.Bytes); isBytes {
		return nil, false
	}
	return native(e.AsLiteral())
}

// quickOfAll is the quick form of each of several expressions, nil if one has none.
func quickOfAll(all []ast.Expr) []quick {
	quicks := make([]quick, 0, len(all))
	for _, e := range all {
		q := quickOf(e)
		if q == nil {
			return nil
		}
		quicks = append(quicks, q)
	}
	return quicks
}

// quickOfMap takes a map whose keys are texts, each another one.
func quickOfMap(m ast.MapExpr) quick {
	entries := object{}
	for _, e := range m.Entries() {
		entry := e.AsMapEntry()
		value := quickOf(entry.Value())
		if value == nil || entry.Key().Kind() != ast.LiteralKind {
			return nil
		}
		if entry.IsOptional() {
			of, isMaybe := value.(maybe)
			if !isMaybe || !mayBeOptional(value) {
				return nil
			}
			value = ifFound{of}
		}
		key, isText := entry.Key().AsLiteral().(types.String)
		if _, taken := entries[string(key)]; !isText || taken {
			return nil
		}
		entries[string(key)] = value
	}
	return entries
}

func quickOfCall(call ast.CallExpr) quick {
	args := call.Args()
	switch call.FunctionName() {
	case operators.Conditional:
		if parts := quickOfAll(args); parts != nil && !mayBeOptional(parts[0]) {
			return choice{condition: parts[0], yes: parts[1], no: parts[2]}
		}
	case operators.Equals, operators.NotEquals:
		return quickOfComparison(call)
	case operators.LogicalAnd, operators.LogicalOr:
		if operands := quickOfAll(args); operands != nil && !slices.ContainsFunc(operands, mayBeOptional) {
			return logic{or: call.FunctionName() == operators.LogicalOr, operands: operands}
		}
	case operators.LogicalNot, "withoutPort":
		return quickOfUnary(call)
	case "firstNonEmpty":
		return quickOfFirst(args)
	case "dyn":
		return quickOf(args[0])
	case "orValue":
		return quickOfOrValue(call)
	case operators.OptIndex:
		return quickOfLookup(args)
	}
	return quickOfTextCall(call)
}

// quickOfUnary takes !operand and withoutPort(operand).
func quickOfUnary(call ast.CallExpr) quick {
	operand := quickOf(call.Args()[0])
	switch {
	case operand == nil || mayBeOptional(operand):
		return nil
	case call.FunctionName() == operators.LogicalNot:
		return negation{operand}
	}
	return hostOf{operand}
}

// mayBeOptional reports whether an expression may give an optional value. CEL takes none for a condition,
// and finds none equal to a literal, whatever it holds.
func mayBeOptional(q quick) bool {
	switch q := q.(type) {
	case *path:
		return q.optional() && !q.hasFallback
	case choice:
		return mayBeOptional(q.yes) || mayBeOptional(q.no)
	case orElse:
		return mayBeOptional(q.fallback)
	case lookup:
		return true
	}
	return false
}

// quickOfComparison takes comparisons with a literal.
func quickOfComparison(call ast.CallExpr) quick {
	value, other := call.Args()[0], call.Args()[1]
	if value.Kind() == ast.LiteralKind {
		value, other = other, value
	}
	if other.Kind() != ast.LiteralKind {
		return nil
	}
	operand := quickOf(value)
	if operand == nil || mayBeOptional(operand) {
		return nil
	}
	expected, ok := plainLiteral(other)
	if !ok {
		return nil
	}
	return comparison{of: operand, literal: other.AsLiteral(), expected: expected,
		negated: call.FunctionName() == operators.NotEquals}
}

func quickOfFirst(args []ast.Expr) quick {
	if len(args) != 1 || args[0].Kind() != ast.ListKind || len(args[0].AsList().OptionalIndices()) > 0 {
		return nil
	}
	elements := quickOfAll(args[0].AsList().Elements())
	if elements == nil {
		return nil
	}
	return first(elements)
}

// quickOfOrValue takes optional.orValue(other); path.orValue(literal) is a path still.
func quickOfOrValue(call ast.CallExpr) quick {
	if !call.IsMemberFunction() {
		return nil
	}
	target, isMaybe := quickOf(call.Target()).(maybe)
	fallback := quickOf(call.Args()[0])
	if !isMaybe || fallback == nil || !mayBeOptional(target) {
		return nil
	}
	return orElse{of: target, fallback: fallback}
}

// quickOfLookup takes {"a": "x", "b": "y"}[?key], all of whose keys and values are literals.
func quickOfLookup(args []ast.Expr) quick {
	if args[0].Kind() != ast.MapKind {
		return nil
	}
	table := map[string]any{}
	for _, e := range args[0].AsMap().Entries() {
		entry := e.AsMapEntry()
		key, keyIsLiteral := plainLiteral(entry.Key())
		value, valueIsLiteral := plainLiteral(entry.Value())
		text, isText := key.(string)
		if _, taken := table[text]; taken || !keyIsLiteral || !valueIsLiteral || !isText || entry.IsOptional() {
			return nil
		}
		table[text] = value
	}
	key := quickOf(args[1])
	if key == nil || mayBeOptional(key) {
		return nil
	}
	// CEL takes a number as a key when it is a member of the payload, and fails when it is all of it.
	if p, isPath := key.(*path); isPath && len(p.steps) == 0 {
		return nil
	}
	return lookup{table: table, key: key}
}

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
