package mapping

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

var (
	errTooLarge = errors.New("the result is too large")
	errTooDeep  = errors.New("the result nests too deep")
)

// native returns a scalar value of CEL as payload.ParseAny gives it; ok is false for all other values.
func native(value ref.Val) (result any, ok bool) {
	switch v := value.(type) {
	case types.Null:
		return nil, true
	case types.String:
		return string(v), true
	case types.Bool:
		return bool(v), true
	case types.Int:
		return json.Number(strconv.FormatInt(int64(v), 10)), true
	case types.Uint:
		return json.Number(strconv.FormatUint(uint64(v), 10)), true
	case types.Double:
		if encoded, err := json.Marshal(float64(v)); err == nil {
			return json.Number(encoded), true
		}
		return strconv.FormatFloat(float64(v), 'g', -1, 64), true // not a number, or infinite
	case types.Timestamp:
		return v.UTC().Format(time.RFC3339Nano), true
	case types.Duration:
		return v.String(), true
	case types.Bytes:
		if utf8.Valid(v) {
			return string(v), true
		}
		return base64.StdEncoding.EncodeToString(v), true
	case *types.Type:
		return v.TypeName(), true
	}
	return nil, false
}

// convert makes what payload.ParseAny gives of a value of CEL that weighs at most limit, and returns what it weighs. What came
// from the payload is passed on without a copy.
func convert(value ref.Val, limit int) (result any, weight int, err error) {
	c := converter{left: limit}
	result, err = c.convert(value, 0)
	return result, limit - c.left, err
}

type converter struct {
	left int // of the weight that the result may have
}

func (c *converter) spend(weight int) error {
	if c.left -= weight; c.left < 0 {
		return errTooLarge
	}
	return nil
}

func (c *converter) convert(value ref.Val, depth int) (any, error) {
	value = unwrap(value)
	if whole, ok := nativeOf(value); ok {
		return whole, c.spend(weighNative(whole, c.left))
	}
	if depth > maxDepth {
		return nil, errTooDeep
	}
	if err := c.spend(elementWeight); err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case *types.Err:
		return nil, v
	case traits.Mapper:
		return c.convertMap(v, depth)
	case traits.Lister:
		result := make([]any, 0, min(int(sizeOf(v)), 64))
		for i := range sizeOf(v) {
			element, err := c.convert(v.Get(i), depth+1)
			if err != nil {
				return nil, err
			}
			result = append(result, element)
		}
		return result, nil
	}
	return nil, errors.New("the result is a " + value.Type().TypeName() + ", which is no JSON")
}

// convertMap goes through the keys in order: 1 and "1" become equal, and the last one wins.
func (c *converter) convertMap(m traits.Mapper, depth int) (any, error) {
	result := map[string]any{}
	for keys := keysInOrder(m).Iterator(); keys.HasNext() == types.True; {
		key := keys.Next()
		element, err := c.convert(m.Get(key), depth+1)
		if err != nil {
			return nil, err
		}
		text := textOrEmpty(key)
		if err := c.spend(len(text)); err != nil {
			return nil, err
		}
		result[text] = element
	}
	return result, nil
}

// nativeOf returns a scalar, or an object or list of the payload, as payload.ParseAny gives it; ok is false for
// what an expression made.
func nativeOf(value ref.Val) (whole any, ok bool) {
	switch v := value.(type) {
	case traits.Mapper:
		whole, ok = v.Value().(map[string]any)
		return whole, ok
	case traits.Lister:
		list, ok := v.Value().([]any)
		return list, ok && !slices.ContainsFunc(list, func(element any) bool { _, made := element.(ref.Val); return made })
	}
	return native(value)
}

// elementWeight is what a value weighs beside its text.
const elementWeight = 8

// weigh returns about how many bytes a value takes when it is written out. It looks no further than limit.
func weigh(value ref.Val, limit int) int {
	value = unwrap(value)
	if text, isText := value.(types.String); isText {
		return len(text) + elementWeight // as often, and without an allocation
	}
	if whole, ok := nativeOf(value); ok {
		return weighNative(whole, limit)
	}
	total := elementWeight
	switch v := value.(type) {
	case traits.Mapper:
		for keys := v.Iterator(); keys.HasNext() == types.True && total <= limit; {
			key := keys.Next()
			total += weigh(key, limit-total) + weigh(v.Get(key), limit-total)
		}
	case traits.Lister:
		for i := types.Int(0); i < sizeOf(v) && total <= limit; i++ {
			total += weigh(v.Get(i), limit-total)
		}
	}
	return total
}

// weighNative does what weigh does, for what payload.ParseAny gives.
func weighNative(value any, limit int) int {
	total := elementWeight
	switch v := value.(type) {
	case string:
		total += len(v)
	case json.Number:
		total += len(v)
	case map[string]any:
		for key, element := range v {
			if total += len(key) + weighNative(element, limit-total); total > limit {
				break
			}
		}
	case []any:
		for _, element := range v {
			if total += weighNative(element, limit-total); total > limit {
				break
			}
		}
	}
	return total
}

func sizeOf(value traits.Sizer) types.Int {
	size, _ := value.Size().(types.Int)
	return size
}

// isAbsent reports whether a result leaves its field to the payload rules.
func isAbsent(value any) bool {
	text, isText := value.(string)
	return value == nil || isText && isBlank(text)
}

// isEmpty reports whether a value says nothing: null, a blank text, an empty object or list. Tools write such keys in
// every message; a preset does not keep them.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return isAbsent(value)
}

// maxBlank is how far a text is looked at for something that is not blank.
const maxBlank = 4096

// isBlank reports whether a text counts as absent.
func isBlank(text string) bool {
	return strings.TrimSpace(text[:min(len(text), maxBlank)]) == ""
}

// oneLine makes a message fit for a log, a condition or a warning.
func oneLine(message string) string {
	return plaintext.Shorten(plaintext.SanitizeLine(message), maxMessage)
}
