package mapping

import (
	"encoding/json"
	"errors"

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
		if value, ok := native(e.AsLiteral()); ok {
			return literal{value}
		}
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			if p := pathOf(e.AsSelect().Operand()); p != nil && !p.hasFallback {
				return presence{of: p, key: e.AsSelect().FieldName()}
			}
		}
	case ast.CallKind:
		return quickOfCall(e.AsCall())
	}
	return nil
}

func quickOfCall(call ast.CallExpr) quick {
	args := call.Args()
	switch call.FunctionName() {
	case operators.Conditional:
		condition, yes, no := quickOf(args[0]), quickOf(args[1]), quickOf(args[2])
		if condition != nil && yes != nil && no != nil {
			return choice{condition, yes, no}
		}
	case operators.Equals, operators.NotEquals:
		return quickOfComparison(call)
	case operators.LogicalAnd, operators.LogicalOr:
		both := logic{or: call.FunctionName() == operators.LogicalOr}
		for _, arg := range args {
			operand := quickOf(arg)
			if operand == nil {
				return nil
			}
			both.operands = append(both.operands, operand)
		}
		return both
	case operators.LogicalNot:
		if operand := quickOf(args[0]); operand != nil {
			return negation{operand}
		}
	case "firstNonEmpty":
		return quickOfFirst(args)
	}
	return nil
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
	// Of a path without a fallback, CEL compares the optional value, which is never equal to a literal.
	operand := quickOf(value)
	if p, isPath := operand.(*path); operand == nil || isPath && p.optional() && !p.hasFallback {
		return nil
	}
	expected, ok := native(other.AsLiteral())
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
	var f first
	for _, element := range args[0].AsList().Elements() {
		operand := quickOf(element)
		if operand == nil {
			return nil
		}
		f = append(f, operand)
	}
	return f
}

type literal struct{ value any }

func (l literal) eval(*variables) (any, error) { return l.value, nil }

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
		// The text of a literal time or of bytes is no text to CEL.
		text, isText := c.literal.(types.String)
		equal = isText && value == string(text)
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
