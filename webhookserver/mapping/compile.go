package mapping

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// CompileError says what is wrong with one expression of an integration, or with the name of its preset.
type CompileError struct {
	// Field is its place in the resource: "spec.mapping.fields.title".
	Field string

	// Line and Column are where in the expression it shows, from 1 on; 0 when it is about the whole of it.
	Line, Column int

	// Message says what is wrong, in one line.
	Message string
}

// Error gives place, position and message.
func (e *CompileError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Field, e.Message)
	}
	return fmt.Sprintf("%s: line %d, column %d: %s", e.Field, e.Line, e.Column, e.Message)
}

// Program is a compiled mapping. It may be used by many goroutines at a time.
type Program struct {
	preset string
	alerts *expression
	drop   *expression
	fields [fieldCount]*expression

	discards    []*path // the arguments of discard
	usesHeaders bool
	mapped      bool // there is an expression
	broken      bool // the integration's mapping does not compile; this stands in for it
}

// expression is one compiled expression.
type expression struct {
	name   string // what it is of: "title", "alerts"
	field  string // its place in the resource, or in the preset
	source string
	preset bool        // it is the preset's
	nodes  uint64      // how much there is to evaluate
	quick  quick       // how it is evaluated without CEL; nil if it cannot be
	run    cel.Program // how CEL evaluates it
	brief  cel.Program // the same for an alert that has little left to spend
	loops  bool        // it has a loop, so that it may have to be interrupted

	// ownKeys are the keys of the alert that it mentions and that the payload rules would read for its field.
	// When it gives nothing it does not want them.
	ownKeys []string
}

// Compile compiles the mapping of an integration: that of the preset, if one is named, overridden field by
// field by m, if there is one. The error joins a *CompileError for each thing that is wrong.
func Compile(preset string, m *v1alpha1.Mapping) (*Program, error) {
	base := &v1alpha1.Mapping{}
	if preset != "" {
		presets, err := loadedPresets()
		if err != nil {
			return nil, err
		}
		known, found := presets.byName[preset]
		if !found {
			return nil, &CompileError{Field: "spec.preset", Message: fmt.Sprintf("there is no preset %q; there are %s",
				preset, strings.Join(presets.names, ", "))}
		}
		base = &known.Mapping
	}
	return compile(preset, base, m)
}

// compile compiles the mapping base, overridden by own.
func compile(preset string, base, own *v1alpha1.Mapping) (*Program, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("making the environment of expressions: %w", err)
	}
	if own == nil {
		own = &v1alpha1.Mapping{}
	}
	c := &compiler{env: env}
	p := &Program{preset: preset}
	p.alerts = c.expression("alerts", base.Alerts, own.Alerts, listKinds, 0)
	p.drop = c.expression("drop", base.Drop, own.Drop, boolKinds, 0)
	for i, f := range fields {
		kinds := textKinds
		if f.object {
			kinds = objectKinds
		}
		p.fields[i] = c.expression("fields."+f.name, *f.expression(&base.Fields), *f.expression(&own.Fields), kinds, 1<<i)
	}
	if err := errors.Join(c.errors...); err != nil {
		return nil, err
	}
	p.mapped, p.usesHeaders, p.discards = c.compiled > 0, c.usesHeaders, c.discards
	return p, nil
}

// compiler collects what compiling several expressions gives.
type compiler struct {
	env         *cel.Env
	errors      []error
	compiled    int
	usesHeaders bool
	discards    []*path
}

// The kinds of values that an expression may give; those of type dyn show when it is evaluated.
var (
	listKinds   = []types.Kind{types.ListKind, types.MapKind}
	boolKinds   = []types.Kind{types.BoolKind}
	objectKinds = []types.Kind{types.MapKind}
	textKinds   = []types.Kind{types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind,
		types.TimestampKind, types.DurationKind}
)

// expression compiles what own says, else what base says; nil if neither says anything.
func (c *compiler) expression(name string, base, own v1alpha1.Expression, kinds []types.Kind,
	of expressions) *expression {
	e := &expression{name: strings.TrimPrefix(name, "fields."), field: "spec.mapping." + name, source: string(own)}
	if e.source == "" {
		e.source, e.preset = string(base), true
	}
	if e.source == "" {
		return nil
	}
	if len([]rune(e.source)) > maxExpressionLength {
		c.fail(&CompileError{Field: e.field, Message: fmt.Sprintf("it is longer than %d characters", maxExpressionLength)})
		return nil
	}
	checked := c.check(e)
	if checked == nil {
		return nil
	}
	if !fits(checked.OutputType(), kinds) {
		c.fail(&CompileError{Field: e.field, Line: 1, Column: 1, Message: fmt.Sprintf("it gives a %s; wanted is %s",
			checked.OutputType(), wanted(kinds))})
		return nil
	}
	root := checked.NativeRep().Expr()
	c.compiled++
	c.inspect(e, root, of)
	e.nodes = uint64(ast.MaxID(checked.NativeRep()))
	e.quick = quickOf(root)
	e.loops = hasLoop(root)
	if err := c.plan(e, checked); err != nil {
		c.fail(&CompileError{Field: e.field, Message: oneLine(err.Error())})
		return nil
	}
	return e
}

// plan makes the programs of an expression.
func (c *compiler) plan(e *expression, checked *cel.Ast) (err error) {
	if e.run, err = c.env.Program(checked, programOptions(maxExpressionCost)...); err != nil {
		return err
	}
	if e.quick != nil {
		e.brief = e.run // CEL evaluates it rarely, and it has no loops
		return nil
	}
	e.brief, err = c.env.Program(checked, programOptions(maxAlertCost)...)
	return err
}

// check parses an expression and checks its types; nil if it does not pass.
func (c *compiler) check(e *expression) *cel.Ast {
	if strings.Count(e.source, "optMap")+strings.Count(e.source, "optFlatMap") > maxOptMaps {
		c.fail(&CompileError{Field: e.field, Message: fmt.Sprintf("it has more than %d optMap and optFlatMap", maxOptMaps)})
		return nil
	}
	checked, issues := c.env.Parse(e.source)
	if issues.Err() == nil {
		markLoops(checked.NativeRep())
		checked, issues = c.env.Check(checked)
	}
	if issues.Err() == nil {
		return checked
	}
	for _, issue := range issues.Errors() {
		c.fail(&CompileError{Field: e.field, Line: max(issue.Location.Line(), 1), Column: max(issue.Location.Column(), 0) + 1,
			Message: oneLine(issue.Message)})
	}
	return nil
}

// inspect notes whether an expression mentions the headers, the own keys of its field, and what it discards.
func (c *compiler) inspect(of *expression, root ast.Expr, bit expressions) {
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if p := pathOf(e); p != nil {
			c.usesHeaders = c.usesHeaders || p.root == headersVariable
			if p.root == alertVariable && len(p.steps) == 1 {
				if field, listed := fieldOfKey[p.steps[0].key]; listed && 1<<field == bit {
					of.ownKeys = append(of.ownKeys, p.steps[0].key)
				}
			}
			return
		}
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != "discard" || e.AsCall().Args()[0].Kind() != ast.ListKind {
			return
		}
		for _, element := range e.AsCall().Args()[0].AsList().Elements() {
			if p := pathOf(element); p != nil {
				c.discards = append(c.discards, p)
			}
		}
	}))
}

func hasLoop(e ast.Expr) bool {
	found := false
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		found = found || e.Kind() == ast.ComprehensionKind
	}))
	return found
}

func (c *compiler) fail(err *CompileError) {
	c.errors = append(c.errors, err)
}

// fits reports whether a type may turn out as one of the kinds: it is one, or not known, or optional.
func fits(t *types.Type, kinds []types.Kind) bool {
	if t.Kind() == types.OpaqueKind && t.TypeName() == types.OptionalType.TypeName() {
		return fits(t.Parameters()[0], kinds)
	}
	switch t.Kind() {
	case types.DynKind, types.AnyKind, types.NullTypeKind, types.TypeParamKind:
		return true
	}
	for _, kind := range kinds {
		if t.Kind() == kind {
			return true
		}
	}
	return false
}

func wanted(kinds []types.Kind) string {
	switch kinds[0] {
	case types.ListKind:
		return "a list of alerts"
	case types.BoolKind:
		return "true or false"
	case types.MapKind:
		return "a map"
	}
	return "a text, a number, true or false, or a time"
}
