package mapping

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// The variables of expressions.
const (
	payloadVariable  = "payload"
	alertVariable    = "alert"
	headersVariable  = "headers"
	receivedVariable = "received"

	// meterVariable is the meter of the evaluation. Its name is no identifier, so no expression can use it.
	meterVariable = "@meter"
)

type environment struct {
	*cel.Env

	// bindings are the implementations of all functions, by overload and by name.
	bindings map[string]*functions.Overload
}

// loadedEnvironment makes the environment once.
var loadedEnvironment = sync.OnceValue(func() *environment { return must(newEnvironment()) })

func newEnvironment() (*environment, error) {
	env, err := cel.NewCustomEnv(slices.Concat([]cel.EnvOption{
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.StdLib(),
		cel.OptionalTypes(),
		cel.ClearMacros(), // drops optMap and optFlatMap, which evaluate what they are called on twice
		cel.Macros(cel.StandardMacros...),
		ext.TwoVarComprehensions(),
		only(ext.Strings(), "join", "lowerAscii", "replace", "split", "upperAscii"),
		only(ext.Lists(), "flatten"),
		cel.ParserExpressionSizeLimit(maxExpressionLength),
		cel.ParserRecursionLimit(maxExpressionDepth),
		cel.CustomTypeAdapter(adapter{}),
		cel.Variable(payloadVariable, cel.DynType),
		cel.Variable(alertVariable, cel.DynType),
		cel.Variable(headersVariable, cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable(receivedVariable, cel.TimestampType),
	}, ownFunctions(), meterFunctions())...)
	if err != nil {
		return nil, err
	}
	e := &environment{Env: env, bindings: map[string]*functions.Overload{}}
	for _, function := range env.Functions() {
		bindings, err := function.Bindings()
		if err != nil {
			return nil, err
		}
		for _, binding := range bindings {
			e.bindings[binding.Operator] = binding
		}
	}
	return e, nil
}

// only adds the named functions of a library.
func only(library cel.EnvOption, names ...string) cel.EnvOption {
	return func(env *cel.Env) (*cel.Env, error) {
		whole, err := cel.NewCustomEnv(library)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if env, err = cel.FunctionDecls(whole.Functions()[name])(env); err != nil {
				return nil, err
			}
		}
		return env, nil
	}
}

// adapter makes values of CEL from what payload.ParseAny gives, without a copy.
type adapter struct{}

func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case string:
		return types.String(v)
	case json.Number:
		return numberValue(string(v))
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	case ref.Val:
		return v
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// numberValue reads a number as an int if it is written as one that fits, else as a double. One that neither
// holds exactly stays the text that it is, as the payload rules store it.
func numberValue(literal string) ref.Val {
	if whole, err := strconv.ParseInt(literal, 10, 64); err == nil {
		return types.Int(whole)
	}
	float, err := strconv.ParseFloat(literal, 64)
	if err != nil || !payload.IsExact(literal) {
		return types.String(literal)
	}
	return types.Double(float)
}

// variables are the values of the variables of expressions.
type variables struct {
	payload  any // as decoded
	alert    any // as decoded
	header   http.Header
	received time.Time
	meter    *meter

	// What CEL sees of them. The headers are there once an expression used them.
	payloadValue, alertValue any
	headers                  map[string]string

	lookups lookups
}

// setAlert makes an element of the payload the alert.
func (v *variables) setAlert(alert any) {
	v.alert, v.alertValue = alert, watch(alert, &v.lookups.alert)
	v.payloadValue = v.alertValue
	if !isSame(alert, v.payload) {
		v.payloadValue = watch(v.payload, &v.lookups.payload)
	}
}

// lookups are the top-level keys of the alert and of the payload around it that an expression looked up. When
// the payload is the alert, its keys are the alert's.
type lookups struct{ alert, payload keySet }

type keySet map[string]bool

func (s *keySet) add(key string) {
	if *s == nil {
		*s = keySet{}
	}
	(*s)[key] = true
}

// forget empties the set. A map that was large would take long to clear each time.
func (s *keySet) forget() {
	if len(*s) > 64 {
		*s = nil
	}
	clear(*s)
}

// watched is an object that notes the keys that expressions look up in it.
type watched struct {
	traits.Mapper
	keys *keySet
}

// Find looks up a key. Every way to name a key in an expression calls it; iterating over the object does not.
func (w watched) Find(key ref.Val) (ref.Val, bool) {
	if text, ok := key.(types.String); ok {
		w.keys.add(string(text))
	}
	return w.Mapper.Find(key)
}

// watch returns the value of CEL for a decoded value. If that is an object, look-ups in it are noted.
func watch(value any, keys *keySet) any {
	object, ok := value.(map[string]any)
	if !ok {
		return adapter{}.NativeToValue(value)
	}
	return watched{Mapper: types.NewStringInterfaceMap(adapter{}, object), keys: keys}
}

var _ interpreter.Activation = (*variables)(nil)

func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case alertVariable:
		return v.alertValue, true
	case payloadVariable:
		return v.payloadValue, true
	case headersVariable:
		if v.headers == nil {
			v.headers = visibleHeaders(v.header)
		}
		return v.headers, true
	case receivedVariable:
		return v.received, true
	case meterVariable:
		return v.meter, true
	}
	return nil, false
}

// Parent returns nil: there are no other variables.
func (v *variables) Parent() interpreter.Activation { return nil }

// hiddenHeaders are kept from expressions: what an expression gives is stored, and these hold credentials of the sender,
// or of a proxy between it and the operator. docs/mapping.md lists them.
var hiddenHeaders = map[string]bool{
	"api-key": true, "apikey": true, "authorization": true, "cf-access-jwt-assertion": true, "cookie": true,
	"dd-api-key": true, "private-token": true, "proxy-authorization": true, "set-cookie": true, "x-access-token": true,
	"x-amz-security-token": true, "x-amzn-oidc-accesstoken": true, "x-amzn-oidc-data": true, "x-api-key": true,
	"x-api-token": true, "x-auth-request-access-token": true, "x-auth-token": true, "x-csrf-token": true,
	"x-forwarded-access-token": true, "x-forwarded-authorization": true, "x-forwarded-client-cert": true,
	"x-gitlab-token": true, "x-goog-iap-jwt-assertion": true, "x-id-token": true, "x-ms-token-aad-access-token": true,
	"x-ms-token-aad-id-token": true, "x-secret": true, "x-token": true, "x-vault-token": true, "x-webhook-secret": true,
	"x-webhook-token": true,
}

// visibleHeaders returns the headers of a request that expressions see: the first value of each, by the name in lower case.
func visibleHeaders(header http.Header) map[string]string {
	visible := make(map[string]string, min(len(header), maxHeaders))
	for _, name := range sortedKeys(header) {
		values := header[name]
		name = strings.ToLower(name)
		if hiddenHeaders[name] || len(values) == 0 || len(visible) == maxHeaders {
			continue
		}
		visible[name] = strings.ToValidUTF8(values[0][:min(len(values[0]), maxHeaderValue)], "\uFFFD")
	}
	return visible
}
