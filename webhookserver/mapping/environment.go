package mapping

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

// The variables of expressions.
const (
	payloadVariable  = "payload"
	alertVariable    = "alert"
	headersVariable  = "headers"
	receivedVariable = "received"
)

// environment is what all expressions are compiled in: the standard library of CEL, the libraries that
// Kubernetes adds to it (those about authorization aside) and the functions of this package. Unlike in
// Kubernetes, the elements of a list and the values of a map may be of different types, as in JSON.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
		cel.ParserExpressionSizeLimit(maxExpressionLength),
		cel.ParserRecursionLimit(maxExpressionDepth),
		cel.CustomTypeAdapter(adapter{}),
		loopFunctions(),
		cel.Variable(payloadVariable, cel.DynType),
		cel.Variable(alertVariable, cel.DynType),
		cel.Variable(headersVariable, cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable(receivedVariable, cel.TimestampType),
	}
	for _, lib := range libraries {
		options = append(options, guarded(lib))
	}
	return cel.NewCustomEnv(options...)
})

// libraries have the functions of expressions, but for those about optional values.
var libraries = []cel.EnvOption{
	cel.StdLib(),
	ext.Strings(ext.StringsVersion(5)),
	ext.Lists(ext.ListsVersion(3)),
	ext.Sets(),
	ext.Encoders(),
	ext.TwoVarComprehensions(),
	library.Lists(),
	library.URLs(),
	library.Regex(),
	library.IP(),
	library.CIDR(),
	library.Format(),
	library.SemverLib(library.SemverVersion(1)),
	ownFunctions(),
}

// programOptions are how expressions are run: until they have cost so much.
func programOptions(limit uint64) []cel.ProgramOption {
	return []cel.ProgramOption{
		cel.CostTracking(costs{}),
		cel.CostLimit(limit),
		cel.InterruptCheckFrequency(interruptFrequency),
	}
}

// adapter makes values of CEL from what payload.Parse gives, without a copy.
type adapter struct{}

var _ types.Adapter = adapter{}

// NativeToValue gives the value of CEL for a value of Go.
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

// numberValue reads a number as an int if it is written as one that fits, else as a double.
func numberValue(literal string) ref.Val {
	if whole, err := strconv.ParseInt(literal, 10, 64); err == nil {
		return types.Int(whole)
	}
	float, err := strconv.ParseFloat(literal, 64)
	if err != nil && float == 0 {
		return types.NewErr("%q is not a number", literal)
	}
	return types.Double(float)
}

// variables are the values of the variables of expressions.
type variables struct {
	payload  any
	alert    any
	headers  map[string]string
	received time.Time

	read    uint64 // bytes that the evaluation of quick expressions has read
	mayRead uint64 // how many it may read, if not 0
	looked  lookups
}

// lookups are the top-level keys of the alert and of the payload that the evaluation of an expression has
// looked up, until the next one. When the payload is the alert, its keys are the alert's.
type lookups struct{ alert, payload keySet }

// keySet is a set of keys.
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

// look notes a look-up of a key.
func (v *variables) look(root, key string) {
	if root == alertVariable || isSame(v.alert, v.payload) {
		v.looked.alert.add(key)
	} else {
		v.looked.payload.add(key)
	}
}

// watched is an object for CEL whose look-ups are noted.
type watched struct {
	traits.Mapper
	variables *variables
	root      string
}

// Find looks up a key, as every way to name a key in an expression does. Get is for what goes through all
// keys, in any order.
func (w watched) Find(key ref.Val) (ref.Val, bool) {
	if text, ok := key.(types.String); ok {
		w.variables.look(w.root, string(text))
	}
	return w.Mapper.Find(key)
}

// watch is a variable for CEL.
func (v *variables) watch(root string, value any) any {
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	return watched{Mapper: types.NewStringInterfaceMap(adapter{}, object), variables: v, root: root}
}

// takeRead is how much was read since it was asked last.
func (v *variables) takeRead() uint64 {
	read := v.read
	v.read = 0
	return read
}

var _ interpreter.Activation = (*variables)(nil)

// ResolveName gives the value of a variable.
func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case payloadVariable:
		return v.watch(payloadVariable, v.payload), true
	case alertVariable:
		return v.watch(alertVariable, v.alert), true
	case headersVariable:
		return v.headers, true
	case receivedVariable:
		return v.received, true
	}
	return nil, false
}

// Parent is nil: there are no other variables.
func (v *variables) Parent() interpreter.Activation { return nil }
