package mapping

import (
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
