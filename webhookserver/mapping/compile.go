package mapping

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/origins"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// CompileError says what is wrong with one expression of an integration, or with the name of its preset.
type CompileError struct {
	Field        string // its place in the resource: "spec.mapping.fields.title"
	Line, Column int    // in the expression, from 1 on; 0 when the error is about all of it
	Message      string // what is wrong, in one line
}

func (e *CompileError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Field, e.Message)
	}
	return fmt.Sprintf("%s: line %d, column %d: %s", e.Field, e.Line, e.Column, e.Message)
}

// Program is a compiled mapping. Many goroutines may use it at a time.
type Program struct {
	expressions [expressionCount]*expression // those of the fields, then alerts and drop; nil without one
	preset      string
	digests     digests     // of what the expressions are from
	bytes       int         // of memory, estimated, of its own expressions; a test compares it with what is allocated
	handshake   *expression // of the preset; nil without one
	messageKeys [][]string  // the steps of the paths of what names one message
	recognized  string      // the preset, if auto has chosen it for a payload
	auto        bool        // each payload is read by the preset that recognizes it
	broken      bool        // the integration's mapping does not compile; this program replaces it
}

// The places of the expressions that give no field.
const (
	alertsIndex = origins.Count + iota
	dropIndex
	expressionCount
)

type expression struct {
	name    string // of the field: "title", or "alerts" or "drop"
	field   string // its place in the resource, or in the preset
	source  string
	preset  string // the name of the preset that it is part of, empty for spec.mapping's own
	nodes   int
	bytes   int // of memory, estimated
	program cel.Program

	// ownKeys are the keys of the alert that it mentions and that the payload rules would read for its field.
	// When it gives nothing, they do not read them.
	ownKeys []string

	discards []*path // the arguments of discard in it
}

// Compile compiles the mapping of an integration: that of the preset, if one reads its payloads, overridden field by
// field by m, if there is one. The error joins a *CompileError for each mistake.
func Compile(preset string, m *v1alpha1.Mapping) (*Program, error) {
	own, err := compileMapping("", m)
	base := &Program{auto: preset == Auto}
	if preset != "" && preset != Auto {
		var presetErr error
		if base, presetErr = presetProgram(preset); m == nil {
			return base, presetErr // shared
		}
		err = errors.Join(presetErr, err)
	}
	if err != nil {
		return nil, err
	}
	return own.over(base), nil
}

// over returns the program that uses the expressions of p, and those of base for what p has none for.
func (p *Program) over(base *Program) *Program {
	merged := *p
	merged.preset, merged.auto, merged.handshake, merged.messageKeys = base.preset, base.auto, base.handshake, base.messageKeys
	merged.digests.preset = base.digests.preset
	for i, e := range base.expressions {
		if merged.expressions[i] == nil {
			merged.expressions[i] = e
		}
	}
	return &merged
}

// compileMapping compiles the expressions of a mapping, those of a preset if it has a name.
func compileMapping(preset string, m *v1alpha1.Mapping) (*Program, error) {
	p := &Program{preset: preset}
	if m == nil {
		return p, nil
	}
	if p.digests.mapping = digestOf(m); preset != "" {
		p.digests = digests{preset: p.digests.mapping}
	}
	var mistakes []error
	compile := func(i int, name, field string, source v1alpha1.Expression, wanted resultKind) {
		e, err := compileExpression(&expression{name: name, field: field, source: string(source), preset: preset}, wanted)
		if p.expressions[i] = e; e != nil {
			p.bytes += e.bytes
		}
		mistakes = append(mistakes, err)
	}
	compile(alertsIndex, "alerts", "spec.mapping.alerts", m.Alerts, listResult)
	compile(dropIndex, "drop", "spec.mapping.drop", m.Drop, boolResult)
	for i, source := range expressionsOf(&m.Fields) {
		wanted := textResult
		if origins.Field(i).IsBag() {
			wanted = objectResult
		}
		compile(i, fieldNames[i], "spec.mapping.fields."+fieldNames[i], source, wanted)
	}
	return p, errors.Join(mistakes...)
}

type compiler struct {
	*environment

	expression   *expression
	mistakes     []error
	instructions int // of its regular expressions
}

// resultKind says which kinds of values an expression may give. Those of an expression of type dyn show when it is evaluated.
type resultKind struct {
	name  string
	kinds []types.Kind
}

var (
	listResult   = resultKind{"a list of alerts", []types.Kind{types.ListKind, types.MapKind}}
	boolResult   = resultKind{"true or false", []types.Kind{types.BoolKind}}
	objectResult = resultKind{"a map", []types.Kind{types.MapKind}}
	textResult   = resultKind{"a text, a number, true or false, or a time", []types.Kind{types.StringKind, types.IntKind,
		types.UintKind, types.DoubleKind, types.BoolKind, types.TimestampKind, types.DurationKind}}
)

// compileExpression compiles the source of an expression; the result is nil without one.
func compileExpression(e *expression, wanted resultKind) (*expression, error) {
	if e.source == "" {
		return nil, nil
	}
	c := &compiler{environment: loadedEnvironment(), expression: e}
	c.compile(wanted)
	if len(c.mistakes) > 0 {
		return nil, errors.Join(c.mistakes...)
	}
	return e, nil
}

func (c *compiler) compile(wanted resultKind) {
	e := c.expression
	if len([]rune(e.source)) > maxExpressionLength {
		c.fail(nil, fmt.Sprintf("it is longer than %d characters", maxExpressionLength))
		return
	}
	parsed, issues := c.Parse(e.source)
	if issues.Err() != nil {
		first := issues.Errors()[0] // the others follow from it
		c.fail(first.Location, reword(first.Message))
		return
	}
	addMeters(parsed.NativeRep())
	checked, issues := c.Check(parsed)
	if issues.Err() != nil {
		for _, issue := range issues.Errors() {
			c.fail(issue.Location, c.explain(issue, parsed.NativeRep()))
		}
		return
	}
	if !fits(checked.OutputType(), wanted.kinds) {
		c.fail(common.NewLocation(1, 0), fmt.Sprintf("it evaluates to %s, expected %s", checked.OutputType(), wanted.name))
		return
	}
	tree := checked.NativeRep()
	if root := ast.NavigateAST(tree); c.checkConstants(tree, root) {
		c.checkConstant(tree, root)
	}
	if len(c.mistakes) > 0 {
		return
	}
	e.inspect(tree.Expr())
	c.instructions = 0
	var err error
	if e.program, err = c.Program(checked, cel.CustomDecoratorV2(c.metered)); err != nil {
		c.failAt(tree, tree.Expr().ID(), err)
	}
	e.nodes = int(ast.MaxID(tree))
	e.bytes = expressionBytes + len(e.source) + e.nodes*nodeBytes + c.instructions*instructionBytes
}

// fail adds a CompileError about a place in an expression, or about all of it.
func (c *compiler) fail(at common.Location, message string) {
	mistake := &CompileError{Field: c.expression.field, Message: oneLine(message)}
	if at != nil {
		mistake.Line, mistake.Column = max(at.Line(), 1), max(at.Column(), 0)+1
	}
	c.mistakes = append(c.mistakes, mistake)
}

// inspect notes the own keys of an expression's field that it mentions, and what it discards.
func (of *expression) inspect(root ast.Expr) {
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		if p := pathOf(e); p != nil && p.root == alertVariable && len(p.steps) == 1 {
			key := p.steps[0]
			if field, listed := payload.KeyField(key); listed && fieldNames[field] == of.name {
				of.ownKeys = append(of.ownKeys, key)
			}
		}
		if e.Kind() == ast.CallKind {
			of.inspectDiscard(e.AsCall())
		}
	}))
}

func (of *expression) inspectDiscard(call ast.CallExpr) {
	switch args := call.Args(); {
	case call.FunctionName() == "discard" && args[0].Kind() == ast.ListKind:
		for _, element := range args[0].AsList().Elements() {
			if p := pathOf(element); p != nil {
				of.discards = append(of.discards, p)
			}
		}
	case call.FunctionName() == "discardDefault" && args[1].Kind() == ast.LiteralKind:
		if p := pathOf(args[0]); p != nil {
			p.conditional = true
			p.constant, _ = native(args[1].AsLiteral())
			of.discards = append(of.discards, p)
		}
	}
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

// compilePattern compiles the regular expression of a call, which must be a literal: what a sender wrote is never compiled.
func (c *compiler) compilePattern(call *meteredCall) error {
	wrong := func(message string) error { return &positionError{errors.New(message), call.args[1].ID()} }
	literal, isLiteral := call.args[1].(interpreter.InterpretableConst)
	if !isLiteral {
		return wrong("the regular expression must be a literal")
	}
	source, isText := literal.Value().(types.String)
	if !isText {
		return wrong("the regular expression must be a string")
	}
	compiled, err := regexp.Compile(string(source))
	if err != nil {
		return wrong("the regular expression is not valid: " + err.Error())
	}
	parsed := must(syntax.Parse(string(source), syntax.Perl)) // as regexp does
	instructions := len(must(syntax.Compile(parsed.Simplify())).Inst)
	if c.instructions += instructions; c.instructions > maxPatternInstructions {
		return wrong("the regular expressions of the field are too long")
	}
	call.work = func(args []ref.Val, _ int) int {
		text, _ := args[0].(types.String)
		return callWork + (len(text)+1)*instructions*patternStepWork
	}
	call.call = func(args ...ref.Val) ref.Val {
		text, ok := args[0].(types.String)
		switch {
		case !ok:
			return types.MaybeNoSuchOverloadErr(args[0])
		case call.Function() == "matches":
			return types.Bool(compiled.MatchString(string(text)))
		}
		return types.String(compiled.FindString(string(text)))
	}
	return nil
}

// fieldNames are the fields of an alert as a mapping names them, in the order of package origins.
var fieldNames = [origins.Count]string{
	"title", "description", "severity", "status", "dedupKey", "type", "link", "hostname", "region", "startTime", "endTime",
	"expiryTime", "labels", "annotations", "values", "custom",
}

// expressionsOf returns the expressions of fieldNames.
func expressionsOf(m *v1alpha1.MappingFields) [origins.Count]v1alpha1.Expression {
	return [origins.Count]v1alpha1.Expression{
		origins.Title: m.Title, origins.Description: m.Description, origins.Severity: m.Severity, origins.Status: m.Status,
		origins.DedupKey: m.DedupKey, origins.Type: m.Type, origins.Link: m.Link, origins.Hostname: m.Hostname,
		origins.Region: m.Region, origins.StartsAt: m.StartTime, origins.EndsAt: m.EndTime, origins.ExpiresAt: m.ExpiryTime,
		origins.Labels: m.Labels, origins.Annotations: m.Annotations, origins.Values: m.Values, origins.Custom: m.Custom,
	}
}
