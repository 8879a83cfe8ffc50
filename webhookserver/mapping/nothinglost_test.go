package mapping_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// eachScalar calls f for every scalar in a value, with the keys and indexes on the way to it.
func eachScalar(value any, at []any, f func(at []any, text string)) {
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
			f(at, text)
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
		eachScalar(value, nil, func(_ []any, text string) { s.texts[text] = true })
	}
	return s
}

// has reports whether an alert says it: word for word, or as the payload rules read a severity, a status or a time.
func (s said) has(text string) bool {
	if s.texts[text] || s.texts[v1alpha1.SanitizeLine(text)] || strings.HasPrefix(text, "0001-01-01T") {
		return true
	}
	if number := json.Number(text); s.texts[strings.TrimRight(strings.TrimRight(number.String(), "0"), ".")] {
		return true // 1.50 is 1.5
	}
	read, _ := payload.Normalise(map[string]any{"severity": text, "status": text, "starts_at": text, "dedup_key": "k",
		"description": text}, received)
	return slices.ContainsFunc(s.all, func(a mapping.Alert) bool {
		return a.Description == read.Description || read.Severity != "" && a.Severity == read.Severity || read.Custom["status"] == nil && a.Status == read.Status ||
			read.Custom["starts_at"] == nil && read.StartsAt != nil && isTime(read.StartsAt.Time, a)
	})
}

func isTime(at time.Time, a mapping.Alert) bool {
	return a.StartsAt != nil && a.StartsAt.Equal(at) || a.EndsAt != nil && a.EndsAt.Equal(at)
}

// TestNothingOfASampleIsLost holds what the alerts of every preset's samples say against the samples.
func TestNothingOfASampleIsLost(t *testing.T) {
	presets, err := mapping.Presets()
	if err != nil {
		t.Fatal(err)
	}
	for _, preset := range presets {
		program, err := mapping.Compile(preset.Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range sampleCases(t, preset.Name) {
			t.Run(preset.Name+"."+name, func(t *testing.T) {
				text, err := os.ReadFile(filepath.Join("presets", preset.Name+"."+name+".json"))
				if err != nil {
					t.Fatal(err)
				}
				expectNothingLost(t, program, string(text))
			})
		}
	}
}

func expectNothingLost(t *testing.T, program *mapping.Program, text string) {
	t.Helper()
	result := readBody(t, program, text, nil)
	sent, _, err := payload.ParseAny([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	alerts := saidBy(t, result.Alerts)
	eachScalar(sent, nil, func(at []any, text string) {
		if !program.Discards(at) && !alerts.has(text) {
			t.Errorf("%v, which is %.100q, is lost", at, text)
		}
	})
}

// TestNothingOfASampleIsLostBesideItsDoubles gives every top-level text of a sample a neighbour that says a part of it.
func TestNothingOfASampleIsLostBesideItsDoubles(t *testing.T) {
	program := compiled(t, `{fields: {title: "firstNonEmpty([alert.?summary, alert.?code, alert.?note])", hostname: "alert.?host"}}`)
	for _, body := range []string{
		`{"summary":"Disk 12 full","code":1}`, `{"summary":"Disk 12 full","code":12,"note":"full"}`,
		`{"summary":"db-1 is down","host":{"name":"db-1"},"code":true}`, `{"code":0,"note":"0","host":"0.0"}`,
	} {
		expectNothingLost(t, program, body)
	}
}
