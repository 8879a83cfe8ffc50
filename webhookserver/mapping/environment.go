package mapping

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
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

var loadedEnvironment = sync.OnceValue(func() *environment {
	env := must(cel.NewCustomEnv(slices.Concat([]cel.EnvOption{
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
	}, ownFunctions(), meterFunctions())...))
	bindings := map[string]*functions.Overload{}
	for _, function := range env.Functions() {
		for _, binding := range must(function.Bindings()) {
			bindings[binding.Operator] = binding
		}
	}
	return &environment{env, bindings}
})

// only adds the named functions of a library.
func only(library cel.EnvOption, names ...string) cel.EnvOption {
	var named []*decls.FunctionDecl
	for _, name := range names {
		named = append(named, must(cel.NewCustomEnv(library)).Functions()[name])
	}
	return cel.FunctionDecls(named...)
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

// variables are the values of the variables of one evaluation.
type variables struct {
	alert, payload ref.Val
	header         http.Header
	headers        map[string]string // those that expressions see, once an expression used them
	received       time.Time
	meter          *meter

	// These are the top-level keys that the expression looked up, of the alert and of the payload around it.
	looked, lookedAround map[string]bool
}

// set prepares the evaluation of an expression. If the payload is the alert, its keys are the alert's.
func (v *variables) set(alert, body any) {
	v.looked, v.lookedAround = map[string]bool{}, map[string]bool{}
	v.alert = watch(alert, v.looked)
	v.payload = v.alert
	if !isSame(alert, body) {
		v.payload = watch(body, v.lookedAround)
	}
}

// watched is an object that notes the keys that expressions look up in it.
type watched struct {
	traits.Mapper

	looked map[string]bool
}

// Find looks up a key. Every way to name a key in an expression calls it; iterating over the object does not.
func (w watched) Find(key ref.Val) (ref.Val, bool) {
	if text, ok := key.(types.String); ok {
		w.looked[string(text)] = true
	}
	return w.Mapper.Find(key)
}

// watch returns the value of CEL for a decoded value. If that is an object, look-ups in it are noted.
func watch(value any, looked map[string]bool) ref.Val {
	result := adapter{}.NativeToValue(value)
	if object, ok := result.(traits.Mapper); ok {
		return watched{object, looked}
	}
	return result
}

var _ interpreter.Activation = (*variables)(nil)

func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case alertVariable:
		return v.alert, true
	case payloadVariable:
		return v.payload, true
	case headersVariable:
		if v.headers == nil {
			v.headers = VisibleHeaders(v.header)
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
	"dd-api-key": true, "ocp-apim-subscription-key": true, "private-token": true, "proxy-authorization": true,
	"set-cookie": true, "x-access-token": true, "x-amz-security-token": true, "x-amzn-oidc-accesstoken": true,
	"x-amzn-oidc-data": true, "x-api-key": true, "x-api-token": true, "x-auth-request-access-token": true,
	"x-auth-token": true, "x-csrf-token": true, "x-forwarded-access-token": true, "x-forwarded-authorization": true,
	"x-forwarded-client-cert": true, "x-functions-key": true,
	"x-gitlab-token": true, "x-goog-iap-jwt-assertion": true, "x-id-token": true, "x-ms-token-aad-access-token": true,
	"x-ms-token-aad-id-token": true, "x-secret": true, "x-token": true, "x-vault-token": true, "x-webhook-secret": true,
	"x-webhook-token": true,
}

// VisibleHeaders returns the headers of a request that expressions see: the first value of each, by the name in lower case.
func VisibleHeaders(header http.Header) map[string]string {
	visible := make(map[string]string, min(len(header), maxHeaders))
	for _, name := range slices.Sorted(maps.Keys(header)) {
		values := header[name]
		name = strings.ToLower(name)
		if hiddenHeaders[name] || len(values) == 0 || len(visible) == maxHeaders {
			continue
		}
		visible[name] = strings.ToValidUTF8(values[0][:min(len(values[0]), maxHeaderValue)], "\uFFFD")
	}
	return visible
}
