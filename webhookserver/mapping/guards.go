package mapping

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// guards refuse calls that would take too long or give too much. Cost is counted when a function has
// returned; so a function whose work grows faster than its arguments, or whose result does, needs a guard:
// one call of replace could fill the memory.
var guards = map[string]func(args []ref.Val) error{
	"replace":       guardReplace,
	"join":          guardJoin,
	"format":        guardTotal,
	"indexOf":       guardSearch,
	"lastIndexOf":   guardSearch,
	"distinct":      guardDistinct,
	"sort":          guardSort,
	"lists.range":   guardRange,
	"sets.contains": guardSets,
	// The name that the macro sortBy stands for.
	"@sortByAssociatedKeys": guardSort,
	"sets.equivalent":       guardSets,
	"sets.intersects":       guardSets,
	"parseJSON":             guardParse,
}

// replacements are functions that are not those of the libraries.
var replacements = map[string]functions.FunctionOp{
	"matches": matches,
	"find":    find,
	"findAll": findAll,
}

// guarded is a library whose functions in guards are guarded and those in replacements replaced. What the
// library sets for programs (its count of cost, optimisations) is left out: see costs.
func guarded(libraryOption cel.EnvOption) cel.EnvOption {
	return func(env *cel.Env) (*cel.Env, error) {
		scratch, err := cel.NewCustomEnv(libraryOption)
		if err != nil {
			return nil, err
		}
		for name, function := range scratch.Functions() {
			if function, err = guardFunction(name, function); err != nil {
				return nil, fmt.Errorf("guarding %s: %w", name, err)
			}
			if env, err = cel.FunctionDecls(function)(env); err != nil {
				return nil, err
			}
		}
		for _, variable := range scratch.Variables() {
			if env, err = cel.VariableDecls(variable)(env); err != nil {
				return nil, err
			}
		}
		return cel.Macros(scratch.Macros()...)(env)
	}
}

// guardFunction puts the guard of a function, if there is one, in front of each of its implementations.
func guardFunction(name string, function *decls.FunctionDecl) (*decls.FunctionDecl, error) {
	guard, guarded := guards[name]
	replacement, replaced := replacements[name]
	if !guarded && !replaced {
		return function, nil
	}
	implementations := map[string]functions.FunctionOp{}
	if guarded {
		bindings, err := function.Bindings()
		if err != nil {
			return nil, err
		}
		for _, binding := range bindings {
			implementations[binding.Operator] = behind(guard, binding)
		}
	}
	var options []decls.FunctionOpt
	for _, o := range function.OverloadDecls() {
		implementation, found := implementations[o.ID()]
		switch {
		case replaced:
			implementation = replacement
		case !found:
			implementation = implementations[name] // one for all of them
		}
		declare := decls.Overload
		if o.IsMemberFunction() {
			declare = decls.MemberOverload
		}
		if o.ID() == name { // CEL wants one implementation then
			return decls.NewFunction(name, singleton(function, implementation)...)
		}
		options = append(options, declare(o.ID(), o.ArgTypes(), o.ResultType(), bind(len(o.ArgTypes()), implementation)))
	}
	return decls.NewFunction(name, options...)
}

// behind calls a function if its guard has no objection.
func behind(guard func([]ref.Val) error, function *functions.Overload) functions.FunctionOp {
	return func(args ...ref.Val) ref.Val {
		if err := guard(args); err != nil {
			return types.WrapErr(err)
		}
		switch {
		case len(args) == 1 && function.Unary != nil:
			return function.Unary(args[0])
		case len(args) == 2 && function.Binary != nil:
			return function.Binary(args[0], args[1])
		case function.Function != nil:
			return function.Function(args...)
		}
		return types.NoSuchOverloadErr()
	}
}

// singleton declares a function of two arguments with one implementation for all overloads.
func singleton(function *decls.FunctionDecl, implementation functions.FunctionOp) []decls.FunctionOpt {
	options := []decls.FunctionOpt{
		decls.SingletonBinaryBinding(func(a, b ref.Val) ref.Val { return implementation(a, b) }),
	}
	for _, o := range function.OverloadDecls() {
		declare := decls.Overload
		if o.IsMemberFunction() {
			declare = decls.MemberOverload
		}
		options = append(options, declare(o.ID(), o.ArgTypes(), o.ResultType()))
	}
	return options
}

// bind makes a function fit for its number of arguments.
func bind(arguments int, function functions.FunctionOp) decls.OverloadOpt {
	switch arguments {
	case 1:
		return decls.UnaryBinding(func(arg ref.Val) ref.Val { return function(arg) })
	case 2:
		return decls.BinaryBinding(func(a, b ref.Val) ref.Val { return function(a, b) })
	}
	return decls.FunctionBinding(function)
}

func tooMuch(what string) error {
	return fmt.Errorf("%s is too large for this function", what)
}

// guardReplace bounds the result of text.replace(old, new).
func guardReplace(args []ref.Val) error {
	texts := [3]string{}
	for i := range texts {
		text, ok := args[i].(types.String)
		if !ok {
			return nil
		}
		texts[i] = string(text)
	}
	grown := len(texts[2]) - len(texts[1])
	if grown > 0 && len(texts[0])+strings.Count(texts[0], texts[1])*grown > maxText {
		return tooMuch("the result")
	}
	return nil
}

// guardJoin bounds the result of list.join(separator).
func guardJoin(args []ref.Val) error {
	separator := 0
	if len(args) > 1 {
		text, _ := args[1].(types.String)
		separator = len(text)
	}
	list, ok := args[0].(traits.Lister)
	if !ok {
		return nil
	}
	total := 0
	for i, size := types.Int(0), sizeOf(list); i < size; i++ {
		text, _ := list.Get(i).(types.String)
		if total += len(text) + separator; total > maxText {
			return tooMuch("the result")
		}
	}
	return nil
}

// guardTotal bounds the size of all arguments together, each as often as it is given.
func guardTotal(args []ref.Val) error {
	total := 0
	for _, arg := range args {
		if total += weigh(arg, maxText); total > maxText {
			return tooMuch("what is given")
		}
	}
	return nil
}

// guardSearch bounds the work of text.indexOf(part), which compares at each place.
func guardSearch(args []ref.Val) error {
	text, ok := args[0].(types.String)
	part, isText := args[1].(types.String)
	if ok && isText && len(text) > 0 && len(part) > 0 && len(part) > maxPatternWork/len(text) && len(part) <= len(text) {
		return tooMuch("the text")
	}
	return nil
}

// guardDistinct bounds a function that compares all elements of a list with each other.
func guardDistinct(args []ref.Val) error {
	return guardPairs(args[0], args[0])
}

// guardSets bounds a function that compares all elements of one list with those of another.
func guardSets(args []ref.Val) error {
	return guardPairs(args[0], args[1])
}

// guardPairs counts an element for as many as it is heavy.
func guardPairs(a, b ref.Val) error {
	first, second := weigh(a, maxPairs), weigh(b, maxPairs)
	if first > 0 && second > maxPairs/first {
		return tooMuch("the list")
	}
	return nil
}

func guardSort(args []ref.Val) error {
	if list, ok := args[0].(traits.Lister); ok && sizeOf(list) > maxSorted {
		return tooMuch("the list")
	}
	return guardTotal(args)
}

// guardParse bounds the memory that parseJSON takes, which may be many times the length of the text.
func guardParse(args []ref.Val) error {
	if text, ok := args[0].(types.String); ok && payload.Footprint([]byte(text)) > maxParsed {
		return tooMuch("the text")
	}
	return nil
}

func guardRange(args []ref.Val) error {
	if n, ok := args[0].(types.Int); ok && n > maxRange {
		return tooMuch("the range")
	}
	return nil
}
