package mapping

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// ownFunctions declares the functions that are Tocsin's own; docs/mapping.md describes them.
func ownFunctions() cel.EnvOption {
	text, dyn, list := cel.StringType, cel.DynType, cel.ListType(cel.DynType)
	anyMap, textMap := cel.MapType(text, dyn), cel.MapType(text, text)
	return all(
		unary("parseJSON", text, dyn, parseJSON),
		unary("firstNonEmpty", list, dyn, firstNonEmpty),
		unary("hash", list, text, hash),
		unary("timestampFromUnix", dyn, cel.TimestampType, timestampFromUnix),
		unary("merge", list, anyMap, merge),
		unary("discard", list, anyMap, discard),
		unary("withoutPort", text, text, withoutPort),
		unary("urlHost", text, text, urlHost),
		cel.Function("pairs", cel.Overload("pairs_string_string_string",
			[]*cel.Type{text, text, text}, textMap, cel.FunctionBinding(pairs))),
		cel.Function("mapFromList", cel.Overload("map_from_list_string_string",
			[]*cel.Type{list, text, text}, anyMap, cel.FunctionBinding(mapFromList))),
		// compilePattern implements find, and matches of the standard library.
		cel.Function("find", cel.MemberOverload("string_find_string", []*cel.Type{text, text}, text)),
	)
}

// unary declares a function of one argument.
func unary(name string, argument, result *cel.Type, implementation functions.UnaryOp) cel.EnvOption {
	return cel.Function(name,
		cel.Overload(name+"_"+strings.ToLower(argument.TypeName()), []*cel.Type{argument}, result, cel.UnaryBinding(implementation)))
}

// parseJSON reads a text that holds JSON.
func parseJSON(arg ref.Val) ref.Val {
	text, ok := arg.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(arg)
	}
	value, _, err := payload.ParseAny([]byte(text))
	if err != nil {
		return types.NewErr("parseJSON: %v", err)
	}
	return adapter{}.NativeToValue(value)
}

// isEmpty tells the values that count as absent: null, a blank text, a missing optional value.
func isEmpty(value ref.Val) bool {
	switch v := value.(type) {
	case types.Null:
		return true
	case types.String:
		return isBlank(string(v))
	case *types.Optional:
		return !v.HasValue() || isEmpty(v.GetValue())
	}
	return false
}

// firstNonEmpty is the first element that holds something: neither null nor a blank text, an empty list or
// map or a missing optional value. It is null when there is none.
func firstNonEmpty(arg ref.Val) ref.Val {
	list, ok := arg.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(arg)
	}
	for i, size := types.Int(0), sizeOf(list); i < size; i++ {
		value := unwrap(list.Get(i))
		if isEmpty(value) {
			continue
		}
		switch v := value.(type) {
		case traits.Lister:
			if sizeOf(v) == 0 {
				continue
			}
		case traits.Mapper:
			if v.Size() == types.IntZero {
				continue
			}
		}
		return value
	}
	return types.NullValue
}

// unwrap is the value in an optional value, null when it has none.
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

// hash is 32 hexadecimal digits that stand for the elements of a list, for a key made of several of them: texts
// and other scalars, and maps of them. They are hashed with their lengths, ["ab", "c"] and ["a", "bc"] differ,
// and a map by its entries in the order of the keys.
func hash(arg ref.Val) ref.Val {
	list, ok := arg.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(arg)
	}
	digest := sha256.New()
	for i, size := types.Int(0), sizeOf(list); i < size; i++ {
		if err := hashValue(digest, unwrap(list.Get(i))); err != nil {
			return types.NewErr("hash: element %d: %v", i, err)
		}
	}
	return types.String(hex.EncodeToString(digest.Sum(nil)[:16]))
}

// hashValue writes the text of a scalar behind its length, or the entries of a map behind their number, which
// no length is like.
func hashValue(digest io.Writer, value ref.Val) error {
	var number [8]byte
	m, isMap := value.(traits.Mapper)
	if !isMap {
		text, err := plainText(value)
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint64(number[:], uint64(len(text)))
		_, _ = digest.Write(number[:]) // a hash takes everything
		_, _ = io.WriteString(digest, text)
		return nil
	}
	keys := keysInOrder(m)
	binary.BigEndian.PutUint64(number[:], 1<<63|uint64(sizeOf(keys)))
	_, _ = digest.Write(number[:])
	for i, size := types.Int(0), sizeOf(keys); i < size; i++ {
		key := keys.Get(i)
		entry := unwrap(m.Get(key))
		if _, nested := entry.(traits.Mapper); nested {
			return errors.New("there is a map in the map")
		}
		if err := hashValue(digest, key); err != nil {
			return err
		}
		if err := hashValue(digest, entry); err != nil {
			return err
		}
	}
	return nil
}

// plainText is the text of a scalar; that of null is empty.
func plainText(value ref.Val) (string, error) {
	switch v := value.(type) {
	case types.Null:
		return "", nil
	case types.String:
		return string(v), nil
	case traits.Lister, traits.Mapper:
		return "", fmt.Errorf("it is a %s, not a text", value.Type().TypeName())
	}
	text, ok := value.ConvertToType(types.StringType).(types.String)
	if !ok {
		return "", fmt.Errorf("a %s has no text", value.Type().TypeName())
	}
	return string(text), nil
}

// timestampFromUnix reads Unix seconds, milliseconds, microseconds or nanoseconds, told apart by their size.
func timestampFromUnix(arg ref.Val) ref.Val {
	text, err := plainText(unwrap(arg))
	if err != nil {
		return types.NewErr("timestampFromUnix: %v", err)
	}
	t, ok := payload.ParseUnix(text)
	if !ok {
		return types.NewErr("timestampFromUnix: %s is not a Unix time from 2000 to 2100", shortText(text))
	}
	return types.Timestamp{Time: t.UTC().Truncate(time.Microsecond)}
}

// merge puts the entries of several maps into one; of equal keys the last one wins. Null counts as empty.
func merge(arg ref.Val) ref.Val {
	list, ok := arg.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(arg)
	}
	merged := map[string]any{}
	for i, size := types.Int(0), sizeOf(list); i < size; i++ {
		value := unwrap(list.Get(i))
		if value == types.NullValue {
			continue
		}
		if err := eachEntry(value, func(key string, element any) { merged[key] = element }); err != nil {
			return types.NewErr("merge: element %d: %v", i, err)
		}
	}
	return adapter{}.NativeToValue(merged)
}

// discard gives an empty map. The paths in its list are left out of custom: that of a credential in the
// payload, say.
func discard(ref.Val) ref.Val {
	return adapter{}.NativeToValue(map[string]any{})
}

// withoutPort is the host of an address with a port: "db-1" of "db-1:9100", "::1" of "[::1]:9100". Any other
// text stays as it is.
func withoutPort(arg ref.Val) ref.Val {
	text, ok := arg.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(arg)
	}
	host, port, err := net.SplitHostPort(string(text))
	if err != nil || host == "" || port == "" || strings.Trim(port, "0123456789") != "" || strings.Contains(host, "/") {
		return text
	}
	return types.String(host)
}

// urlHost returns the host of a URL without the port: "a.example" of "https://a.example:8443/x". It returns an
// empty text for what is no URL.
func urlHost(arg ref.Val) ref.Val {
	text, ok := arg.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(arg)
	}
	parsed, err := url.ParseRequestURI(string(text))
	if err != nil {
		return types.String("")
	}
	return types.String(parsed.Hostname())
}

// eachEntry calls a function with the entries of a map, in no order.
func eachEntry(value ref.Val, do func(key string, element any)) error {
	m, ok := value.(traits.Mapper)
	if !ok {
		return fmt.Errorf("it is a %s, not a map", value.Type().TypeName())
	}
	if native, ok := m.Value().(map[string]any); ok {
		for key, element := range native {
			do(key, element)
		}
		return nil
	}
	for keys := m.Iterator(); keys.HasNext() == types.True; {
		key := keys.Next()
		text, err := plainText(key)
		if err != nil {
			return err
		}
		do(text, m.Get(key))
	}
	return nil
}

// pairs reads a text like "env:prod,role:db": pairs(text, ",", ":"). Spaces around the parts go; a part
// without the second separator gets an empty value; of equal keys the last one wins.
func pairs(args ...ref.Val) ref.Val {
	texts := [3]string{}
	for i := range texts {
		text, ok := args[i].(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[i])
		}
		texts[i] = string(text)
	}
	if texts[1] == "" || texts[2] == "" {
		return types.NewErr("pairs: a separator is empty")
	}
	found := map[string]any{}
	for part := range strings.SplitSeq(texts[0], texts[1]) {
		key, value, _ := strings.Cut(part, texts[2])
		if key = strings.TrimSpace(key); key != "" {
			found[key] = strings.TrimSpace(value)
		}
	}
	return adapter{}.NativeToValue(found)
}

// mapFromList reads a list like [{"name": "env", "value": "prod"}]: mapFromList(list, "name", "value").
// Elements without the two keys are left out; of equal names the last one wins.
func mapFromList(args ...ref.Val) ref.Val {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	found := map[string]any{}
	for i, size := types.Int(0), sizeOf(list); i < size; i++ {
		element, ok := list.Get(i).(traits.Mapper)
		if !ok {
			continue
		}
		key, hasKey := element.Find(args[1])
		value, hasValue := element.Find(args[2])
		if !hasKey || !hasValue {
			continue
		}
		if text, err := plainText(key); err == nil && text != "" {
			found[text] = value
		}
	}
	return adapter{}.NativeToValue(found)
}
