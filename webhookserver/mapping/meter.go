package mapping

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// An expression pays for its work before it does it: for its nodes when its evaluation begins, for the rounds of a loop when the
// loop begins, and for what a call reads and writes when the arguments are known. So the budget bounds time and memory alike,
// whatever was sent, and no function needs a guard of its own.

// errTooMuchWork says that an expression needs more work than the alert has left.
var errTooMuchWork = errors.New("the mapping does too much work for one alert")

// meter holds the work that may still be done for an alert.
type meter struct {
	left     int
	exceeded bool // the current expression needed more

	pauser Pauser // nil: none
	since  int    // the work since the last pause
}

// spend pays for work. It returns an error, from then on for the whole expression, when not enough is left.
func (m *meter) spend(work int) error {
	if m.exceeded || work > m.left {
		m.exceeded = true
		return errTooMuchWork
	}
	m.left -= work
	if m.since += work; m.since >= pauseWork && m.pauser != nil {
		m.since = 0
		m.pauser.Pause()
	}
	return nil
}

type meteredCall struct {
	interpreter.InterpretableCall

	args []interpreter.InterpretableV2
	call functions.FunctionOp
	work func(args []ref.Val, limit int) int
}

func (c *meteredCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	values := make([]ref.Val, len(c.args))
	for i, arg := range c.args {
		if values[i] = arg.Exec(frame); types.IsUnknownOrError(values[i]) {
			return values[i]
		}
	}
	resolved, _ := frame.ResolveName(meterVariable)
	m, ok := resolved.(*meter)
	if !ok {
		return types.NewErr("%s is evaluated without a meter", c.Function())
	}
	if m.exceeded || m.spend(c.work(values, m.left)) != nil {
		return types.WrapErr(errTooMuchWork)
	}
	return types.LabelErrNode(c.ID(), c.call(values...))
}

// Eval evaluates the call for callers without a frame.
func (c *meteredCall) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// metered replaces each call of an expression by one that pays, and compiles the regular expressions.
func (c *compiler) metered(node interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, isCall := node.(interpreter.InterpretableCall)
	if !isCall {
		return node, nil // paid for as a node
	}
	m := &meteredCall{InterpretableCall: call, args: call.Args(), work: works[call.Function()]}
	if m.work == nil {
		m.work = textWork
	}
	binding := cmp.Or(c.bindings[call.OverloadID()], c.bindings[call.Function()])
	switch name := call.Function(); {
	case name == operators.Equals:
		m.call = func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }
	case name == operators.NotEquals:
		m.call = func(args ...ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }
	case name == "matches", name == "find":
		return m, c.compilePattern(m)
	case binding == nil:
		return nil, fmt.Errorf("the function %s is not implemented", name)
	case binding.NonStrict:
		return node, nil // it takes errors, and only tells whether a loop goes on
	default:
		m.call = operation(binding)
	}
	return m, nil
}

// operation makes one function of the implementations that CEL distinguishes by the number of arguments.
func operation(binding *functions.Overload) functions.FunctionOp {
	return func(args ...ref.Val) ref.Val {
		switch {
		case binding.OperandTrait != 0 && !args[0].Type().HasTrait(binding.OperandTrait):
		case len(args) == 1 && binding.Unary != nil:
			return binding.Unary(args[0])
		case len(args) == 2 && binding.Binary != nil:
			return binding.Binary(args[0], args[1])
		case binding.Function != nil:
			return binding.Function(args...)
		}
		return types.NoSuchOverloadErr()
	}
}

// The functions that the compiler puts into expressions. Their names are no identifiers.
const (
	// rangeFunction is around what a loop runs over, which pays there for all rounds. It puts the keys of a map in order, so that
	// the same payload gives the same alert each time.
	rangeFunction = "@range"

	// keyFunction is around a computed key, which may be a long text that is hashed, and optionalKeyFunction around one
	// of an optional lookup, which finds nothing for what cannot be a key.
	keyFunction         = "@key"
	optionalKeyFunction = "@optional_key"
)

func meterFunctions() []cel.EnvOption {
	anyType := cel.TypeParamType("T")
	return []cel.EnvOption{
		cel.Function(rangeFunction,
			cel.Overload(rangeFunction, []*cel.Type{anyType, cel.IntType}, anyType, cel.BinaryBinding(ordered))),
		unary(keyFunction, checkKey, anyType, anyType),
		unary(optionalKeyFunction, optionalKey, cel.DynType, cel.DynType),
	}
}

// checkKey returns a key as it is, and an error for what cannot be one.
func checkKey(key ref.Val) ref.Val {
	switch key.(type) {
	case types.String, types.Int, types.Uint, types.Double, types.Bool:
		return key
	}
	return types.NewErr("a value of type %s cannot be a key", key.Type().TypeName())
}

// optionalKey returns a key, or for what is missing or cannot be one a key that no object has: it is not UTF-8.
func optionalKey(key ref.Val) ref.Val {
	if key = checkKey(unwrap(key)); types.IsError(key) {
		return types.String("\xff")
	}
	return key
}

// addMeters puts rangeFunction around what the loops of an expression run over, and keyFunction around its computed keys.
func addMeters(parsed *ast.AST) {
	factory, info, next := ast.NewExprFactory(), parsed.SourceInfo(), ast.MaxID(parsed)
	wrap := func(e ast.Expr, function string, more ...ast.Expr) {
		next++
		inner := factory.NewUnspecifiedExpr(next)
		inner.SetKindCase(e)
		if place, found := info.GetOffsetRange(e.ID()); found {
			info.SetOffsetRange(inner.ID(), place)
		}
		e.SetKindCase(factory.NewCall(e.ID(), function, append([]ast.Expr{inner}, more...)...))
	}
	wrapKey := func(key ast.Expr, function string) {
		if key.Kind() != ast.LiteralKind {
			wrap(key, function)
		}
	}
	ast.PostOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			loop := e.AsComprehension()
			next++
			nodes := countNodes(loop.LoopCondition()) + countNodes(loop.LoopStep())
			wrap(loop.IterRange(), rangeFunction, factory.NewLiteral(next, types.Int(nodes)))
		case ast.CallKind:
			switch call := e.AsCall(); call.FunctionName() {
			case operators.Index:
				wrapKey(call.Args()[1], keyFunction)
			case operators.OptIndex:
				wrapKey(call.Args()[1], optionalKeyFunction)
			}
		case ast.MapKind:
			for _, entry := range e.AsMap().Entries() {
				wrapKey(entry.AsMapEntry().Key(), keyFunction)
			}
		}
	}))
}

func countNodes(e ast.Expr) int {
	count := 0
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(ast.Expr) { count++ }))
	return count
}

// ordered returns a list as it is, and a map with its keys in order.
func ordered(value, _ ref.Val) ref.Val {
	if m, ok := value.(traits.Mapper); ok {
		return orderedMap{Mapper: m, keys: keysInOrder(m)}
	}
	return value
}

type orderedMap struct {
	traits.Mapper
	keys traits.Lister
}

func (m orderedMap) Iterator() traits.Iterator { return m.keys.Iterator() }

func keysInOrder(m traits.Mapper) traits.Lister {
	if native, ok := m.Value().(map[string]any); ok {
		return types.NewStringList(adapter{}, slices.Sorted(maps.Keys(native)))
	}
	var keys []ref.Val
	for all := m.Iterator(); all.HasNext() == types.True; {
		keys = append(keys, all.Next())
	}
	slices.SortFunc(keys, func(a, b ref.Val) int { // 1 before "1"
		return cmp.Or(strings.Compare(textOrEmpty(a), textOrEmpty(b)), strings.Compare(a.Type().TypeName(), b.Type().TypeName()))
	})
	return types.NewRefValList(adapter{}, keys)
}

// works are the functions whose work is more than reading the texts that they are given.
var works = map[string]func(args []ref.Val, limit int) int{
	operators.Add:       addWork,
	operators.Equals:    equalWork,
	operators.NotEquals: equalWork,
	operators.In:        containerWork,
	rangeFunction:       rangeWork,
	"firstNonEmpty":     blankWork,
	"flatten":           containerWork,
	"hash":              containerWork,
	"join":              joinWork,
	"labelsText":        containerWork,
	"mapFromList":       containerWork,
	"merge":             containerWork,
	"pairs":             containerWork,
	"parseJSON":         parseWork,
	"replace":           replaceWork,
	"split":             containerWork,
	"withoutEmpty":      containerWork,
}

func textWork(args []ref.Val, _ int) int {
	work := callWork
	for _, arg := range args {
		switch v := arg.(type) {
		case types.String:
			work += len(v) * byteWork
		case types.Bytes:
			work += len(v) * byteWork
		}
	}
	return work
}

// containerWork returns the work of reading all of the arguments, and of making as many values.
func containerWork(args []ref.Val, limit int) int {
	weight := 0
	for _, arg := range args {
		weight += weigh(arg, limit/valueWork)
	}
	return callWork + weight*valueWork
}

// equalWork returns the work of comparing two values, which ends where the smaller one does.
func equalWork(args []ref.Val, limit int) int {
	smaller := weigh(args[0], limit/valueWork)
	return callWork + min(smaller, weigh(args[1], smaller))*valueWork
}

// addWork returns the work of joining two texts, or of reading the joined list of two.
func addWork(args []ref.Val, limit int) int {
	work := textWork(args, limit)
	for _, arg := range args {
		if _, isResult := arg.(traits.MutableLister); isResult {
			continue // the result of a loop so far, to which this adds
		}
		if list, ok := arg.(traits.Lister); ok {
			work += int(sizeOf(list)) * elementWeight * byteWork
		}
	}
	return work
}

// rangeWork returns the work of a loop whose body has as many nodes as the second argument says.
func rangeWork(args []ref.Val, limit int) int {
	sizer, ok := args[0].(traits.Sizer)
	if !ok {
		return callWork
	}
	nodes, _ := args[1].(types.Int)
	rounds, each := sizeOf(sizer), (nodes+1)*nodeWork
	if _, isMap := args[0].(traits.Mapper); isMap {
		each += keyWork
	}
	if rounds > types.Int(limit) {
		return limit + 1
	}
	return callWork + int(rounds*each)
}

func blankWork(args []ref.Val, _ int) int {
	work := callWork
	if list, ok := args[0].(traits.Lister); ok {
		for i := range sizeOf(list) {
			work += elementWeight
			if text, isText := list.Get(i).(types.String); isText {
				work += min(len(text), maxBlank)
			}
		}
	}
	return work
}

func joinWork(args []ref.Val, limit int) int {
	work := containerWork(args[:1], limit)
	if list, ok := args[0].(traits.Lister); ok && len(args) > 1 {
		separator, _ := args[1].(types.String)
		work += int(sizeOf(list)) * len(separator) * byteWork
	}
	return work
}

// replaceWork returns the work of text.replace(old, new), whose result may be much larger than the text.
func replaceWork(args []ref.Val, limit int) int {
	text, _ := args[0].(types.String)
	old, _ := args[1].(types.String)
	replacement, _ := args[2].(types.String)
	return textWork(args, limit) + strings.Count(string(text), string(old))*(len(replacement)+elementWeight)*byteWork
}

// parseWork returns the work of parseJSON(text), whose value may take much more memory than the text.
func parseWork(args []ref.Val, _ int) int {
	text, _ := args[0].(types.String)
	return callWork + int(payload.Footprint([]byte(text)))*parsedByteWork
}
