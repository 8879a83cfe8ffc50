package mapping_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// The tests in this file change every value of every sample of every preset, one at a time. A new preset is covered as
// soon as it has samples.

// sample is a payload of a preset.
type sample struct {
	name    string
	body    any
	headers http.Header
	program *mapping.Program
}

// token replaces a text; no sample has it.
const token = "zq7xtoken"

// eachPreset runs a test for every preset with its samples by case.
func eachPreset(t *testing.T, test func(t *testing.T, preset mapping.Preset, samples map[string]sample)) {
	t.Helper()
	presets, err := mapping.Presets()
	if err != nil {
		t.Fatal(err)
	}
	for _, preset := range presets {
		program, err := mapping.Compile(preset.Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		samples := map[string]sample{}
		for _, name := range sampleCases(t, preset.Name) {
			file := preset.Name + "." + name
			text, err := os.ReadFile(filepath.Join("presets", file+".json"))
			if err != nil {
				t.Fatal(err)
			}
			body, _, err := payload.ParseAny(text)
			if err != nil {
				t.Fatal(err)
			}
			samples[name] = sample{name: name, body: body, headers: sampleHeaders(t, file), program: program}
		}
		t.Run(preset.Name, func(t *testing.T) { test(t, preset, samples) })
	}
}

func (s sample) read(t *testing.T, body any) mapping.Result {
	t.Helper()
	result, err := s.program.Alerts(body, s.headers, received)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return result
}

func keysOf(result mapping.Result) []string {
	var keys []string
	for i := range result.Alerts {
		keys = append(keys, result.Alerts[i].DedupKey)
	}
	return keys
}

// scalarsOf lists the paths of all scalars in a body, null included.
func scalarsOf(value any, at []any) [][]any {
	var found [][]any
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			found = append(found, scalarsOf(element, append(slices.Clip(at), key))...)
		}
	case []any:
		for i, element := range v {
			found = append(found, scalarsOf(element, append(slices.Clip(at), i))...)
		}
	default:
		return [][]any{at}
	}
	return found
}

// replaced returns a copy of a body with what change makes of the value at a path; ok is false if it has no such path.
func replaced(body any, at []any, change func(any) any) (changed any, ok bool) {
	if len(at) == 0 {
		return change(body), true
	}
	switch v := body.(type) {
	case map[string]any:
		key, isKey := at[0].(string)
		element, found := v[key]
		if !isKey || !found {
			return nil, false
		}
		copied := maps.Clone(v)
		copied[key], ok = replaced(element, at[1:], change)
		return copied, ok
	case []any:
		i, isIndex := at[0].(int)
		if !isIndex || i >= len(v) {
			return nil, false
		}
		copied := slices.Clone(v)
		copied[i], ok = replaced(v[i], at[1:], change)
		return copied, ok
	}
	return nil, false
}

// another returns another scalar of the same kind.
func another(value any) any {
	switch v := value.(type) {
	case json.Number:
		return json.Number("5830417")
	case bool:
		return !v
	case nil:
		return nil
	}
	return token
}

// dotted writes a path as presets do.
func dotted(at []any) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(at), " ", "."), "[]")
}

func pathPattern(path string) *regexp.Regexp {
	parts := strings.Split(path, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
}

func isListed(paths []string, at []any) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return pathPattern(path).MatchString(dotted(at)) })
}

// TestThePresetsKeysDependOnNothingElse changes every value: the key changes with those that the preset lists only, and so
// with no state, time or measured value.
func TestThePresetsKeysDependOnNothingElse(t *testing.T) {
	eachPreset(t, func(t *testing.T, preset mapping.Preset, samples map[string]sample) {
		t.Helper()
		used := map[string]bool{}
		for _, s := range samples {
			keys := keysOf(s.read(t, s.body))
			for _, at := range scalarsOf(s.body, nil) {
				body, _ := replaced(s.body, at, another)
				changed := !slices.Equal(keysOf(s.read(t, body)), keys)
				if changed && !isListed(preset.Key.From, at) {
					t.Errorf("%s: the key changes with %s, which key.from does not list", s.name, dotted(at))
				}
				for _, path := range preset.Key.From {
					if !used[path] && pathPattern(path).MatchString(dotted(at)) {
						used[path] = changed || s.needs(t, preset, path, at)
					}
				}
			}
		}
		for _, path := range preset.Key.From {
			if !used[path] {
				t.Errorf("key.from lists %s, which changes the key of no sample", path)
			}
		}
	})
}

// needs reports whether the key changes with a value when the values of some of the key's other paths are null.
func (s sample) needs(t *testing.T, preset mapping.Preset, path string, at []any) bool {
	t.Helper()
	scalars := scalarsOf(s.body, nil)
	others := slices.DeleteFunc(slices.Clone(preset.Key.From), func(other string) bool {
		return other == path || !slices.ContainsFunc(scalars, func(at []any) bool { return pathPattern(other).MatchString(dotted(at)) })
	})
	for subset := range 1 << len(others) {
		body := s.body
		for _, other := range scalars {
			for i, pattern := range others {
				if subset&(1<<i) != 0 && pathPattern(pattern).MatchString(dotted(other)) {
					body, _ = replaced(body, other, func(any) any { return nil })
				}
			}
		}
		changed, _ := replaced(body, at, another)
		if !slices.Equal(keysOf(s.read(t, body)), keysOf(s.read(t, changed))) {
			return true
		}
	}
	return false
}

// TestThePresetsKeysSurviveNull puts null in place of every value, in the firing, the repeat and the resolve alike.
func TestThePresetsKeysSurviveNull(t *testing.T) {
	eachPreset(t, func(t *testing.T, preset mapping.Preset, samples map[string]sample) {
		t.Helper()
		for _, s := range samples {
			for _, at := range scalarsOf(s.body, nil) {
				expectNullIsHarmless(t, preset, samples, s, at)
			}
		}
	})
}

func expectNullIsHarmless(t *testing.T, preset mapping.Preset, samples map[string]sample, s sample, at []any) {
	t.Helper()
	null := func(any) any { return nil }
	body, _ := replaced(s.body, at, null)
	result := s.read(t, body)
	for _, failure := range result.Failures {
		t.Errorf("%s with null for %s: the expression of %s fails: %s", s.name, dotted(at), failure.Field, failure.Message)
	}
	keys := keysOf(result)
	lost := slices.Contains(keys, "") && !slices.Contains(keysOf(s.read(t, s.body)), "")
	if lost && !isDropped(result) && !isListed(preset.Key.Required, at) {
		t.Errorf("%s with null for %s has no key, and key.required does not list it", s.name, dotted(at))
	}
	for _, name := range relatedCases(s.name, samples) {
		other, found := replaced(samples[name].body, at, null)
		if found && !isListed(preset.Key.Required, at) && !slices.Equal(keysOf(samples[name].read(t, other)), keys) {
			t.Errorf("with null for %s, %s and %s have different keys", dotted(at), s.name, name)
		}
	}
}

// isDropped reports whether a payload says nothing about a problem.
func isDropped(result mapping.Result) bool {
	return !slices.ContainsFunc(result.Alerts, func(a mapping.Alert) bool { return !a.Dropped })
}

// relatedCases are the cases that are about the same alerts as a case.
func relatedCases(name string, samples map[string]sample) []string {
	if name == "firing" {
		return []string{"repeat", "resolved"}
	}
	if _, found := samples[name+"-resolved"]; found {
		return []string{name + "-resolved"}
	}
	return nil
}

// TestWhatResolvesHasTheKeyOfWhatFires compares each case with the one that resolves it.
func TestWhatResolvesHasTheKeyOfWhatFires(t *testing.T) {
	eachPreset(t, func(t *testing.T, _ mapping.Preset, samples map[string]sample) {
		t.Helper()
		for _, s := range samples {
			for _, name := range relatedCases(s.name, samples) {
				keys, others := keysOf(s.read(t, s.body)), keysOf(samples[name].read(t, samples[name].body))
				if !slices.Equal(keys, others) || slices.Contains(keys, "") {
					t.Errorf("%s has the keys %q, %s has %q", s.name, keys, name, others)
				}
			}
		}
	})
}

// TestThePresetsLoseNothing puts a new text in place of every value of the samples, and beside every element of a list
// that has it. The alerts must have it, unless they are dropped or the preset discards it.
func TestThePresetsLoseNothing(t *testing.T) {
	eachPreset(t, func(t *testing.T, _ mapping.Preset, samples map[string]sample) {
		t.Helper()
		for _, s := range samples {
			for _, at := range scalarsOf(s.body, nil) {
				if !s.program.Discards(at) {
					body, _ := replaced(s.body, at, func(any) any { return token })
					s.expectToken(t, body, "the value of "+dotted(at))
				}
				expectSecondElement(t, s, at)
			}
		}
	})
}

// expectSecondElement adds to the innermost list of a path a copy of the element with another value there.
func expectSecondElement(t *testing.T, s sample, at []any) {
	t.Helper()
	last := len(at) - 1
	for ; last >= 0; last-- {
		if _, isIndex := at[last].(int); isIndex {
			break
		}
	}
	if last < 0 || s.program.Discards(at) {
		return
	}
	body, _ := replaced(s.body, at[:last], func(list any) any {
		elements := list.([]any)
		second, _ := replaced(elements[at[last].(int)], at[last+1:], func(any) any { return token })
		return append(slices.Clone(elements), second)
	})
	s.expectToken(t, body, "a second "+dotted(at))
}

func (s sample) expectToken(t *testing.T, body any, what string) {
	t.Helper()
	result := s.read(t, body)
	for i := range result.Alerts {
		encoded, err := json.Marshal(result.Alerts[i].Alert)
		if err != nil {
			t.Fatal(err)
		}
		if result.Alerts[i].Dropped || strings.Contains(string(encoded), token) {
			return
		}
	}
	t.Errorf("%s: %s is lost", s.name, what)
}

// TestThePresetsReadOtherKindsOfValues puts a number, an empty text, a list and an object in place of every value: no
// expression may fail on what a sender wrote otherwise than expected.
func TestThePresetsReadOtherKindsOfValues(t *testing.T) {
	kinds := []any{json.Number("7.5"), "", []any{"a"}, map[string]any{"a": "b"}}
	eachPreset(t, func(t *testing.T, _ mapping.Preset, samples map[string]sample) {
		t.Helper()
		for _, s := range samples {
			for _, at := range scalarsOf(s.body, nil) {
				for _, kind := range kinds {
					absent := false // an object, perhaps, that is null in this sample
					body, _ := replaced(s.body, at, func(value any) any {
						absent = value == nil
						return kind
					})
					if absent {
						continue
					}
					for _, failure := range s.read(t, body).Failures {
						t.Errorf("%s with %v for %s: the expression of %s fails: %s", s.name, kind, dotted(at), failure.Field, failure.Message)
					}
				}
			}
		}
	})
}
