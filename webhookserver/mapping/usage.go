package mapping

import (
	"maps"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// expressions is a set of the expressions of a mapping: bit i stands for fields[i].
type expressions uint32

// alertsExpression stands for the expression alerts in a set.
const alertsExpression expressions = 1 << fieldCount

// usage is what expressions use of a value, as a tree of its keys. Usage is found once, from the
// expressions as they are written; with it, and with which expressions gave something, is found what is left
// of a payload. In each set are the expressions that use the value so.
type usage struct {
	// made: something is made of the value, so that it need not be kept if it is a scalar or a list of
	// scalars. Of an object or a list of objects, nobody knows whether all went into it.
	made expressions

	// passed: the value itself is the result, or a part of it, so that it need not be kept whatever it is.
	passed expressions

	// perhaps: the value is used unless another one was found first. It need not be kept if the alert has
	// it, word for word.
	perhaps expressions

	keys map[string]*usage

	// elements are those of the list that the value is, rest the elements or values that are looked up by
	// a key that is not known beforehand.
	elements, rest *usage
}

// at is the usage of one key.
func (u *usage) at(key string) *usage {
	if u.keys == nil {
		u.keys = map[string]*usage{}
	}
	if u.keys[key] == nil {
		u.keys[key] = &usage{}
	}
	return u.keys[key]
}

func (u *usage) ofElements() *usage {
	if u.elements == nil {
		u.elements = &usage{}
	}
	return u.elements
}

func (u *usage) ofRest() *usage {
	if u.rest == nil {
		u.rest = &usage{}
	}
	return u.rest
}

// place is what a mention of a value in an expression is for.
type place struct {
	passed bool // it is the result of the expression, or a part of it
	choice bool // only if another value was not there
}

// finder finds what an expression uses. Its scope is what the variables stand for; nil for what is no part
// of the payload.
type finder struct {
	of    expressions // the one that is walked
	scope map[string]*usage
	sure  []*usage // those that a condition has found to be there
}

// findUsage finds what the expressions of the program use.
func (p *Program) findUsage(trees []tree) {
	for _, t := range trees {
		scope := map[string]*usage{payloadVariable: p.payloadUses, alertVariable: p.alertUses}
		f := &finder{of: t.of, scope: scope}
		f.find(t.root, place{passed: true})
		p.usesHeaders = p.usesHeaders || mentions(t.root, headersVariable)
	}
}

// mark notes that a value is mentioned.
func (f *finder) mark(u *usage, at place) {
	for _, sure := range f.sure {
		if sure == u {
			at.choice = false
		}
	}
	switch {
	case at.choice:
		u.perhaps |= f.of
	case at.passed:
		u.passed |= f.of
	default:
		u.made |= f.of
	}
}

// find walks an expression.
func (f *finder) find(e ast.Expr, at place) {
	if u := f.resolve(e); u != nil {
		f.mark(u, at)
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			f.findInside(s.Operand(), at)
		}
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			f.find(element, at)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			f.find(entry.AsMapEntry().Key(), place{choice: at.choice})
			f.find(entry.AsMapEntry().Value(), at)
		}
	case ast.CallKind:
		f.findInCall(e.AsCall(), at)
	case ast.ComprehensionKind:
		f.findInLoop(e.AsComprehension(), at)
	}
}

// findInside walks an expression of whose value only a part is used. What it is made of is not used up by
// that: parseJSON(alert.message).title leaves the rest of the message.
func (f *finder) findInside(e ast.Expr, at place) {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "parseJSON" {
		return
	}
	f.find(e, place{choice: at.choice})
}

func (f *finder) findInCall(call ast.CallExpr, at place) {
	args := call.Args()
	operand := place{choice: at.choice}
	switch call.FunctionName() {
	case operators.Conditional:
		f.findChoice(args, at)
	case "orValue", "or":
		if call.IsMemberFunction() && len(args) == 1 {
			f.find(call.Target(), at)
			f.find(args[0], place{passed: at.passed, choice: true})
			return
		}
		f.findAll(call, operand)
	case "firstNonEmpty":
		if len(args) != 1 || args[0].Kind() != ast.ListKind {
			f.findAll(call, operand)
			return
		}
		for i, element := range args[0].AsList().Elements() {
			f.find(element, place{passed: at.passed, choice: at.choice || i > 0})
		}
	case "discard":
		f.findAll(call, place{passed: true})
	case "merge", "lowerKeys", "parseJSON", "optional.of", "optional.ofNonZeroValue", "flatten", "dyn", "value",
		"sort", "reverse", "distinct", "mapFromList", operators.Add:
		f.findAll(call, at)
	case operators.Index, operators.OptIndex, operators.OptSelect:
		f.findInside(args[0], at)
		f.find(args[1], operand)
	default:
		f.findAll(call, operand)
	}
}

func (f *finder) findAll(call ast.CallExpr, at place) {
	if call.IsMemberFunction() {
		f.find(call.Target(), at)
	}
	for _, arg := range call.Args() {
		f.find(arg, at)
	}
}

// findChoice walks condition ? a : b. What is used only in one branch is used perhaps, unless the condition
// is that it is there.
func (f *finder) findChoice(args []ast.Expr, at place) {
	f.find(args[0], place{choice: at.choice})
	branch := place{passed: at.passed, choice: true}
	known := len(f.sure)
	f.sure = append(f.sure, f.tested(args[0])...)
	f.find(args[1], branch)
	f.sure = f.sure[:known]
	f.find(args[2], branch)
}

// tested are the values that a condition finds to be there: has(a) && has(b), a != ”.
func (f *finder) tested(condition ast.Expr) []*usage {
	if condition.Kind() == ast.SelectKind && condition.AsSelect().IsTestOnly() {
		if u := f.resolve(condition.AsSelect().Operand()); u != nil {
			return []*usage{u.at(condition.AsSelect().FieldName())}
		}
	}
	if condition.Kind() != ast.CallKind {
		return nil
	}
	call := condition.AsCall()
	var found []*usage
	switch call.FunctionName() {
	case operators.LogicalAnd:
		for _, arg := range call.Args() {
			found = append(found, f.tested(arg)...)
		}
	case operators.NotEquals:
		for _, arg := range call.Args() {
			if u := f.resolve(arg); u != nil {
				found = append(found, u)
			}
		}
	case operators.In:
		args := call.Args()
		if u := f.resolve(args[1]); u != nil && args[0].Kind() == ast.LiteralKind {
			if key, ok := args[0].AsLiteral().(types.String); ok {
				found = append(found, u.at(string(key)))
			}
		}
	}
	return found
}

// resolve is the part of the payload that an expression stands for; nil if it is none.
func (f *finder) resolve(e ast.Expr) *usage {
	switch e.Kind() {
	case ast.IdentKind:
		return f.scope[e.AsIdent()]
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			if u := f.resolve(s.Operand()); u != nil {
				return u.at(s.FieldName())
			}
		}
	case ast.CallKind:
		return f.resolveCall(e.AsCall())
	}
	return nil
}

func (f *finder) resolveCall(call ast.CallExpr) *usage {
	args := call.Args()
	switch call.FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		u := f.resolve(args[0])
		if u == nil {
			return nil
		}
		if args[1].Kind() == ast.LiteralKind {
			if key, ok := args[1].AsLiteral().(types.String); ok {
				return u.at(string(key))
			}
		} else {
			f.find(args[1], place{})
		}
		return u.ofRest()
	case "value":
		if call.IsMemberFunction() && len(args) == 0 {
			return f.resolve(call.Target())
		}
	case "orValue":
		// With an empty value to fall back on, it stands for the value.
		if call.IsMemberFunction() && isEmptyLiteral(args[0]) {
			return f.resolve(call.Target())
		}
	}
	return nil
}

func isEmptyLiteral(e ast.Expr) bool {
	switch e.Kind() {
	case ast.ListKind:
		return len(e.AsList().Elements()) == 0
	case ast.MapKind:
		return len(e.AsMap().Entries()) == 0
	}
	return e.Kind() == ast.LiteralKind
}

// findInLoop walks what a macro such as map, filter or exists has become. Its variable stands for the
// elements of the list, or the values of the map, that it runs over.
func (f *finder) findInLoop(loop ast.ComprehensionExpr, at place) {
	scope := map[string]*usage{}
	maps.Copy(scope, f.scope)
	inner := &finder{of: f.of, scope: scope, sure: f.sure}
	ranged := f.resolveRange(rangeOf(loop))
	if ranged == nil {
		f.find(rangeOf(loop), place{choice: at.choice})
	}
	scope[loop.IterVar()], scope[loop.AccuVar()] = nil, nil
	switch {
	case ranged == nil:
		scope[loop.IterVar2()] = nil
	case loop.HasIterVar2():
		scope[loop.IterVar2()] = ranged.ofRest()
	default:
		scope[loop.IterVar()] = ranged.ofElements()
	}
	if init := f.resolve(loop.AccuInit()); init != nil {
		scope[loop.AccuVar()] = init // optMap and its like
	} else {
		f.find(loop.AccuInit(), place{choice: at.choice})
	}
	inner.find(loop.LoopCondition(), place{choice: at.choice})
	inner.find(loop.LoopStep(), at)
	inner.find(loop.Result(), at)
}

// resolveRange is resolve for what a loop runs over: of a.orValue(b) that is a.
func (f *finder) resolveRange(e ast.Expr) *usage {
	if u := f.resolve(e); u != nil || e.Kind() != ast.CallKind {
		return u
	}
	if call := e.AsCall(); call.FunctionName() == "orValue" && call.IsMemberFunction() {
		f.find(call.Args()[0], place{choice: true})
		return f.resolveRange(call.Target())
	}
	return nil
}

// mentions reports whether an expression has a variable in it.
func mentions(e ast.Expr, name string) bool {
	found := false
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		found = found || e.Kind() == ast.IdentKind && e.AsIdent() == name
	}))
	return found
}
