package mapping

import (
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// path is a place in the alert or the payload that an expression names, such as alert.?auth.?tokens[0].
type path struct {
	root  string
	steps []any // keys, of type string, and indexes, of type int

	conditional bool // only a value that equals constant is meant
	constant    any
}

// pathOf returns the path that an expression is, nil if it is none.
func pathOf(e ast.Expr) *path {
	switch e.Kind() {
	case ast.IdentKind:
		if name := e.AsIdent(); name == alertVariable || name == payloadVariable {
			return &path{root: name}
		}
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			return pathOf(s.Operand()).down(s.FieldName())
		}
	case ast.CallKind:
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			if call.Args()[1].Kind() != ast.LiteralKind {
				return nil
			}
			switch step := call.Args()[1].AsLiteral().(type) {
			case types.String:
				return pathOf(call.Args()[0]).down(string(step))
			case types.Int:
				return pathOf(call.Args()[0]).down(int(step))
			}
		case "orValue":
			return pathOf(call.Target())
		}
	}
	return nil
}

// down returns the path with one more step; it takes nil.
func (p *path) down(step any) *path {
	if p != nil {
		p.steps = append(p.steps, step)
	}
	return p
}

// isOf reports whether the path leads into the alert, or into the payload.
func (p *path) isOf(root string) bool { return len(p.steps) > 0 && p.root == root }

// cutFrom returns a value without what is at the path in it.
func (p *path) cutFrom(value any) any {
	if p.conditional && !isSame(valueAt(value, p.steps), p.constant) {
		return value
	}
	rest, _ := cut(value, p.steps)
	return rest
}

// valueAt returns what is at a path in a value, nil when nothing is.
func valueAt(value any, steps []any) any {
	for _, step := range steps {
		switch v := value.(type) {
		case map[string]any:
			key, _ := step.(string)
			value = v[key]
		case []any:
			at, isIndex := step.(int)
			if !isIndex || at < 0 || at >= len(v) {
				return nil
			}
			value = v[at]
		default:
			return nil
		}
	}
	return value
}

// cut returns a value without what is at a path in it; some is false when nothing is left.
func cut(value any, steps []any) (rest any, some bool) {
	if len(steps) == 0 {
		return nil, false
	}
	switch v := value.(type) {
	case map[string]any:
		key, isKey := steps[0].(string)
		element, found := v[key]
		if !found || !isKey {
			return value, true
		}
		left := maps.Clone(v)
		if left[key], some = cut(element, steps[1:]); !some {
			delete(left, key)
		}
		return left, len(left) > 0
	case []any:
		at, isIndex := steps[0].(int)
		if !isIndex || at < 0 || at >= len(v) {
			return value, true
		}
		left := slices.Clone(v)
		if left[at], some = cut(v[at], steps[1:]); !some {
			left = slices.Delete(left, at, at+1)
		}
		return left, len(left) > 0
	}
	return value, true
}
