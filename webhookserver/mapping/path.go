package mapping

import (
	"maps"
	"slices"
	"strconv"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// path is a place in the alert or the payload that an expression names, such as alert.?auth.?tokens[0].
type path struct {
	root  string
	steps []string // keys, and indexes in decimal

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
				return pathOf(call.Args()[0]).down(strconv.Itoa(int(step)))
			}
		case "orValue":
			return pathOf(call.Target())
		}
	}
	return nil
}

// down returns the path with one more step; it takes nil.
func (p *path) down(step string) *path {
	if p != nil {
		p.steps = append(p.steps, step)
	}
	return p
}

// discards returns the paths that the mapping discards.
func (p *Program) discards() (all []*path) {
	for _, e := range p.expressions {
		if e != nil {
			all = append(all, e.discards...)
		}
	}
	return all
}

// withoutDiscards returns a value without what the mapping discards of it, even if the expression fails: it may be a
// credential. roots are the variables that have the value.
func (p *Program) withoutDiscards(value any, roots ...string) any {
	for _, d := range p.discards() {
		if len(d.steps) > 0 && slices.Contains(roots, d.root) {
			value = d.cutFrom(value)
		}
	}
	return value
}

// cutFrom returns a value without what is at the path in it.
func (p *path) cutFrom(value any) any {
	if found, _ := valueAt(value, p.steps); p.conditional && !isSame(found, p.constant) {
		return value
	}
	rest, _ := cut(value, p.steps)
	return rest
}

// valueAt returns what is at a path in a value.
func valueAt(value any, steps []string) (found any, exists bool) {
	for _, step := range steps {
		if value, exists = partOf(value, step); !exists {
			return nil, false
		}
	}
	return value, true
}

// partOf returns the entry of a map, or the element of a list at an index in decimal.
func partOf(value any, step string) (part any, found bool) {
	switch v := value.(type) {
	case map[string]any:
		part, found = v[step]
	case []any:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(v) {
			return v[i], true
		}
	}
	return part, found
}

// cut returns a value without what is at a path in it; some is false when nothing is left.
func cut(value any, steps []string) (rest any, some bool) {
	if len(steps) == 0 {
		return nil, false
	}
	part, found := partOf(value, steps[0])
	if !found {
		return value, true
	}
	rest, some = cut(part, steps[1:])
	switch v := value.(type) {
	case map[string]any:
		left := maps.Clone(v)
		if left[steps[0]] = rest; !some {
			delete(left, steps[0])
		}
		return left, len(left) > 0
	case []any:
		left := slices.Clone(v)
		at, _ := strconv.Atoi(steps[0])
		if left[at] = rest; !some {
			left = slices.Delete(left, at, at+1)
		}
		return left, len(left) > 0
	}
	return value, true
}
