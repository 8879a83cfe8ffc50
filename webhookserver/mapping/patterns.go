package mapping

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// compilePattern compiles the regular expression of a call of matches or find, which has to be a literal, and
// makes the call use it. What a sender wrote is never compiled.
func (c *compiler) compilePattern(call *meteredCall) error {
	literal, isLiteral := call.args[1].(interpreter.InterpretableConst)
	if !isLiteral {
		return fmt.Errorf("the regular expression of %s must be a literal", call.Function())
	}
	source, isText := literal.Value().(types.String)
	if !isText {
		return fmt.Errorf("the regular expression of %s must be a string", call.Function())
	}
	parsed, err := syntax.Parse(string(source), syntax.Perl)
	if err != nil {
		return err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return err
	}
	instructions := len(program.Inst)
	if c.instructions += instructions; c.instructions > maxPatternInstructions {
		return errors.New("the regular expressions are too long")
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
