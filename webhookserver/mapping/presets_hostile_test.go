package mapping_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// hostileEnds are put behind every text of a sample, so that most expressions still find what they look for.
var hostileEnds = map[string]string{
	"escape sequences":                   "\u001b[31m\u0007\u0085\u009b2J",
	"characters that end lines":          "\r\n\u2028\u2029\v\f",
	"NULs":                               "\u0000\u0000",
	"bidirectional control characters":   "\u202e\u2066\u200f\u061c",
	"what is not UTF-8":                  "\xff\xc0\xaf\xed\xa0\x80",
	"quotation marks and backslashes":    `"'\\\"{{}}$(id)`,
	"characters that HTML and JSON mean": `<script>&amp;</script>]}`,
	"noncharacters and combining marks":  "\uffff\ufdd0" + strings.Repeat("\u0301", 300),
	"a long text":                        strings.Repeat("é<😀", 1500),
}

// TestPresetsWithHostileTexts puts hostile texts into every sample of every preset: whatever an expression makes
// of them, the alerts can be stored, and nothing in them reaches a terminal as a command.
func TestPresetsWithHostileTexts(t *testing.T) {
	samples, err := filepath.Glob("presets/*.json")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]*mapping.Program{}
	for _, name := range presetNames(t) {
		if programs[name], err = mapping.Compile(name, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, sample := range samples {
		preset, _, _ := strings.Cut(filepath.Base(sample), ".")
		body, err := os.ReadFile(sample)
		if err != nil {
			t.Fatal(err)
		}
		value, _, err := payload.ParseAny(body)
		if err != nil {
			t.Fatal(err)
		}
		for sentence, end := range hostileEnds {
			result, err := programs[preset].Alerts(withEnds(value, end), nil, received)
			if err != nil {
				t.Fatalf("%s with %s: %v", sample, sentence, err)
			}
			for i := range result.Alerts {
				if err := violation(&result.Alerts[i]); err != nil {
					t.Errorf("%s with %s: %v", sample, sentence, err)
				}
			}
		}
	}
}

// withEnds is a decoded value with this behind each of its texts, keys included.
func withEnds(value any, end string) any {
	switch value := value.(type) {
	case string:
		return value + end
	case []any:
		list := make([]any, 0, len(value))
		for _, element := range value {
			list = append(list, withEnds(element, end))
		}
		return list
	case map[string]any:
		object := make(map[string]any, 2*len(value))
		for key, element := range value {
			object[key] = withEnds(element, end)
			object[key+end] = "x"
		}
		return object
	}
	return value
}
