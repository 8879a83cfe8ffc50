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

// withoutDiscards returns a value without what the mapping discards of it, even if the expression fails: it may be a
// credential. roots are the variables that have the value.
func (p *Program) withoutDiscards(value any, roots ...string) any {
	found := &cuts{map[string]*cuts{}}
	for _, e := range p.expressions {
		if e == nil {
			continue
		}
		for _, d := range e.discards {
			if len(d.steps) > 0 && slices.Contains(roots, d.root) && d.isIn(value) {
				found.add(d.steps)
			}
		}
	}
	if len(found.below) == 0 {
		return value
	}
	rest, _ := found.from(value)
	return rest
}

// isIn reports whether a value has what is meant at the path.
func (p *path) isIn(value any) bool {
	found, exists := valueAt(value, p.steps)
	return exists && (!p.conditional || isSame(found, p.constant))
}

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

// cuts is the tree of the paths that are cut from one value, so that each object is copied once and indexes are those of the
// value as it was sent. Nil cuts all. It is a struct because kube-api-linter recurses for ever over a map type of itself.
type cuts struct{ below map[string]*cuts }

func (c *cuts) add(steps []string) {
	for i, step := range steps {
		within, known := c.below[step]
		switch {
		case known && within == nil:
			return
		case i == len(steps)-1:
			c.below[step] = nil
		case !known:
			within = &cuts{map[string]*cuts{}}
			c.below[step] = within
		}
		c = within
	}
}

// from returns a value without what is cut; some is false when nothing is left.
func (c *cuts) from(value any) (rest any, some bool) {
	if c == nil {
		return nil, false
	}
	switch v := value.(type) {
	case map[string]any:
		left := maps.Clone(v)
		for key, within := range c.below {
			if left[key], some = within.from(v[key]); !some {
				delete(left, key)
			}
		}
		return left, len(left) > 0
	case []any:
		var left []any
		for i, part := range v {
			within, known := c.below[strconv.Itoa(i)]
			if known {
				part, some = within.from(part)
			}
			if !known || some {
				left = append(left, part)
			}
		}
		return left, len(left) > 0
	}
	return value, true
}
