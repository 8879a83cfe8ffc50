package mapping_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/config/crd"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

var received = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestPresets runs the samples of every preset; presets/README.md says what lies beside one.
func TestPresets(t *testing.T) {
	g := NewWithT(t)
	presets, err := mapping.Presets()
	g.Expect(err).NotTo(HaveOccurred())
	for _, preset := range presets {
		t.Run(preset.Name, func(t *testing.T) { testPreset(t, preset) })
	}
}

// TestTheAPIServerKnowsThePresets compares spec.preset's enum with the presets.
func TestTheAPIServerKnowsThePresets(t *testing.T) {
	g := NewWithT(t)
	definition := map[string]any{}
	g.Expect(yaml.Unmarshal(crd.WebhookIntegration, &definition)).To(Succeed())
	var enum []string
	for _, version := range definition["spec"].(map[string]any)["versions"].([]any) {
		values, found, err := unstructured.NestedStringSlice(version.(map[string]any),
			"schema", "openAPIV3Schema", "properties", "spec", "properties", "preset", "enum")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found).To(BeTrue())
		enum = append(enum, values...)
	}
	g.Expect(enum).To(ConsistOf(mapping.PresetNames()), "run make generate")
}

func testPreset(t *testing.T, preset mapping.Preset) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(preset.Title).NotTo(BeEmpty(), "title")
	g.Expect(preset.Documentation).NotTo(BeEmpty(), "documentation")
	program, err := mapping.Compile(preset.Name, nil)
	g.Expect(err).NotTo(HaveOccurred())

	expected := map[string][]map[string]any{}
	readYAML(t, preset.Name+".expected.yaml", &expected)
	g.Expect(expected).To(HaveKey("firing"))
	g.Expect(expected).To(HaveKey("repeat"))
	g.Expect(expected).To(HaveKey("resolved"))
	g.Expect(slices.Sorted(maps.Keys(expected))).To(Equal(sampleCases(t, preset.Name)), "samples and expectations")

	keys := map[string][]string{}
	for name, alerts := range expected {
		result := readSample(t, program, preset.Name+"."+name)
		for _, problem := range differences(result.Alerts, alerts) {
			t.Errorf("%s.%s: %s", preset.Name, name, problem)
		}
		asks := preset.Name+"."+name == "sns-cloudwatch.subscription" || preset.Name+"."+name == "netdata.test"
		g.Expect(result.Handshake != "").To(Equal(asks), name)
		for _, w := range result.Warnings {
			if asks && w.Detail == result.Handshake {
				continue
			}
			t.Errorf("%s.%s: the warning %q %s", preset.Name, name, w.Field, w.Detail)
		}
		for _, alert := range result.Alerts {
			keys[name] = append(keys[name], alert.DedupKey)
		}
	}
	g.Expect(keys["firing"]).NotTo(ContainElement(BeEmpty()), "dedup keys")
	g.Expect(keys["resolved"]).To(Equal(keys["firing"]), "what resolves has the dedup keys of what fires")
	g.Expect(keys["repeat"]).To(Equal(keys["firing"]), "a repeat has the same dedup keys")
}

// sampleCases are the cases that a preset has a payload for.
func sampleCases(t *testing.T, preset string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("presets", preset+".*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []string
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), preset+"."), ".json")
		if !strings.HasSuffix(name, ".headers") {
			cases = append(cases, name)
		}
	}
	slices.Sort(cases)
	return cases
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("presets", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
}

// readSample reads a sample payload with the headers beside it, if any.
func readSample(t *testing.T, program *mapping.Program, name string) mapping.Result {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("presets", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return readBody(t, program, string(body), sampleHeaders(t, name))
}

// sampleHeaders reads the headers beside a sample, if any.
func sampleHeaders(t *testing.T, name string) http.Header {
	t.Helper()
	headers := http.Header{}
	if _, err := os.Stat(filepath.Join("presets", name+".headers.json")); err == nil {
		values := map[string]string{}
		readYAML(t, name+".headers.json", &values)
		for key, value := range values {
			headers.Set(key, value)
		}
	}
	return headers
}

// readBody decodes a body and reads it.
func readBody(tb testing.TB, program *mapping.Program, body string, headers http.Header) mapping.Result {
	tb.Helper()
	value, _, err := payload.ParseAny([]byte(body))
	if err != nil {
		tb.Fatal(err)
	}
	result, err := program.Alerts(value, headers, received)
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

// differences lists where alerts are not as expected.
func differences(alerts []mapping.Alert, expected []map[string]any) []string {
	if len(alerts) != len(expected) {
		return []string{fmt.Sprintf("%d alerts, expected are %d", len(alerts), len(expected))}
	}
	var found []string
	for i, alert := range alerts {
		for _, problem := range alertDifferences(alert, expected[i]) {
			found = append(found, fmt.Sprintf("alert %d: %s", i, problem))
		}
	}
	return found
}

func alertDifferences(alert mapping.Alert, expected map[string]any) []string {
	var found []string
	encoded, err := json.Marshal(alert.Alert)
	if err != nil {
		return []string{err.Error()}
	}
	actual := map[string]any{}
	if err := yaml.Unmarshal(encoded, &actual); err != nil {
		return []string{err.Error()}
	}
	warned := map[string]bool{}
	for _, w := range alert.Warnings {
		warned[w.Field] = true
	}
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		want := expected[name]
		switch name {
		case "dropped":
			if alert.Dropped != want {
				found = append(found, fmt.Sprintf("dropped is %v", alert.Dropped))
			}
		case "absent":
			for _, field := range want.([]any) {
				if value, present := actual[field.(string)]; present {
					found = append(found, fmt.Sprintf("%v is %v; it should be absent", field, value))
				}
			}
		case "warnings":
			for _, field := range want.([]any) {
				if !warned[field.(string)] {
					found = append(found, fmt.Sprintf("no warning about %v", field))
				}
				delete(warned, field.(string))
			}
		default:
			found = append(found, valueDifferences(name, actual[name], want)...)
		}
	}
	if _, given := expected["dropped"]; !given && alert.Dropped {
		found = append(found, "it is dropped")
	}
	for _, w := range alert.Warnings {
		// Some samples begin after the time of receipt of these tests.
		if warned[w.Field] && !strings.Contains(w.Detail, " ahead: ") {
			found = append(found, fmt.Sprintf("the warning %q %s", w.Field, w.Detail))
		}
	}
	return found
}

// sameTime reports whether two values are the same time, however it is written.
func sameTime(a, b any) bool {
	first, isText := a.(string)
	second, isAlso := b.(string)
	if !isText || !isAlso {
		return false
	}
	at, err := time.Parse(time.RFC3339Nano, first)
	other, otherErr := time.Parse(time.RFC3339Nano, second)
	return err == nil && otherErr == nil && at.Equal(other)
}

// valueDifferences compares a value; of an object only the keys that are expected.
func valueDifferences(name string, actual, expected any) []string {
	want, isObject := expected.(map[string]any)
	if !isObject {
		if sameTime(actual, expected) {
			return nil
		}
		if !reflect.DeepEqual(actual, expected) {
			return []string{fmt.Sprintf("%s is %#v; expected is %#v", name, actual, expected)}
		}
		return nil
	}
	have, isObject := actual.(map[string]any)
	if !isObject {
		return []string{fmt.Sprintf("%s is %#v; expected is an object", name, actual)}
	}
	var found []string
	for _, key := range slices.Sorted(maps.Keys(want)) {
		found = append(found, valueDifferences(name+"."+key, have[key], want[key])...)
	}
	return found
}

// TestAPresetReadsAsManyAlertsAsThereMayBe multiplies the alerts of the samples of tools that send many at a time.
func TestAPresetReadsAsManyAlertsAsThereMayBe(t *testing.T) {
	for _, name := range []string{"alertmanager", "grafana", "vmalert"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			text, err := os.ReadFile(filepath.Join("presets", name+".firing.json"))
			g.Expect(err).NotTo(HaveOccurred())
			body, _, err := payload.ParseAny(text)
			g.Expect(err).NotTo(HaveOccurred())
			if object, ok := body.(map[string]any); ok {
				object["alerts"] = manyOf(object["alerts"])
			} else {
				body = manyOf(body)
			}
			program, err := mapping.Compile(name, nil)
			g.Expect(err).NotTo(HaveOccurred())
			result, err := program.Alerts(body, nil, received)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.Alerts).To(HaveLen(mapping.MaxAlerts))
			for _, alert := range result.Alerts {
				for _, w := range alert.Warnings {
					g.Expect(w.Detail).NotTo(ContainSubstring("too much"))
				}
			}
			work := mapping.WorkOf(program, body, received)
			g.Expect(work).To(BeNumerically("<", mapping.MaxAlertWork))
			t.Logf("work %d of %d", work, mapping.MaxAlertWork)
		})
	}
}

// manyOf repeats the elements of a list; those that are objects get 16 labels.
func manyOf(list any) []any {
	elements := list.([]any)
	for _, element := range elements {
		labels := element.(map[string]any)["labels"].(map[string]any)
		for i := len(labels); i < 16; i++ {
			labels[fmt.Sprintf("label_%d", i)] = "of a length as usual"
		}
	}
	var many []any
	for len(many) < mapping.MaxAlerts {
		many = append(many, elements...)
	}
	return many[:mapping.MaxAlerts]
}
