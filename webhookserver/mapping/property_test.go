package mapping_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// expressionPool are expressions of every kind; most of them make sense for some payload only.
var expressionPool = []string{
	"alert", "payload", "headers", "received", "alert.a", "alert.?a", "payload.a.b", "alert.?a.?b.orValue('x')", "alert[0]",
	"firstNonEmpty([alert.?title, alert.?a, payload.?a])", "hash([alert.?a])", "parseJSON(string(alert.a))", "null", "''", "'\\u0000\\u202e x'",
	"1", "1.5", "-9223372036854775807 - 1", "18446744073709551615u", "true", "b'\\xff'", "duration('1s')", "timestamp(0)", "[1, 'a', null]",
	"{'a': alert, 'b': [alert]}", "{1: 2}", "alert.map(k, k)", "payload.map(x, alert)", "alert.?list.orValue([])", "[alert, payload]",
	"alert.a == 'x' ? alert.b : alert.c", "has(alert.a) ? alert.a : payload", "merge([alert, payload])",
	"discard([alert.?a])", "pairs(alert.a, ',', '=')", "mapFromList(payload, 'a', 'b')", "timestampFromUnix(alert.a)", "1 / size(alert)",
	"alert.transformMap(k, v, v)", "string(alert.a).matches('x+')", "[?alert.?a]", "{?'a': alert.?a}",
	"alert.exists(k, k == 'a')", "size(alert) > 1", "urlHost('http://a')", "alert.?a.orValue('').find('x+')", "{alert.a: alert}", "alert[alert.a]", "type(alert)", "optional.none()",
}

// anyMapping draws a mapping that compiles.
func anyMapping() *rapid.Generator[*mapping.Program] {
	return rapid.Custom(func(t *rapid.T) *mapping.Program {
		m := &v1alpha1.Mapping{}
		expression := func(name string) v1alpha1.Expression {
			if rapid.Bool().Draw(t, name+" is mapped") {
				return v1alpha1.Expression("dyn(" + rapid.SampledFrom(expressionPool).Draw(t, name) + ")")
			}
			return ""
		}
		m.Alerts, m.Drop = expression("alerts"), expression("drop")
		fields := reflect.ValueOf(&m.Fields).Elem()
		for i := range fields.NumField() {
			fields.Field(i).SetString(string(expression(fields.Type().Field(i).Name)))
		}
		program, err := mapping.Compile("", m)
		if err != nil {
			t.Fatal(err)
		}
		return program
	})
}

// anyBody draws a decoded body, an object or a list of objects.
func anyBody() *rapid.Generator[any] {
	object := rapid.MapOfN(rapid.OneOf(rapid.SampledFrom([]string{"a", "b", "c", "list", "title", "severity", "status", "labels", "custom",
		"message", "starts_at", "dedup_key", "alert"}), rapid.String()), anyValue(2), 0, 8)
	return rapid.OneOf(object.AsAny(), rapid.Map(rapid.SliceOfN(object, 0, 4), func(list []map[string]any) any {
		elements := make([]any, 0, len(list))
		for _, element := range list {
			elements = append(elements, element)
		}
		return elements
	}))
}

func anyValue(levels int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.String().AsAny(),
		rapid.SampledFrom([]any{"x", "", "a=b,c=d", "firing", "ok", "P1", "{\"a\": [1]}", "2026-03-01T11:00:00Z", strings.Repeat("é", 20_000)}),
		rapid.SampledFrom([]any{json.Number("1"), json.Number("1.50"), json.Number("1e400"), json.Number("12345678901234567890"),
			json.Number("1772362800")}),
	}
	if levels == 0 {
		return rapid.OneOf(scalars...)
	}
	return rapid.OneOf(append(scalars, rapid.SliceOfN(anyValue(levels-1), 0, 3).AsAny(),
		rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), anyValue(levels-1), 0, 3).AsAny())...)
}

// violation is what must never be in an alert, whatever the mapping and the payload.
func violation(alert *mapping.Alert) error {
	for name, text := range map[string]struct {
		value string
		limit int
	}{
		"title": {alert.Title, 1024}, "description": {alert.Description, 16384}, "type": {alert.Type, 1024}, "link": {alert.Link, 2048},
		"hostname": {alert.Hostname, 1024}, "region": {alert.Region, 1024}, "dedupKey": {alert.DedupKey, 1024},
	} {
		if utf8.RuneCountInString(text.value) > text.limit || !utf8.ValidString(text.value) ||
			strings.ContainsFunc(text.value, func(r rune) bool { return unicode.IsControl(r) && (name != "description" || r != '\n' && r != '\t') }) ||
			strings.ContainsAny(text.value, "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069") {
			return fmt.Errorf("%s %.100q", name, text.value)
		}
	}
	switch alert.Status {
	case v1alpha1.AlertFiring, v1alpha1.AlertResolved, v1alpha1.AlertAcknowledged, v1alpha1.AlertUnacknowledged:
	default:
		return fmt.Errorf("status %q", alert.Status)
	}
	switch alert.Severity {
	case "", v1alpha1.SeverityCritical, v1alpha1.SeverityError, v1alpha1.SeverityWarning, v1alpha1.SeverityInfo:
	default:
		return fmt.Errorf("severity %q", alert.Severity)
	}
	for name, bag := range testenv.Bags(&alert.AlertContent) {
		for key, value := range bag {
			if !json.Valid(value) {
				return fmt.Errorf("%s.%s: %s", name, key, value)
			}
		}
	}
	if size := alertcontent.Size(&alert.AlertContent); size > alertcontent.MaxBytes {
		return fmt.Errorf("%d bytes", size)
	}
	return nil
}

func TestWhateverTheMappingTheAlertsCanBeStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		program, body := anyMapping().Draw(t, "mapping"), anyBody().Draw(t, "body")
		before := fmt.Sprint(body)
		result, err := program.Alerts(body, nil, received)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(body) != before {
			t.Fatal("the payload was changed")
		}
		for i := range result.Alerts {
			if err := violation(&result.Alerts[i]); err != nil {
				t.Fatal(err)
			}
			result.Alerts[i].Sources()
		}
		again, err := program.Alerts(body, nil, received)
		if err != nil || len(again.Alerts) != len(result.Alerts) {
			t.Fatalf("then %v", err)
		}
		for i := range again.Alerts {
			if !reflect.DeepEqual(again.Alerts[i].Alert, result.Alerts[i].Alert) {
				t.Fatalf("first %v, then %v", result.Alerts[i].Alert, again.Alerts[i].Alert)
			}
		}
	})
}

func TestWithoutAMappingAnObjectIsReadAsThePayloadRulesSay(t *testing.T) {
	program, err := mapping.Compile("", nil)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.MapOfN(rapid.SampledFrom([]string{"title", "subject", "labels", "custom", "x"}), anyValue(2), 0, 5).Draw(t, "body")
		result, err := program.Alerts(body, nil, received)
		if err != nil {
			t.Fatal(err)
		}
		alert, _, warnings := payload.Read(body, received)
		if !reflect.DeepEqual(result.Alerts[0].Alert, alert) || !reflect.DeepEqual(result.Alerts[0].Warnings, warnings) {
			t.Fatalf("%v %v, not %v %v", result.Alerts[0].Alert, result.Alerts[0].Warnings, alert, warnings)
		}
	})
}

// FuzzPresets sends any body through every preset.
func FuzzPresets(f *testing.F) {
	samples, err := filepath.Glob("presets/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, sample := range samples {
		body, err := os.ReadFile(sample)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	presets, err := mapping.Presets()
	if err != nil {
		f.Fatal(err)
	}
	programs := map[string]*mapping.Program{}
	for i := range presets {
		if programs[presets[i].Name], err = mapping.Compile(presets[i].Name, nil); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		value, _, err := payload.ParseAny(body)
		if err != nil {
			return
		}
		for name, program := range programs {
			result, err := program.Alerts(value, nil, received)
			if err != nil {
				continue // no object, or too many: as without a mapping
			}
			for i := range result.Alerts {
				if err := violation(&result.Alerts[i]); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
	})
}

// FuzzCompile compiles any text as an expression of every field, and evaluates it.
func FuzzCompile(f *testing.F) {
	for _, expression := range expressionPool {
		f.Add(expression)
	}
	body := map[string]any{"a": "x", "b": json.Number("1"), "list": []any{json.Number("1"), map[string]any{"a": "y"}}}
	f.Fuzz(func(t *testing.T, expression string) {
		e := v1alpha1.Expression(expression)
		program, err := mapping.Compile("", &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Title: e, Labels: e}})
		if err != nil {
			return
		}
		result, err := program.Alerts(body, nil, received)
		if err != nil {
			t.Fatal(err)
		}
		if err := violation(&result.Alerts[0]); err != nil {
			t.Fatal(err)
		}
	})
}
