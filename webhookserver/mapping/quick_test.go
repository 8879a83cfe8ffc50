package mapping

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"pgregory.net/rapid"
)

// anyQuick draws an expression that has a quick form.
func anyQuick(levels int) *rapid.Generator[string] {
	path := rapid.Custom(func(t *rapid.T) string {
		text := rapid.SampledFrom([]string{"alert", "payload", "headers"}).Draw(t, "root")
		for range rapid.IntRange(0, 3).Draw(t, "steps") {
			key := rapid.SampledFrom([]string{"a", "b", "c", "list"}).Draw(t, "key")
			text += rapid.SampledFrom([]string{"." + key, ".?" + key, `["` + key + `"]`, `[?"` + key + `"]`, "[0]", "[?1]"}).Draw(t, "step")
		}
		return text
	})
	literal := rapid.SampledFrom([]string{`"x"`, `""`, `" "`, "1", "1.5", "2u", "-1", "true", "false", "null", `b"x"`, `"1"`})
	if levels == 0 {
		return rapid.OneOf(path, path, literal)
	}
	part := anyQuick(levels - 1)
	condition := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 4).Draw(t, "condition") {
		case 0:
			return fmt.Sprintf("has(%s.%s)", path.Draw(t, "path"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"))
		case 1:
			return fmt.Sprintf("(%s == %s)", part.Draw(t, "left"), literal.Draw(t, "right"))
		case 2:
			return fmt.Sprintf("(%s != %s)", literal.Draw(t, "left"), part.Draw(t, "right"))
		case 3:
			return fmt.Sprintf("!(%s)", part.Draw(t, "not"))
		}
		return fmt.Sprintf("(%s %s %s)", part.Draw(t, "left"), rapid.SampledFrom([]string{"&&", "||"}).Draw(t, "operator"), part.Draw(t, "right"))
	})
	return rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 16).Draw(t, "form") {
		case 7:
			return fmt.Sprintf(`%s.orValue(%s)`, path.Draw(t, "path"), part.Draw(t, "fallback"))
		case 8:
			return fmt.Sprintf(`{"x": 1, "1": "y"}[?%s].orValue(%s)`, part.Draw(t, "key"), part.Draw(t, "fallback"))
		case 10:
			return fmt.Sprintf(`{?"x": %s, "y": %s}`, path.Draw(t, "x"), part.Draw(t, "y"))
		case 11:
			return fmt.Sprintf(`(%s + %s)`, part.Draw(t, "left"), part.Draw(t, "right"))
		case 12:
			return fmt.Sprintf(`string(%s)`, part.Draw(t, "text"))
		case 13:
			return fmt.Sprintf(`%s.hasValue()`, path.Draw(t, "optional"))
		case 14:
			return fmt.Sprintf(`%s.%s(%s)`, part.Draw(t, "text"),
				rapid.SampledFrom([]string{"startsWith", "endsWith", "contains"}).Draw(t, "test"), part.Draw(t, "part"))
		case 15:
			return fmt.Sprintf(`(%s in ["x", "1", ""])`, part.Draw(t, "value"))
		case 16:
			return fmt.Sprintf(`discard([%s, %s])`, part.Draw(t, "first"), part.Draw(t, "second"))
		case 9:
			return fmt.Sprintf(`withoutPort(%s)`, part.Draw(t, "address"))
		case 0:
			return condition.Draw(t, "condition")
		case 1:
			return fmt.Sprintf("(%s ? %s : %s)", condition.Draw(t, "if"), part.Draw(t, "then"), part.Draw(t, "else"))
		case 2:
			return "firstNonEmpty([" + strings.Join(rapid.SliceOfN(part, 0, 3).Draw(t, "elements"), ", ") + "])"
		case 3:
			return fmt.Sprintf("%s.orValue(%s)", path.Draw(t, "path"), literal.Draw(t, "fallback"))
		case 4:
			return "[" + strings.Join(rapid.SliceOfN(part, 0, 3).Draw(t, "elements"), ", ") + "]"
		case 5:
			return fmt.Sprintf(`{"x": %s, "y": %s}`, part.Draw(t, "x"), part.Draw(t, "y"))
		}
		return part.Draw(t, "part")
	})
}

// anyTree draws a decoded JSON value.
func anyTree(levels int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.SampledFrom([]any{"x", "", " ", "1", "text"}),
		rapid.SampledFrom([]any{json.Number("1"), json.Number("1.0"), json.Number("1.5"), json.Number("-1"), json.Number("2"),
			json.Number("1e400"), json.Number("9007199254740993"), json.Number("12345678901234567890")}),
	}
	if levels == 0 {
		return rapid.OneOf(scalars...)
	}
	object := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "list"}), anyTree(levels-1), 0, 4)
	return rapid.OneOf(append(scalars, rapid.SliceOfN(anyTree(levels-1), 0, 3).AsAny(), object.AsAny(), object.AsAny(), object.AsAny())...)
}

// TestQuickGivesWhatCELGives compares the two on expressions that both can evaluate.
func TestQuickGivesWhatCELGives(t *testing.T) {
	env, err := environment()
	if err != nil {
		t.Fatal(err)
	}
	quicks := 0
	rapid.Check(t, func(t *rapid.T) {
		source := anyQuick(2).Draw(t, "expression")
		checked, issues := env.Compile(source)
		if issues.Err() != nil {
			t.Skip("does not compile")
		}
		q := quickOf(checked.NativeRep().Expr())
		if q == nil {
			return
		}
		quicks++
		program, err := env.Program(checked, programOptions(maxExpressionCost)...)
		if err != nil {
			t.Fatal(err)
		}
		vars := &variables{payload: anyTree(3).Draw(t, "payload"), alert: anyTree(3).Draw(t, "alert"),
			headers: map[string]string{"a": "x"}}
		quickly, quickErr := q.eval(vars)
		if errors.Is(quickErr, errSlow) {
			return // CEL evaluates it
		}
		quickly = plainHeaders(quickly)
		slowly, slowErr := evaluateWithCEL(program, vars)
		if (quickErr == nil) != (slowErr == nil) {
			t.Fatalf("%s: quick gives %v, %v, CEL %v, %v", source, quickly, quickErr, slowly, slowErr)
		}
		if quickErr == nil && !sameValue(quickly, slowly) {
			t.Fatalf("%s: quick gives %#v, CEL %#v", source, quickly, slowly)
		}
	})
	if quicks == 0 {
		t.Fatal("no expression was quick")
	}
}

func evaluateWithCEL(program interface {
	Eval(any) (ref.Val, *cel.EvalDetails, error)
}, vars *variables) (any, error) {
	result, _, err := program.Eval(vars)
	if err != nil {
		return nil, err
	}
	return convert(result, maxText)
}

// sameValue compares decoded JSON; numbers by their value as float64, which is what CEL may have made of them.
func sameValue(a, b any) bool {
	switch first := a.(type) {
	case json.Number:
		x, _, _ := big.ParseFloat(string(first), 10, 53, big.ToNearestEven)
		switch second := b.(type) {
		case json.Number:
			y, _, _ := big.ParseFloat(string(second), 10, 53, big.ToNearestEven)
			return x != nil && y != nil && x.Cmp(y) == 0
		case string:
			return strings.Contains(second, "Inf")
		}
		return false
	case map[string]any:
		second, ok := b.(map[string]any)
		if !ok || len(first) != len(second) {
			return false
		}
		for key := range first {
			if !sameValue(first[key], second[key]) {
				return false
			}
		}
		return true
	case []any:
		second, ok := b.([]any)
		if !ok || len(first) != len(second) {
			return false
		}
		for i := range first {
			if !sameValue(first[i], second[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}
