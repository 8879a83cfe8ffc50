package mapping

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/library"
)

// costs counts what the calls of an expression cost: as CEL and Kubernetes do, but for functions whose
// work is in what their arguments hold, which those count as one element.
type costs struct{ library.CostEstimator }

// bytesPerCost is what a unit of cost pays for, of bytes that are read or written.
const bytesPerCost = 10

// CallCost is the cost of one call, nil to leave it to the standard rules.
func (c costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	cost := uint64(1)
	switch function {
	case "_==_", "_!=_":
		if !isContainer(args[0]) || !isContainer(args[1]) {
			return c.CostEstimator.CallCost(function, overload, args, result)
		}
		cost += weighAll(args)
	case "@in", "format", "merge", "mapFromList", "lowerKeys", "hash", "parseJSON", "pairs", "flatten", "reverse",
		"slice", "lists.range", "base64.encode", "base64.decode":
		cost += weighAll(args) + weight(result)
	case "sort", "@sortByAssociatedKeys":
		cost += 8 * weighAll(args)
	case "distinct":
		cost += weight(args[0]) * weight(args[0])
	case "sets.contains", "sets.equivalent", "sets.intersects":
		cost += weight(args[0]) * weight(args[1])
	case "firstNonEmpty":
		if list, ok := args[0].(traits.Lister); ok {
			cost += uint64(sizeOf(list))
		}
	case "matches", "find", "findAll":
		text, ok := args[0].(types.String)
		expression, isText := args[1].(types.String)
		if p, err := compilePattern(string(expression)); ok && isText && err == nil {
			cost += uint64(p.work(string(text))) / 8
		}
	default:
		return c.CostEstimator.CallCost(function, overload, args, result)
	}
	return &cost
}

func isContainer(value ref.Val) bool {
	switch value.(type) {
	case traits.Lister, traits.Mapper:
		return true
	}
	return false
}

func weighAll(args []ref.Val) uint64 {
	total := uint64(0)
	for _, arg := range args {
		total += weight(arg)
	}
	return total
}

func weight(value ref.Val) uint64 {
	if value == nil {
		return 0
	}
	return uint64(weigh(value, maxExpressionCost*bytesPerCost)) / bytesPerCost
}
