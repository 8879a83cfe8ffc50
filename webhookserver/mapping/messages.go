package mapping

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
)

// rewordings turn messages of CEL into sentences. The first that matches is used.
var rewordings = []struct {
	message  *regexp.Regexp
	sentence string
}{
	{regexp.MustCompile(`(?s)^Syntax error: mismatched input '<EOF>'.*`), `the expression is incomplete`},
	{regexp.MustCompile(`^Syntax error: missing '(.+)' at '<EOF>'.*`), `a "$1" is missing`},
	{regexp.MustCompile(`(?s)^Syntax error: .*? (?:at|input|at:) '(.*?)'(?: expecting .*)?$`), `unexpected '$1'`},
	{regexp.MustCompile(`^found no matching overload for '_\?_:_' applied to '\([^,]+, (.+)\)'$`),
		`both branches of "? :" need one type; their types are $1`},
	{regexp.MustCompile(`^expected type '(.+)' but found '(.+)'$`), `its type is $2, expected $1`},
	{regexp.MustCompile(`^type '(.+)' does not support field selection$`), `a value of type $1 has no fields`},
	{regexp.MustCompile(`^type conversion error from '?(.+?)'? to '?(?:google\.protobuf\.)?(.+?)'?$`),
		`this $1 cannot be converted to $2`},
	{regexp.MustCompile(`^no such overload: (.+)$`), `$1 is not possible with values of these types`},
	{regexp.MustCompile(`^no such overload$`), `a value has a type that is not possible here`},
}

func reword(message string) string {
	for _, r := range rewordings {
		if r.message.MatchString(message) {
			return r.message.ReplaceAllString(message, r.sentence)
		}
	}
	return message
}

var (
	undeclared = regexp.MustCompile(`^undeclared reference to '(.+)' \(in container ''\)$`)
	noOverload = regexp.MustCompile(`^found no matching overload for '(.+)' applied to '(.+)'$`)
)

// explain returns what is wrong as a sentence that names what would be possible.
func (c *compiler) explain(issue *cel.Error, parsed *ast.AST) string {
	if match := undeclared.FindStringSubmatch(issue.Message); match != nil {
		isCall := func(e ast.NavigableExpr) bool { return e.ID() == issue.ExprID && e.Kind() == ast.CallKind }
		if len(ast.MatchDescendants(ast.NavigateAST(parsed), isCall)) > 0 {
			return fmt.Sprintf("there is no function %q with these arguments", match[1]) + c.similar(match[1])
		}
		return fmt.Sprintf("there is no variable %q; there are %s, %s, %s and %s",
			match[1], alertVariable, payloadVariable, headersVariable, receivedVariable)
	}
	match := noOverload.FindStringSubmatch(issue.Message)
	if sentence := reword(issue.Message); match == nil || sentence != issue.Message {
		return sentence
	}
	what := "the function " + match[1]
	if operator := strings.Trim(match[1], "_@"); operator != match[1] {
		what = "the operator " + operator
	}
	return what + " does not accept " + match[2] + ", expected " + strings.Join(c.signatures(match[1], match[2]), " or ")
}

// similar names the functions whose names begin as this one does, without a "to": upperAscii for toUpper.
func (c *compiler) similar(function string) string {
	stem := strings.TrimPrefix(strings.ToLower(function), "to")
	var names []string
	for name := range c.Functions() {
		if len(stem) >= minSimilar && name != function && strings.HasPrefix(strings.ToLower(name), stem) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "; there is " + strings.Join(names, ", ")
}

// minSimilar is how many letters of a name tell that functions which begin with them may be meant.
const minSimilar = 3

// signatures returns the argument types that a function accepts, such as "(int, int)" or "string.(string)": those that
// begin with the type of the first argument given, if there are any.
func (c *compiler) signatures(function, given string) []string {
	first, _, _ := strings.Cut(given, ",")
	var all []string
	for _, overload := range c.Functions()[function].OverloadDecls() {
		var types []string
		for _, t := range overload.ArgTypes() {
			types = append(types, t.String())
		}
		receiver := ""
		if overload.IsMemberFunction() {
			receiver, types = types[0]+".", types[1:]
		}
		all = append(all, receiver+"("+strings.Join(types, ", ")+")")
	}
	isOther := func(signature string) bool { return !strings.HasPrefix(signature, first+",") }
	if similar := slices.DeleteFunc(slices.Clone(all), isOther); len(similar) > 0 {
		return similar
	}
	slices.Sort(all)
	if most := 4; len(all) > most {
		all = append(all[:most:most], "other types")
	}
	return all
}

// checkConstants reports the largest parts without variables that fail, since they fail whatever is sent. It returns whether
// a part has no variables; then its caller checks it.
func (c *compiler) checkConstants(checked *ast.AST, part ast.NavigableExpr) (constant bool) {
	constant = part.Kind() != ast.IdentKind && part.Kind() != ast.ComprehensionKind
	var parts []ast.NavigableExpr
	for _, child := range part.Children() {
		if c.checkConstants(checked, child) {
			parts = append(parts, child)
		} else {
			constant = false
		}
	}
	if !constant {
		for _, child := range parts {
			c.checkConstant(checked, child)
		}
	}
	return constant
}

func (c *compiler) checkConstant(checked *ast.AST, expr ast.Expr) {
	if expr.Kind() == ast.LiteralKind {
		return
	}
	part := ast.NewCheckedAST(ast.NewAST(expr, checked.SourceInfo()), checked.TypeMap(), checked.ReferenceMap())
	program, err := c.PlanProgram(part, cel.CustomDecoratorV2(c.metered))
	if err == nil {
		_, _, err = program.Eval(&variables{meter: &meter{left: maxFindWork}})
	}
	if err != nil {
		c.failAt(checked, expr.ID(), err)
	}
}

func (c *compiler) failAt(checked *ast.AST, id int64, err error) {
	if at, ok := errors.AsType[*positionError](err); ok {
		id, err = at.id, at.error
	}
	c.fail(checked.SourceInfo().GetStartLocation(id), reword(err.Error()))
}

type positionError struct {
	error

	id int64
}
