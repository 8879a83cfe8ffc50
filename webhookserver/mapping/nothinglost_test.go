package mapping_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// eachScalar calls f for every scalar in a value, with the keys and indexes on the way to it.
func eachScalar(value any, at []any, f func(at []any, scalar any, text string)) {
	switch v := value.(type) {
	case nil:
	case map[string]any:
		for key, element := range v {
			eachScalar(element, append(slices.Clip(at), key), f)
		}
	case []any:
		for i, element := range v {
			eachScalar(element, append(slices.Clip(at), i), f)
		}
	default:
		if text := strings.TrimSpace(fmt.Sprint(v)); text != "" {
			f(at, v, text)
		}
	}
}

// said is what the alerts of a payload say, scalar by scalar.
type said struct {
	texts map[string]bool
	all   []mapping.Alert
}

func saidBy(tb testing.TB, alerts []mapping.Alert) said {
	tb.Helper()
	s := said{texts: map[string]bool{}, all: alerts}
	for i := range alerts {
		encoded, err := json.Marshal(alerts[i].Alert)
		if err != nil {
			tb.Fatal(err)
		}
		value, _, err := payload.ParseAny(encoded)
		if err != nil {
			tb.Fatal(err)
		}
		eachScalar(value, nil, func(_ []any, _ any, text string) {
			s.texts[text] = true
			// A label that was no string has the JSON of it.
			if inner, _, err := payload.ParseAny([]byte(text)); err == nil {
				eachScalar(inner, nil, func(_ []any, _ any, text string) { s.texts[text] = true })
			}
		})
	}
	return s
}

// has reports whether an alert says it: word for word, or as the payload rules read a severity, a status or a time.
func (s said) has(text string) bool {
	if s.texts[text] || s.texts[plaintext.SanitizeLine(text)] || strings.HasPrefix(text, "0001-01-01T") {
		return true
	}
	if number := json.Number(text); s.texts[strings.TrimRight(strings.TrimRight(number.String(), "0"), ".")] {
		return true // 1.50 is 1.5
	}
	read, _, _ := payload.Read(map[string]any{"severity": text, "status": text, "starts_at": text, "dedup_key": "k",
		"description": text}, received)
	return slices.ContainsFunc(s.all, func(a mapping.Alert) bool {
		return a.Description == read.Description || read.Severity != "" && a.Severity == read.Severity || read.Custom["status"] == nil && a.Status == read.Status ||
			read.Custom["starts_at"] == nil && read.StartTime != nil && isTime(read.StartTime.Time, a)
	})
}

func isTime(at time.Time, a mapping.Alert) bool {
	return slices.ContainsFunc([]*v1alpha1.Timestamp{a.StartTime, a.EndTime, a.ExpiryTime}, func(t *v1alpha1.Timestamp) bool {
		return t != nil && t.Equal(at)
	})
}

// TestNothingOfASampleIsLost holds what the alerts of every preset's samples say against the samples.
func TestNothingOfASampleIsLost(t *testing.T) {
	eachPreset(t, func(t *testing.T, _ mapping.Preset, samples map[string]sample) {
		t.Helper()
		for name, s := range samples {
			t.Run(name, func(t *testing.T) { expectNothingLost(t, s) })
		}
	})
}

func expectNothingLost(t *testing.T, s sample) {
	t.Helper()
	alerts := saidBy(t, s.read(t, s.body).Alerts)
	eachScalar(s.body, nil, func(at []any, scalar any, text string) {
		if !s.program.DiscardsValue(at, scalar) && !alerts.has(text) {
			t.Errorf("%v, which is %.100q, is lost", at, text)
		}
	})
}

// sampleOf returns a payload as a sample.
func sampleOf(t *testing.T, program *mapping.Program, text string) sample {
	t.Helper()
	body, _, err := payload.ParseAny([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return sample{name: text, body: body, program: program}
}

// TestNothingOfASampleIsLostBesideItsDoubles gives every top-level text of a sample a neighbour that says a part of it.
func TestNothingOfASampleIsLostBesideItsDoubles(t *testing.T) {
	program := compiled(t, `{fields: {title: "firstNonEmpty([alert.?summary, alert.?code, alert.?note])", hostname: "alert.?host"}}`)
	for _, body := range []string{
		`{"summary":"Disk 12 full","code":1}`, `{"summary":"Disk 12 full","code":12,"note":"full"}`,
		`{"summary":"db-1 is down","host":{"name":"db-1"},"code":true}`, `{"code":0,"note":"0","host":"0.0"}`,
	} {
		expectNothingLost(t, sampleOf(t, program, body))
	}
}

// TestAnElementOfAListDoesNotConsumeTheList uses one element of a list, or a part of one: the others stay in custom.
func TestAnElementOfAListDoesNotConsumeTheList(t *testing.T) {
	const body = `{"list": ["a", "b"], "one": ["only"], "nest": [[1, 2], [3, 4]], "same": [{"k": "v"}, {"k": "v"}],
		"objects": [{"name": "n1", "v": 5, "inner": {"x": "y1"}}, {"name": "n2", "v": 6, "inner": {"x": "y2"}}]}`
	for _, text := range []string{
		`{fields: {hostname: "alert.list[0]"}}`, `{fields: {title: "alert.one[0]"}}`,
		`{fields: {hostname: "alert.objects[0].name"}}`, `{fields: {labels: "alert.objects[0]"}}`,
		`{fields: {labels: "{'first': alert.objects[0]}"}}`, `{fields: {labels: "{'first': alert.list[0]}"}}`,
		`{fields: {labels: "merge([alert.objects[0]])"}}`, `{fields: {labels: "alert.objects[1].inner"}}`,
		`{fields: {labels: "alert.same[0]"}}`, `{fields: {custom: "alert.objects[0]"}}`,
		`{fields: {values: "{'l': [alert.objects[0]]}"}}`, `{fields: {values: "{?'x': alert.?objects[?1].?inner}"}}`,
		`{alerts: "payload.objects[0]"}`, `{alerts: "[payload.objects[0]]"}`, `{alerts: "payload.nest[0]"}`,
		`{alerts: "payload.objects.filter(o, o.name == 'n1')"}`, `{alerts: "payload.objects.map(o, o.inner)"}`,
	} {
		t.Run(text, func(t *testing.T) { expectNothingLost(t, sampleOf(t, compiled(t, text), body)) })
	}
}
