package mapping

import (
	"errors"
	"fmt"
	"slices"
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

	// Line and Column are the position in the expression, from 1 on; 0 when the error is about all of it.
	Line, Column int

	// Message says what is wrong, in one line.
	Message string
}

// Error returns place, position and message.
func (e *CompileError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Field, e.Message)
	}
	return fmt.Sprintf("%s: line %d, column %d: %s", e.Field, e.Line, e.Column, e.Message)
}

// Program is a compiled mapping. Many goroutines may use it at a time.
type Program struct {
	preset string
	alerts *expression
	drop   *expression
	fields [fieldCount]*expression

	discards []*path // the arguments of discard
	mapped   bool    // there is an expression
	broken   bool    // the integration's mapping does not compile; this program replaces it
}

// expression is one compiled expression.
type expression struct {
	name    string // of the field: "title", or "alerts" or "drop"
	field   string // its place in the resource, or in the preset
	source  string
	preset  bool // it is the preset's
	nodes   int
	bytes   int // of memory, estimated
	program cel.Program

	// ownKeys are the keys of the alert that it mentions and that the payload rules would read for its field.
	// When it gives nothing, they do not read them.
	ownKeys []string
}

// Compile compiles the mapping of an integration: that of the preset, if one is named, overridden field by
// field by m, if there is one. The error joins a *CompileError for each mistake.
func Compile(preset string, m *v1alpha1.Mapping) (*Program, error) {
	env, err := loadedEnvironment()
	if err != nil {
		return nil, fmt.Errorf("making the environment of expressions: %w", err)
	}
	base, own := &v1alpha1.Mapping{}, m
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
	if own == nil {
		own = &v1alpha1.Mapping{}
	}
	p := &Program{preset: preset}
	c := &compiler{env: env, program: p}
	p.alerts = c.expression("alerts", base.Alerts, own.Alerts, listKinds)
	p.drop = c.expression("drop", base.Drop, own.Drop, boolKinds)
	for i, f := range fields {
		kinds := textKinds
		if f.object {
			kinds = objectKinds
		}
		p.fields[i] = c.expression(f.name, *f.expression(&base.Fields), *f.expression(&own.Fields), kinds)
	}
	if err := errors.Join(c.errors...); err != nil {
		return nil, err
	}
	return p, nil
}

// compiler compiles the expressions of a program.
type compiler struct {
	env          *environment
	program      *Program
	errors       []error
	instructions int // of the regular expressions of the current expression
}

// The kinds of values that an expression may give. Those of an expression of type dyn show when it is evaluated.
var (
	listKinds   = []types.Kind{types.ListKind, types.MapKind}
	boolKinds   = []types.Kind{types.BoolKind}
	objectKinds = []types.Kind{types.MapKind}
	textKinds   = []types.Kind{types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind,
		types.TimestampKind, types.DurationKind}
)

// expression compiles what own says, else what base says; nil if neither says anything.
func (c *compiler) expression(name string, base, own v1alpha1.Expression, kinds []types.Kind) *expression {
	e := &expression{name: name, field: "spec.mapping.fields." + name, source: string(own)}
	if name == "alerts" || name == "drop" {
		e.field = "spec.mapping." + name
	}
	if e.source == "" {
		e.source, e.preset = string(base), true
	}
	if e.source == "" {
		return nil
	}
	if len([]rune(e.source)) > maxExpressionLength {
		c.fail(e, 0, 0, fmt.Sprintf("it is longer than %d characters", maxExpressionLength))
		return nil
	}
	checked := c.check(e)
	if checked == nil {
		return nil
	}
	if !fits(checked.OutputType(), kinds) {
		c.fail(e, 1, 1, fmt.Sprintf("it gives a %s; wanted is %s", checked.OutputType(), wanted(kinds)))
		return nil
	}
	c.program.mapped = true
	c.inspect(e, checked.NativeRep().Expr())
	c.instructions = 0
	var err error
	if e.program, err = c.env.Program(checked, cel.CustomDecoratorV2(c.metered)); err != nil {
		c.fail(e, 0, 0, err.Error())
		return nil
	}
	e.nodes = int(ast.MaxID(checked.NativeRep()))
	e.bytes = expressionBytes + len(e.source) + e.nodes*nodeBytes + c.instructions*instructionBytes
	return e
}

// check parses an expression and checks its types; nil if it does not pass.
func (c *compiler) check(e *expression) *cel.Ast {
	checked, issues := c.env.Parse(e.source)
	if issues.Err() == nil {
		addMeters(checked.NativeRep())
		checked, issues = c.env.Check(checked)
	}
	if issues.Err() == nil {
		return checked
	}
	for _, issue := range issues.Errors() {
		c.fail(e, max(issue.Location.Line(), 1), max(issue.Location.Column(), 0)+1, issue.Message)
	}
	return nil
}

// fail adds a CompileError.
func (c *compiler) fail(e *expression, line, column int, message string) {
	c.errors = append(c.errors, &CompileError{Field: e.field, Line: line, Column: column, Message: oneLine(message)})
}

// inspect notes the own keys of an expression's field that it mentions, and what it discards: that is gone
// even if the expression fails.
func (c *compiler) inspect(of *expression, root ast.Expr) {
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if p := pathOf(e); p != nil && p.root == alertVariable && len(p.steps) == 1 {
			key, _ := p.steps[0].(string)
			if field, listed := fieldOfKey[key]; listed && fields[field].name == of.name {
				of.ownKeys = append(of.ownKeys, key)
			}
		}
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != "discard" || e.AsCall().Args()[0].Kind() != ast.ListKind {
			return
		}
		for _, element := range e.AsCall().Args()[0].AsList().Elements() {
			if p := pathOf(element); p != nil {
				c.program.discards = append(c.program.discards, p)
			}
		}
	}))
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
	return slices.Contains(kinds, t.Kind())
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
