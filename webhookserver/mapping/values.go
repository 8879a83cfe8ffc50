package mapping

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

var (
	errTooLarge = errors.New("the result is too large")
	errTooDeep  = errors.New("the result nests too deep")
)

// native is a scalar value of CEL as payload.Parse would give it; ok is false for all other values.
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
		return nativeDouble(float64(v)), true
	case types.Timestamp:
		return v.UTC().Format(time.RFC3339Nano), true
	case types.Duration:
		return v.String(), true
	case types.Bytes:
		if utf8.Valid(v) {
			return string(v), true
		}
		return base64.StdEncoding.EncodeToString(v), true
	}
	return nil, false
}

func nativeDouble(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	if encoded, err := json.Marshal(v); err == nil {
		return json.Number(encoded)
	}
	return nil
}

// converter makes results of expressions into what payload.Parse gives: map[string]any, []any and scalars.
// What came from the payload is passed on without a copy.
type converter struct {
	left int // of the weight that the result may have
}

// convert converts the result of an expression, which may weigh as much as limit.
func convert(value ref.Val, limit int) (any, error) {
	c := converter{left: limit}
	return c.convert(value, 0)
}

func (c *converter) convert(value ref.Val, depth int) (any, error) {
	value = unwrap(value)
	if scalar, ok := native(value); ok {
		return scalar, c.spend(weighNative(scalar, c.left))
	}
	if depth > maxDepth {
		return nil, errTooDeep
	}
	switch v := value.(type) {
	case *types.Err:
		return nil, v
	case traits.Mapper:
		return c.convertMap(v, depth)
	case traits.Lister:
		return c.convertList(v, depth)
	}
	// The kinds of Kubernetes' libraries (URL, IP address) and types have a text.
	if text, ok := value.ConvertToType(types.StringType).(types.String); ok {
		return string(text), c.spend(len(text) + elementWeight)
	}
	return nil, errors.New("the result is a " + value.Type().TypeName() + ", which is no JSON")
}

func (c *converter) spend(weight int) error {
	if c.left -= weight; c.left < 0 {
		return errTooLarge
	}
	return nil
}

func (c *converter) convertMap(m traits.Mapper, depth int) (any, error) {
	if whole, ok := m.Value().(map[string]any); ok && isNative(whole) {
		return whole, c.spend(weighNative(whole, c.left))
	}
	result := map[string]any{}
	for keys := m.Iterator(); keys.HasNext() == types.True; {
		key := keys.Next()
		text, err := plainText(key)
		if err != nil {
			return nil, err
		}
		element, err := c.convert(m.Get(key), depth+1)
		if err != nil {
			return nil, err
		}
		if err := c.spend(len(text)); err != nil {
			return nil, err
		}
		result[text] = element
	}
	return result, nil
}

func (c *converter) convertList(list traits.Lister, depth int) (any, error) {
	if whole, ok := list.Value().([]any); ok && isNative(whole) {
		return whole, c.spend(weighNative(whole, c.left))
	}
	size := sizeOf(list)
	result := make([]any, 0, min(int(size), 64))
	for i := range size {
		element, err := c.convert(list.Get(i), depth+1)
		if err != nil {
			return nil, err
		}
		result = append(result, element)
	}
	return result, nil
}

// isNative reports whether a value is made of what payload.Parse gives: that of a function of this package
// may have values of CEL in it.
func isNative(value any) bool {
	switch v := value.(type) {
	case nil, string, bool, json.Number:
		return true
	case map[string]any:
		for _, element := range v {
			if !isNative(element) {
				return false
			}
		}
		return true
	case []any:
		for _, element := range v {
			if !isNative(element) {
				return false
			}
		}
		return true
	}
	return false
}

// isAbsent tells the results that leave a field to the payload rules.
func isAbsent(value any) bool {
	text, isText := value.(string)
	return value == nil || isText && isBlank(text)
}

// maxBlank is how far a text is looked at for something that is not blank.
const maxBlank = 4096

// isBlank reports whether a text counts as absent.
func isBlank(text string) bool {
	return strings.TrimSpace(text[:min(len(text), maxBlank)]) == ""
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// oneLine makes a message fit for a log, a condition or a warning.
func oneLine(message string) string {
	message = payload.SanitizeLine(message)
	if utf8.RuneCountInString(message) > maxMessage {
		message = string([]rune(message)[:maxMessage-1]) + "…"
	}
	return message
}

// shortText quotes a text that may be the sender's.
func shortText(text string) string {
	return strconv.Quote(oneLine(text))
}
