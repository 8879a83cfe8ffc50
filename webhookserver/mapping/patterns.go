package mapping

import (
	"errors"
	"regexp"
	"regexp/syntax"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// compilePattern compiles the regular expression of a call of matches or find, which has to be a literal, and
// makes the call use it. What a sender wrote is never compiled.
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
	parsed, err := syntax.Parse(string(source), syntax.Perl)
	if err != nil {
		return wrong("the regular expression is not valid: " + err.Error())
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return err
	}
	instructions := len(program.Inst)
	if c.instructions += instructions; c.instructions > maxPatternInstructions {
		return wrong("the regular expressions of the field are too long")
	}
	compiled, err := regexp.Compile(string(source))
	if err != nil {
		return err
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
