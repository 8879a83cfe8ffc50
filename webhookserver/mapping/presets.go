package mapping

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// presetFiles are the mappings that ship with Tocsin. The samples beside them are for the tests.
//
//go:embed all:presets
var presetFiles embed.FS

// Names that are no presets.
const (
	Auto = "auto" // the preset that recognizes a payload
	None = "none" // the payload rules alone
)

// PresetOf returns the preset that reads the payloads of an integration. One that names none has Auto, unless it has a mapping,
// which says how all payloads are read. It is empty where no preset reads them.
func PresetOf(spec *v1alpha1.WebhookIntegrationSpec) string {
	switch {
	case spec.Preset == None:
		return ""
	case spec.Preset == "" && spec.Mapping == nil:
		return Auto
	}
	return spec.Preset
}

// Preset is a mapping that ships with Tocsin, for the payloads of one tool.
type Preset struct {
	Name  string    `json:"name"`  // what spec.preset says
	Title string    `json:"title"` // the tool's own name
	Key   KeySource `json:"key"`   // what the dedup key of an alert is made of

	// Documentation is where the format is described, Documented and Assumed say what of it is known from there and what is not.
	Documentation string   `json:"documentation,omitempty"`
	Documented    []string `json:"documented,omitempty"`
	Assumed       []string `json:"assumed,omitempty"`

	// Groups is true if the tool sends all alerts of a group in one request, and does not repeat one that is refused
	// as too large. Larger bodies of it are accepted.
	Groups bool `json:"groups,omitempty"`

	// LateFiringWindow is the default of spec.lateFiringWindow: 0s where the tool delivers in order. Absent: the
	// operator's default.
	LateFiringWindow *metav1.Duration `json:"lateFiringWindow,omitempty"`

	// Recognition tells the tool's payloads from those of all other presets: they match one of its elements.
	Recognition []Recognition    `json:"recognition,omitempty"`
	Mapping     v1alpha1.Mapping `json:"mapping"`
}

// KeySource lists the values of a body that a preset makes the dedup key of, as paths such as alerts.*.fingerprint. The
// key depends on nothing else: not on the state, nor on times or measured values, which change from firing to resolve.
type KeySource struct {
	From     []string `json:"from"`               // all values that can be part of the key
	Required []string `json:"required,omitempty"` // those of them without which the alert has no key
}

// Presets returns all presets, by name in alphabetical order.
func Presets() ([]Preset, error) {
	entries, err := presetFiles.ReadDir("presets")
	if err != nil {
		return nil, fmt.Errorf("reading the presets: %w", err)
	}
	var presets []Preset
	for _, entry := range entries {
		name, isYAML := strings.CutSuffix(entry.Name(), ".yaml")
		if !isYAML || strings.Contains(name, ".") {
			continue // NAME.expected.yaml, NAME.firing.json
		}
		preset := Preset{}
		text, err := presetFiles.ReadFile("presets/" + entry.Name())
		if err == nil {
			err = yaml.UnmarshalStrict(text, &preset)
		}
		if err == nil && preset.Name != name {
			err = fmt.Errorf("its name is %q", preset.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the preset %s: %w", name, err)
		}
		presets = append(presets, preset)
	}
	return presets, nil
}

// preset is a preset in use, which nothing changes.
type preset struct {
	Preset

	program func() (*Program, error) // compiles it once, when it is used first
}

// loadedPresets reads the presets once.
var loadedPresets = sync.OnceValue(func() []preset {
	var loaded []preset
	for _, p := range must(Presets()) {
		loaded = append(loaded, preset{p, sync.OnceValues(func() (*Program, error) { return compileMapping(p.Name, &p.Mapping) })})
	}
	return loaded
})

// must returns the value of a function that fails only if the binary was built wrong, which the tests show.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// PresetNames returns the values of spec.preset: the names of all presets in alphabetical order, then Auto and None.
func PresetNames() []string {
	var names []string
	for _, p := range loadedPresets() {
		names = append(names, p.Name)
	}
	return append(names, Auto, None)
}

// Groups reports whether the tool of a preset sends groups of alerts; for Auto it may be one that does.
func Groups(name string) bool {
	p, found := presetNamed(name)
	return found && p.Groups || name == Auto
}

// LateFiringWindow returns what a preset says of late firings; not ok when it says nothing, or does not exist.
func LateFiringWindow(name string) (window time.Duration, ok bool) {
	p, found := presetNamed(name)
	if !found || p.LateFiringWindow == nil {
		return 0, false
	}
	return p.LateFiringWindow.Duration, true
}

func presetProgram(name string) (*Program, error) {
	if draft != nil && draft.Name == name {
		return compileMapping(name, &draft.Mapping)
	}
	p, found := presetNamed(name)
	if !found {
		return nil, &CompileError{Field: "spec.preset", Message: fmt.Sprintf("there is no preset %q; there are %s",
			name, strings.Join(PresetNames(), ", "))}
	}
	return p.program()
}

func presetNamed(name string) (p preset, found bool) {
	if name == "" {
		return p, false // most requests need no presets, which take time to load
	}
	at := slices.IndexFunc(loadedPresets(), func(p preset) bool { return p.Name == name })
	if at < 0 {
		return p, false
	}
	return loadedPresets()[at], true
}
