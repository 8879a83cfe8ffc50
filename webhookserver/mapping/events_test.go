package mapping_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// toolEvent is one kind of message that a tool sends, as NAME.events.yaml beside a preset lists them.
type toolEvent struct {
	Event  string         `json:"event"`  // what happened, in the words of the tool
	Does   string         `json:"does"`   // fires, resolves, acknowledges, unacknowledges, or is dropped
	Sample string         `json:"sample"` // NAME.SAMPLE.json
	Set    map[string]any `json:"set"`    // what differs from the sample, by its path; null: it is absent
}

// outcome returns what an alert does, in the words of a list of events.
func outcome(alert *mapping.Alert) string {
	if alert.Dropped {
		return "dropped"
	}
	return map[string]string{
		"firing": "fires", "resolved": "resolves", "acknowledged": "acknowledges", "unacknowledged": "unacknowledges",
	}[string(alert.Status)]
}

// TestEveryEventDoesWhatIsWritten sends each message that a tool is known to send, and one in words that it may have tomorrow.
func TestEveryEventDoesWhatIsWritten(t *testing.T) {
	eachPreset(t, func(t *testing.T, preset mapping.Preset, samples map[string]sample) {
		t.Helper()
		g := NewWithT(t)
		var listed []toolEvent
		readYAML(t, preset.Name+".events.yaml", &listed)
		program, err := mapping.Compile(preset.Name, nil)
		g.Expect(err).NotTo(HaveOccurred())
		used, does, names := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, e := range listed {
			used[e.Sample], does[e.Does] = true, true
			if names[e.Event] {
				t.Errorf("%q is listed twice", e.Event)
			}
			names[e.Event] = true
			body := changedSample(t, preset.Name+"."+e.Sample, e.Set)
			alert := readBody(t, program, body, sampleHeaders(t, preset.Name+"."+e.Sample)).Alerts[0]
			if got := outcome(&alert); got != e.Does {
				t.Errorf("%s: it %s; it should be that it %s", e.Event, got, e.Does)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(samples)) {
			if !used[name] && name != "repeat" && !strings.HasPrefix(name, "older") {
				t.Errorf("no event has the sample %s", name)
			}
		}
		g.Expect(does).To(HaveKey("fires"))
	})
}

// changedSample returns a sample with some values replaced. Those beneath a list are of its first element, unless the path has a
// number.
func changedSample(t *testing.T, name string, set map[string]any) string {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join("presets", name+".json"))
	g.Expect(err).NotTo(HaveOccurred())
	body, _, err := payload.ParseAny(text)
	g.Expect(err).NotTo(HaveOccurred())
	for path, value := range set {
		if !replace(body, strings.Split(path, "/"), value) {
			t.Errorf("%s has no place %s", name, path)
		}
	}
	changed, err := json.Marshal(body)
	g.Expect(err).NotTo(HaveOccurred())
	return string(changed)
}

// replace puts a value at a path, whose last key need not exist. Nil removes it.
func replace(in any, path []string, value any) bool {
	switch v := in.(type) {
	case map[string]any:
		switch {
		case len(path) > 1:
			return replace(v[path[0]], path[1:], value)
		case value == nil:
			delete(v, path[0])
		default:
			v[path[0]] = value
		}
		return true
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i >= len(v) || len(path) == 1 {
			return false
		}
		return replace(v[i], path[1:], value)
	}
	return false
}
