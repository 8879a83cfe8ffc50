package mapping

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/library"
)

// costs counts what the calls of an expression cost: at least as CEL and Kubernetes do, and for every
// function the texts that it reads and writes, which those leave out for many.
type costs struct{ library.CostEstimator }

// bytesPerCost is what a unit of cost pays for, of bytes that are read or written.
const bytesPerCost = 10

// CallCost is the cost of one call.
func (c costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	cost := c.cost(function, args, result)
	if usual := c.CostEstimator.CallCost(function, overload, args, result); usual != nil && *usual > cost {
		cost = *usual
	}
	return &cost
}

func (c costs) cost(function string, args []ref.Val, result ref.Val) uint64 {
	switch function {
	case rangeFunction:
		return rangeCost(args)
	case "_==_", "_!=_":
		return 1 + min(weight(args[0]), weight(args[1]))
	case "@in", "format", "merge", "mapFromList", "lowerKeys", "hash", "parseJSON", "flatten", "reverse", "slice",
		"lists.range", "pairs":
		return 1 + weighAll(args) + weight(result)
	case "sort", "@sortByAssociatedKeys":
		return 1 + 8*weighAll(args)
	case "distinct":
		return 1 + weight(args[0])*weight(args[0])
	case "sets.contains", "sets.equivalent", "sets.intersects":
		return 1 + weight(args[0])*weight(args[1])
	case "firstNonEmpty":
		return 1 + blankCost(args[0])
	case "matches", "find":
		return 1 + patternCost(args)
	case "findAll":
		return 1 + patternCost(args)*max(1, weight(result)*bytesPerCost/elementWeight)
	}
	cost := 1 + shallowWeight(result)
	for _, arg := range args {
		cost += shallowWeight(arg)
	}
	return cost
}

// blankCost is the cost of looking for a text in a list that is not blank.
func blankCost(arg ref.Val) uint64 {
	list, ok := arg.(traits.Lister)
	if !ok {
		return 0
	}
	read := 0
	for i, size := types.Int(0), sizeOf(list); i < size; i++ {
		if text, isText := list.Get(i).(types.String); isText {
			read += min(len(text), maxBlank)
		}
	}
	return uint64(sizeOf(list)) + uint64(read)/bytesPerCost
}

// patternCost is the cost of a regular expression.
func patternCost(args []ref.Val) uint64 {
	text, ok := args[0].(types.String)
	expression, isText := args[1].(types.String)
	if !ok || !isText {
		return 0
	}
	p, err := compilePattern(string(expression))
	if err != nil {
		return uint64(len(expression))
	}
	return uint64(p.work(string(text))) / 8
}

func weighAll(args []ref.Val) uint64 {
	total := uint64(0)
	for _, arg := range args {
		total += weight(arg)
	}
	return total
}

// weight is the cost of reading all of a value.
func weight(value ref.Val) uint64 {
	if value == nil {
		return 0
	}
	return uint64(weigh(value, maxExpressionCost*bytesPerCost)) / bytesPerCost
}

// shallowWeight is the cost of reading a text, or the elements of a list without what is in them.
func shallowWeight(value ref.Val) uint64 {
	switch v := value.(type) {
	case types.String:
		return uint64(len(v)) / bytesPerCost
	case types.Bytes:
		return uint64(len(v)) / bytesPerCost
	case traits.Lister:
		return uint64(sizeOf(v)) / bytesPerCost
	}
	return 0
}
