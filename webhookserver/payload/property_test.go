package payload_test

import (
	"encoding/json"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// newRat reads a number exactly; ok is false for one whose exponent takes too long to write out.
func newRat(literal string) (*big.Rat, bool) {
	if i := strings.IndexAny(literal, "eE"); i >= 0 && len(literal)-i > 6 {
		return new(big.Rat), strings.Trim(literal[:i], "-0.") == ""
	}
	return new(big.Rat).SetString(literal)
}

// fieldNames are the names that mean something, and some that do not.
var fieldNames = []string{
	"title", "subject", "description", "message", "severity", "priority", "type", "link", "hostname", "region",
	"labels", "annotations", "values", "custom", "status", "dedup_key", "starts_at", "ends_at", "expires_at",
	"Title", "alerts", "severity_2", "a", "a_2", "", "\u202e", "<&>",
}

// words are texts that mean something in some field.
var words = []string{
	"", " ", "firing", "resolved", "acknowledged", "OK", "up", "odd", "critical", "P1", "disaster", "2024-01-15T10:30:00Z",
	"2024-01-15 10:29:00+0000", "0001-01-01T00:00:00Z", "1705314600", "never", "\u0000", "a\nb", "<>&\u2028", "\xff", "😀",
}

// anyLiteral draws a JSON number.
func anyLiteral() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?`),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,19})`),
		rapid.StringMatching(`17053[0-9]{5,15}(\.[0-9]{1,6})?`),
		rapid.SampledFrom([]string{"0", "-0", "0e999999999999", "1e400", "1e-400", "9223372036854775807", "1e20", "1e21", "1e-7"}),
	)
}

// anyText draws a string, not always UTF-8.
func anyText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom(words),
		rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.IntRange(0, 40_000), func(n int) string { return strings.Repeat("é<", n) }),
	)
}

// anyValue draws a decoded JSON value of at most so many levels.
func anyValue(levels int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		anyText().AsAny(),
		rapid.Map(anyLiteral(), func(s string) any { return json.Number(s) }),
	}
	if levels == 0 {
		return rapid.OneOf(scalars...)
	}
	return rapid.OneOf(append(scalars,
		rapid.SliceOfN(anyValue(levels-1), 0, 4).AsAny(),
		anyObject(levels-1).AsAny(),
	)...)
}

// anyObject draws a decoded JSON object.
func anyObject(levels int) *rapid.Generator[map[string]any] {
	name := rapid.OneOf(rapid.SampledFrom(fieldNames), rapid.SampledFrom(fieldNames), rapid.String())
	return rapid.MapOfN(name, anyValue(levels), 0, 12)
}

func TestWhateverThePayloadTheAlertCanBeStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := anyObject(3).Draw(t, "object")
		alert, _, warnings := payload.Read(object, received)
		if err := violation(&alert, warnings); err != nil {
			t.Fatal(err)
		}
	})
}

func TestNormalisingIsDeterministicAndLeavesThePayloadAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := anyObject(3).Draw(t, "object")
		before := clone(object)
		alert, _, warnings := payload.Read(object, received)
		if !reflect.DeepEqual(object, before) {
			t.Fatal("the payload was changed")
		}
		again, _, warningsAgain := payload.Read(before.(map[string]any), received)
		if !reflect.DeepEqual(again, alert) || !reflect.DeepEqual(warningsAgain, warnings) {
			t.Fatalf("first %v %v, then %v %v", alert, warnings, again, warningsAgain)
		}
	})
}

// clone copies decoded JSON.
func clone(value any) any {
	switch v := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(v))
		for key, element := range v {
			copied[key] = clone(element)
		}
		return copied
	case []any:
		copied := make([]any, len(v))
		for i, element := range v {
			copied[i] = clone(element)
		}
		return copied
	}
	return value
}

func TestNumbersSurviveExactlyOrAsStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		literal := anyLiteral().Draw(t, "literal")
		alert, _, _ := payload.Read(map[string]any{"values": map[string]any{"n": json.Number(literal)}}, received)
		if err := numberViolation(literal, alert.Values["n"]); err != nil {
			t.Fatal(err)
		}
	})
}

func TestNothingOfAPayloadIsLostWithoutAWarning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := anyObject(2).Draw(t, "object")
		alert, _, warnings := payload.Read(object, received)
		for key := range object {
			if !warned(warnings, key) && !found(key, object[key], alert.Custom) {
				t.Fatalf("%q is gone from %v", key, alert)
			}
		}
	})
}

// warned reports whether a warning is about the key, or about so much that it may be.
func warned(warnings []payload.Warning, key string) bool {
	for _, w := range warnings {
		if w.Field == plaintext.SanitizeLine(key) || w.Field == "" {
			return true
		}
	}
	return false
}

// found reports whether a top-level key is in the custom bag, or is one that has a place of its own.
func found(key string, value any, custom map[string]json.RawMessage) bool {
	if slices.Contains(fieldNames[:19], key) {
		return true
	}
	stored, ok := custom[strings.ToValidUTF8(key, "\uFFFD")]
	return ok && (value != nil) == (string(stored) != "null")
}

// Callers other than Parse may hand over Go values of any kind.
func TestValuesThatAreNotFromParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(
			rapid.Float64().AsAny(),
			rapid.Int64().AsAny(),
			rapid.Uint64().AsAny(),
			rapid.Just[any](json.Number("NaN")),
			rapid.Just[any](json.Number("")),
			rapid.Just[any](make(chan int)),
			rapid.Just[any](map[string]string{"a": "b"}),
			rapid.Just[any]([]string{"a"}),
			rapid.Just[any](struct{ A int }{1}),
			rapid.Just[any](received),
			rapid.Just[any](json.RawMessage(`{"a":1.0}`)),
			rapid.Just[any](json.RawMessage(`{`)),
		).Draw(t, "value")
		name := rapid.SampledFrom(fieldNames).Draw(t, "name")
		alert, _, warnings := payload.Read(map[string]any{name: value, "labels": map[string]any{"a": value}}, received)
		if err := violation(&alert, warnings); err != nil {
			t.Fatal(err)
		}
	})
}

func TestEveryAcceptedBodyGivesAnAlertThatCanBeStored(t *testing.T) {
	for name, body := range accepted {
		t.Run(name, func(t *testing.T) {
			alert, warnings := read(t, body)
			if err := violation(&alert, warnings[:min(len(warnings), 32)]); err != nil {
				t.Fatal(err)
			}
		})
	}
}
