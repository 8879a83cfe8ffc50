package mapping

import (
	"errors"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// errSlow is what the quick forms in this file give for values that they were not made for, such as the sum
// of two numbers, and for much text: CEL is to evaluate the expression.
var errSlow = errors.New("CEL evaluates it")

// maxQuickRead is how many bytes of text an expression may go through without CEL, which stops it in time.
const maxQuickRead = 1 << 18

// reads counts bytes that are gone through.
func (v *variables) reads(bytes int) error {
	if v.read += uint64(bytes); v.read > maxQuickRead {
		return errSlow
	}
	return nil
}

// quickOfTextCall takes the calls of this file.
func quickOfTextCall(call ast.CallExpr) quick {
	if call.IsMemberFunction() {
		return quickOfTextMember(call)
	}
	args := call.Args()
	switch call.FunctionName() {
	case operators.Add:
		if first, second := quickOfText(args[0]), quickOfText(args[1]); first != nil && second != nil {
			return sum{first, second}
		}
	case "string":
		if of := quickOfText(args[0]); of != nil {
			return textOf{of}
		}
	case operators.In:
		return quickOfIn(args)
	case "discard":
		if of, isList := quickOf(args[0]).(list); isList {
			return discarded(of)
		}
	}
	return nil
}

// quickOfTextMember takes those that are called on a value.
func quickOfTextMember(call ast.CallExpr) quick {
	switch name := call.FunctionName(); name {
	case "hasValue":
		if of, isMaybe := quickOf(call.Target()).(maybe); isMaybe && mayBeOptional(of) {
			return holds{of}
		}
	case "startsWith", "endsWith", "contains":
		if of, part := quickOfText(call.Target()), quickOfText(call.Args()[0]); of != nil && part != nil {
			return textTest{of: of, part: part, test: textTests[name]}
		}
	}
	return nil
}

// quickOfText takes what may be a text. CEL takes no optional value for one, whatever it holds.
func quickOfText(e ast.Expr) quick {
	of := quickOf(e)
	if of == nil || mayBeOptional(of) {
		return nil
	}
	return of
}

// quickOfIn takes value in ["a", "b"], a list of literals that are texts.
func quickOfIn(args []ast.Expr) quick {
	of := quickOfText(args[0])
	if of == nil || args[1].Kind() != ast.ListKind || len(args[1].AsList().OptionalIndices()) > 0 {
		return nil
	}
	var texts []string
	for _, e := range args[1].AsList().Elements() {
		value, _ := plainLiteral(e)
		text, isText := value.(string)
		if !isText {
			return nil
		}
		texts = append(texts, text)
	}
	return member{of: of, texts: texts}
}

// textValue evaluates what has to be a text.
func textValue(of quick, v *variables) (string, error) {
	value, err := of.eval(v)
	if err != nil {
		return "", err
	}
	text, isText := value.(string)
	if !isText {
		return "", errSlow
	}
	return text, nil
}

// sum is text + text.
type sum struct{ first, second quick }

func (s sum) eval(v *variables) (any, error) {
	first, err := textValue(s.first, v)
	if err != nil {
		return nil, err
	}
	second, err := textValue(s.second, v)
	if err != nil {
		return nil, err
	}
	if err := v.reads(len(first) + len(second)); err != nil {
		return nil, err
	}
	return first + second, nil
}

// textOf is string(text).
type textOf struct{ of quick }

func (t textOf) eval(v *variables) (any, error) { return textValue(t.of, v) }

// holds is optional.hasValue().
type holds struct{ of maybe }

func (h holds) eval(v *variables) (any, error) {
	_, found, err := h.of.find(v)
	return found, err
}

// textTest is text.startsWith(part), endsWith or contains.
type textTest struct {
	of, part quick
	test     func(text, part string) bool
}

var textTests = map[string]func(text, part string) bool{
	"startsWith": strings.HasPrefix, "endsWith": strings.HasSuffix, "contains": strings.Contains,
}

func (t textTest) eval(v *variables) (any, error) {
	text, err := textValue(t.of, v)
	if err != nil {
		return nil, err
	}
	part, err := textValue(t.part, v)
	if err != nil {
		return nil, err
	}
	if err := v.reads(len(text) + len(part)); err != nil {
		return nil, err
	}
	return t.test(text, part), nil
}

// member is value in a list of texts.
type member struct {
	of    quick
	texts []string
}

func (m member) eval(v *variables) (any, error) {
	text, err := textValue(m.of, v)
	if err != nil {
		return nil, err
	}
	return slices.Contains(m.texts, text), nil
}

// discarded is discard([...]).
type discarded list

func (d discarded) eval(v *variables) (any, error) {
	for _, q := range d {
		if _, err := q.eval(v); err != nil {
			return nil, err
		}
	}
	return map[string]any{}, nil
}
