package mapping

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// ownFunctions declares the functions that are Tocsin's own; docs/mapping.md describes them.
func ownFunctions() []cel.EnvOption {
	text, dyn, list := cel.StringType, cel.DynType, cel.ListType(cel.DynType)
	anyMap := cel.MapType(text, dyn)
	return []cel.EnvOption{
		function("parseJSON", parseJSON, dyn, text),
		function("hash", hash, text, list),
		function("merge", merge, anyMap, list),
		function("withoutPort", withoutPort, text, text),
		function("urlHost", urlHost, text, text),
		function("eventObject", eventObject, text, text),
		function("pairs", pairs, anyMap, dyn, text, text),
		function("mapFromList", mapFromList, anyMap, dyn, text, text),
		function("withoutEmpty", withoutEmpty, anyMap, dyn),
		function("labelsText", labelsText, text, dyn),
		// These do not look into the objects and lists that they are given, which may be large.
		unary("text", func(value ref.Val) ref.Val { return types.String(textOrEmpty(value)) }, text, dyn),
		unary("present", present, cel.BoolType, dyn),
		unary("elements", elements, list, dyn),
		unary("firstNonEmpty", firstNonEmpty, dyn, list),
		unary("timestampFromUnix", timestampFromUnix, cel.TimestampType, dyn),
		unary("discard", func(ref.Val) ref.Val { return nothing }, anyMap, list),
		cel.Function("discardDefault", cel.Overload("discardDefault", []*cel.Type{dyn, dyn}, anyMap,
			cel.BinaryBinding(func(_, _ ref.Val) ref.Val { return nothing }))),
		// compilePattern implements find, and matches of the standard library.
		cel.Function("find", cel.MemberOverload("find", []*cel.Type{text, text}, text)),
	}
}

// function declares a function that is implemented in terms of what payload.ParseAny gives.
func function(name string, implementation func(args []any) (any, error), result *cel.Type, args ...*cel.Type) cel.EnvOption {
	call := func(values ...ref.Val) ref.Val {
		natives := make([]any, len(values))
		for i, value := range values {
			var err error
			if natives[i], _, err = convert(value, maxResult); err != nil {
				return types.NewErr("%s: %v", name, err)
			}
			if _, isText := natives[i].(string); args[i] == cel.StringType && !isText {
				return types.MaybeNoSuchOverloadErr(value)
			}
		}
		value, err := implementation(natives)
		if err != nil {
			return types.NewErr("%s: %v", name, err)
		}
		return adapter{}.NativeToValue(value)
	}
	return cel.Function(name, cel.Overload(name, args, result, cel.FunctionBinding(call)))
}

// unary declares a function of one argument that is implemented in terms of CEL's values.
func unary(name string, implementation func(ref.Val) ref.Val, result, arg *cel.Type) cel.EnvOption {
	return cel.Function(name, cel.Overload(name, []*cel.Type{arg}, result, cel.UnaryBinding(implementation)))
}

func parseJSON(args []any) (any, error) {
	value, _, err := payload.ParseAny([]byte(args[0].(string)))
	return value, err
}

// firstNonEmpty returns the first element that holds something: neither null nor a blank text, an empty list or
// map or a missing optional value. It returns null when there is none.
func firstNonEmpty(arg ref.Val) ref.Val {
	list, ok := arg.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(arg)
	}
	for i := range sizeOf(list) {
		value := unwrap(list.Get(i))
		switch v := value.(type) {
		case types.Null:
		case types.String:
			if !isBlank(string(v)) {
				return v
			}
		case traits.Sizer:
			if v.Size() != types.IntZero {
				return value
			}
		default:
			return value
		}
	}
	return types.NullValue
}

// unwrap returns the value in an optional value, null when it has none.
func unwrap(value ref.Val) ref.Val {
	for {
		optional, ok := value.(*types.Optional)
		if !ok {
			return value
		}
		if !optional.HasValue() {
			return types.NullValue
		}
		value = optional.GetValue()
	}
}

// hash returns 32 hexadecimal digits that stand for the elements of a list, for a key made of several of them. They are
// hashed with their lengths, ["ab", "c"] and ["a", "bc"] differ, and a map by its entries in the order of the keys.
func hash(args []any) (any, error) {
	digest := sha256.New()
	for _, element := range elementsOf(args[0]) {
		hashValue(digest, element)
	}
	return hex.EncodeToString(digest.Sum(nil)[:16]), nil
}

// hashValue writes the text of a scalar behind its length, or the entries of a map or list behind its size, which is tagged, so
// that it cannot equal a length.
func hashValue(digest io.Writer, value any) {
	size := func(n uint64) { _, _ = digest.Write(binary.BigEndian.AppendUint64(nil, n)) } // a hash takes everything
	switch v := value.(type) {
	case map[string]any:
		size(1<<63 | uint64(len(v)))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			hashValue(digest, key)
			hashValue(digest, v[key])
		}
	case []any:
		size(1<<62 | uint64(len(v)))
		for _, element := range v {
			hashValue(digest, element)
		}
	default:
		text, _ := payload.TextOf(value)
		size(uint64(len(text)))
		_, _ = io.WriteString(digest, text)
	}
}

func elementsOf(value any) []any {
	list, _ := value.([]any)
	return list
}

// timestampFromUnix reads Unix seconds, milliseconds, microseconds or nanoseconds, told apart by their size.
func timestampFromUnix(value ref.Val) ref.Val {
	text := textOrEmpty(value)
	t, ok := payload.ParseUnix(text)
	if !ok {
		return types.NewErr("timestampFromUnix: %q is not a Unix time from 2000 to 2100", oneLine(text))
	}
	return types.Timestamp{Time: t.UTC().Truncate(time.Microsecond)}
}

// merge puts the entries of several maps into one; of equal keys the last one wins. Null counts as empty.
func merge(args []any) (any, error) {
	merged := map[string]any{}
	for i, element := range elementsOf(args[0]) {
		m, isMap := element.(map[string]any)
		if !isMap && element != nil {
			return nil, fmt.Errorf("element %d is not a map", i)
		}
		maps.Copy(merged, m)
	}
	return merged, nil
}

// nothing is what discard(paths) and discardDefault(path, constant) return; inspectDiscard notes the paths.
var nothing = types.NewStringInterfaceMap(adapter{}, map[string]any{})

// withoutPort returns the host of an address with a port: "db-1" of "db-1:9100", "::1" of "[::1]:9100". Any other
// text stays as it is.
func withoutPort(args []any) (any, error) {
	host, port, err := net.SplitHostPort(args[0].(string))
	if err == nil && host != "" && port != "" && strings.Trim(port, "0123456789") == "" && !strings.Contains(host, "/") {
		return host, nil
	}
	return args[0], nil
}

// urlHost returns the host of a URL without the port: "a.example" of "https://a.example:8443/x". It returns an
// empty text for what is no URL.
func urlHost(args []any) (any, error) {
	if parsed, err := url.ParseRequestURI(args[0].(string)); err == nil {
		return parsed.Hostname(), nil
	}
	return "", nil
}

// eventSuffix is what Kubernetes appends to the name of the object that an Event is about: a dot and a time in hexadecimal
// digits.
var eventSuffix = regexp.MustCompile(`[.][0-9a-f]{12,}$`)

// eventObject returns the name of the object that an Event is about: "node-4" of "node-4.187c3f0a51b2c0ff". Any other name stays
// as it is.
func eventObject(args []any) (any, error) {
	return eventSuffix.ReplaceAllString(args[0].(string), ""), nil
}

// textOrEmpty returns the text of a scalar, and an empty text for null, a missing optional value, a list or a map.
func textOrEmpty(value ref.Val) string {
	scalar, _ := native(unwrap(value))
	text, _ := payload.TextOf(scalar)
	return text
}

// present reports whether a value is there and is not null.
func present(value ref.Val) ref.Val { return types.Bool(unwrap(value) != types.NullValue) }

// elements returns a list, and an empty list for anything else.
func elements(value ref.Val) ref.Val {
	if list, ok := unwrap(value).(traits.Lister); ok {
		return list
	}
	return types.NewDynamicList(adapter{}, []any{})
}

// pairs reads a text like "env:prod,role:db": pairs(text, ",", ":"). Spaces around the parts go; a part
// without the second separator gets an empty value. Anything but a text has no pairs.
func pairs(args []any) (any, error) {
	text, _ := args[0].(string)
	between, within := args[1].(string), args[2].(string)
	if between == "" || within == "" {
		return nil, errors.New("a separator is empty")
	}
	var found collector
	for part := range strings.SplitSeq(text, between) {
		key, value, _ := strings.Cut(part, within)
		if key = strings.TrimSpace(key); key != "" {
			found.add(key, strings.TrimSpace(value))
		}
	}
	return found.result(), nil
}

// mapFromList reads a list like [{"name": "env", "value": "prod"}]: mapFromList(list, "name", "value"), or like
// [["env", "prod"]]: mapFromList(list, "0", "1"). Elements without the two are left out; anything but a list has none.
func mapFromList(args []any) (any, error) {
	keyName, valueName := args[1].(string), args[2].(string)
	var found collector
	for _, element := range elementsOf(args[0]) {
		value, hasValue := partOf(element, valueName)
		key, _ := partOf(element, keyName)
		if text, _ := payload.TextOf(key); hasValue && text != "" {
			found.add(text, value)
		}
	}
	return found.result(), nil
}

// withoutEmpty returns the entries of a map whose values hold something: for Prometheus and Alertmanager, a label without a
// value does not exist. Anything but a map has none.
func withoutEmpty(args []any) (any, error) {
	held := map[string]any{}
	entries, _ := args[0].(map[string]any)
	for key, value := range entries {
		if text, scalar := payload.TextOf(value); value != nil && (!scalar || text != "") {
			held[key] = value
		}
	}
	return held, nil
}

// maxLabelsText is about how many characters of labels a title has room for.
const maxLabelsText = 200

// labelsText returns the labels of a map, as many as a title holds, in the order of their names and written as Prometheus does:
// {instance="db-1", job="node"}. Without labels, it returns an empty text.
func labelsText(args []any) (any, error) {
	held, err := withoutEmpty(args)
	entries, _ := held.(map[string]any)
	var labels []string
	left := maxLabelsText
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if value, scalar := payload.TextOf(entries[name]); scalar && left > 0 {
			label := name + "=" + strconv.Quote(plaintext.Shorten(value, left))
			labels, left = append(labels, label), left-len(label)
		}
	}
	if labels == nil {
		return "", err
	}
	return "{" + strings.Join(labels, ", ") + "}", nil
}

// collector makes a map of names and values. A name with several values gets the list of them, each once: the last one
// alone would hide the others.
type collector struct {
	values map[string][]any
	seen   map[[2]any]bool // names with their scalars
}

func (c *collector) add(name string, value any) {
	if c.values == nil {
		c.values, c.seen = map[string][]any{}, map[[2]any]bool{}
	}
	if isScalar(value) {
		entry := [2]any{name, value}
		if c.seen[entry] {
			return
		}
		c.seen[entry] = true
	}
	c.values[name] = append(c.values[name], value)
}

func (c *collector) result() map[string]any {
	result := make(map[string]any, len(c.values))
	for name, values := range c.values {
		if result[name] = values[0]; len(values) > 1 {
			result[name] = values
		}
	}
	return result
}
