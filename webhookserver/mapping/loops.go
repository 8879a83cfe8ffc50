package mapping

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// rangeFunction is put around what each loop runs over, by the compiler and not by any user: its name is no
// identifier. It makes the loop run over the keys of a map in their order, so that the same payload gives
// the same alert each time; and it is where the loop pays for what CEL does not count: making a list of the
// keys, however soon the loop ends, and the literals in its body.
const rangeFunction = "@range"

// loopFunctions declare rangeFunction.
func loopFunctions() cel.EnvOption {
	list := cel.ListType(cel.TypeParamType("T"))
	object := cel.MapType(cel.TypeParamType("K"), cel.TypeParamType("V"))
	return cel.Function(rangeFunction,
		cel.Overload("@range_list_int", []*cel.Type{list, cel.IntType}, list, cel.BinaryBinding(ordered)),
		cel.Overload("@range_map_int", []*cel.Type{object, cel.IntType}, object, cel.BinaryBinding(ordered)))
}

// markLoops puts rangeFunction around what the loops of an expression run over.
func markLoops(parsed *ast.AST) {
	factory := ast.NewExprFactory()
	next := ast.MaxID(parsed)
	info := parsed.SourceInfo()
	ast.PostOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.ComprehensionKind {
			return
		}
		loop := e.AsComprehension()
		over := loop.IterRange()
		next += 2
		inner, count := factory.NewUnspecifiedExpr(next-1), factory.NewLiteral(next, types.Int(literals(loop.LoopStep())))
		inner.SetKindCase(over)
		if place, found := info.GetOffsetRange(over.ID()); found {
			info.SetOffsetRange(inner.ID(), place)
		}
		over.SetKindCase(factory.NewCall(over.ID(), rangeFunction, inner, count))
	}))
}

// literals is the number of literals in the body of a loop.
func literals(body ast.Expr) int {
	count := 0
	ast.PostOrderVisit(body, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.LiteralKind {
			count++
		}
	}))
	return count
}

// ordered gives a list as it is, and a map with its keys in order.
func ordered(value, _ ref.Val) ref.Val {
	m, ok := value.(traits.Mapper)
	if !ok {
		return value
	}
	return orderedMap{Mapper: m, keys: keysInOrder(m)}
}

// keysInOrder lists the keys of a map.
func keysInOrder(m traits.Mapper) traits.Lister {
	if native, ok := m.Value().(map[string]any); ok {
		return types.NewStringList(adapter{}, sortedKeys(native))
	}
	var keys []ref.Val
	for all := m.Iterator(); all.HasNext() == types.True; {
		keys = append(keys, all.Next())
	}
	slices.SortStableFunc(keys, func(a, b ref.Val) int {
		first, _ := plainText(a)
		second, _ := plainText(b)
		return strings.Compare(first, second)
	})
	return types.NewRefValList(adapter{}, keys)
}

// orderedMap is a map whose keys come in order.
type orderedMap struct {
	traits.Mapper
	keys traits.Lister
}

// Iterator gives the keys in order.
func (m orderedMap) Iterator() traits.Iterator { return m.keys.Iterator() }

// rangeCost is what rangeFunction costs.
func rangeCost(args []ref.Val) uint64 {
	perRound, _ := args[1].(types.Int)
	cost := uint64(1)
	if list, ok := args[0].(traits.Lister); ok {
		cost += uint64(sizeOf(list)) * uint64(perRound) / 8
	}
	if m, ok := args[0].(traits.Mapper); ok {
		size, _ := m.Size().(types.Int)
		cost += uint64(size) * (3 + uint64(perRound)/8)
	}
	return cost
}
