package mapping

import (
	"encoding/json"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// elementWeight is what a value weighs beside its text.
const elementWeight = 8

// weigh is about how many bytes a value takes when it is written out, or more than limit if it takes more:
// it does not look further.
func weigh(value ref.Val, limit int) int {
	switch v := value.(type) {
	case types.String:
		return len(v) + elementWeight
	case types.Bytes:
		return len(v) + elementWeight
	case traits.Mapper:
		if native, ok := v.Value().(map[string]any); ok {
			return weighNative(native, limit)
		}
		return weighMap(v, limit)
	case traits.Lister:
		if native, ok := v.Value().([]any); ok {
			return weighNative(native, limit)
		}
		total := elementWeight
		for i, size := types.Int(0), sizeOf(v); i < size && total <= limit; i++ {
			total += weigh(v.Get(i), limit-total)
		}
		return total
	case *types.Optional:
		if v.HasValue() {
			return weigh(v.GetValue(), limit)
		}
	}
	return elementWeight
}

func weighMap(m traits.Mapper, limit int) int {
	total := elementWeight
	for keys := m.Iterator(); keys.HasNext() == types.True && total <= limit; {
		key := keys.Next()
		total += weigh(key, limit-total)
		if total <= limit {
			total += weigh(m.Get(key), limit-total)
		}
	}
	return total
}

// weighNative is weigh for what payload.Parse gives.
func weighNative(value any, limit int) int {
	switch v := value.(type) {
	case string:
		return len(v) + elementWeight
	case json.Number:
		return len(v) + elementWeight
	case map[string]any:
		total := elementWeight
		for key, element := range v {
			if total += len(key) + weighNative(element, limit-total); total > limit {
				break
			}
		}
		return total
	case []any:
		total := elementWeight
		for _, element := range v {
			if total += weighNative(element, limit-total); total > limit {
				break
			}
		}
		return total
	case ref.Val:
		return weigh(v, limit)
	}
	return elementWeight
}

// sizeOf is the number of elements of a list.
func sizeOf(list traits.Lister) types.Int {
	size, _ := list.Size().(types.Int)
	return size
}
