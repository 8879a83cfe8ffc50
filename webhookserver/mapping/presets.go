package mapping

import (
	"embed"
	"errors"
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
	// as too large. Its bodies are large.
	Groups bool `json:"groups,omitempty"`

	// Large is true if the tool's bodies may be larger than those of others, and are accepted.
	Large bool `json:"large,omitempty"`

	// Envelope is true if the tool's payloads may hold those of another tool, which are then read instead.
	Envelope bool `json:"envelope,omitempty"`

	// LateFiringWindow is the default of spec.lateFiringWindow: 0s where the tool delivers in order. Absent: the
	// operator's default.
	LateFiringWindow *metav1.Duration `json:"lateFiringWindow,omitempty"`

	// Severity is that of a firing alert for which neither the payload nor the integration's defaults have one: critical for a tool
	// that tells of outages and has no severities. Absent: the operator's default.
	Severity v1alpha1.Severity `json:"severity,omitempty"`

	// Handshake is an expression that gives what a person has to do before the tool sends alerts, such as an address to open. It is
	// empty for all other payloads.
	Handshake v1alpha1.Expression `json:"handshake,omitempty"`

	// Recognition tells the tool's payloads from those of all other presets: they match one of its elements.
	Recognition []Recognition    `json:"recognition,omitempty"`
	Mapping     v1alpha1.Mapping `json:"mapping"`

	program func() (*Program, error) // compiles it once, when it is used first
}

// KeySource lists the values of a body that a preset makes the dedup key of, as paths such as alerts.*.fingerprint. The
// key depends on nothing else: not on the state, nor on times or measured values, which change from firing to resolve.
type KeySource struct {
	From     []string `json:"from"`               // all values that can be part of the key
	Required []string `json:"required,omitempty"` // those of them without which the alert has no key
	Message  []string `json:"message,omitempty"`  // those of them that identify one message: what resolves has no such key
}

// Presets returns all presets, by name in alphabetical order.
func Presets() ([]Preset, error) {
	var presets []Preset
	for _, entry := range must(presetFiles.ReadDir("presets")) {
		name, isYAML := strings.CutSuffix(entry.Name(), ".yaml")
		if !isYAML || strings.Contains(name, ".") {
			continue // NAME.expected.yaml, NAME.firing.json
		}
		preset, err := readPreset(must(presetFiles.ReadFile("presets/" + entry.Name())))
		if err == nil && preset.Name != name {
			err = fmt.Errorf("its name is %q", preset.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the preset %s: %w", name, err)
		}
		presets = append(presets, *preset)
	}
	return presets, nil
}

func readPreset(text []byte) (*Preset, error) {
	preset := &Preset{}
	if err := yaml.UnmarshalStrict(text, preset); err != nil {
		return nil, err
	}
	preset.program = sync.OnceValues(preset.compile)
	return preset, nil
}

func (p *Preset) compile() (*Program, error) {
	program, err := compileMapping(p.Name, &p.Mapping)
	e := &expression{name: "handshake", field: "handshake", source: string(p.Handshake), preset: p.Name}
	handshake, handshakeErr := compileExpression(e, textResult)
	program.handshake, program.messageKeys = handshake, split(p.Key.Message)
	return program, errors.Join(err, handshakeErr)
}

var loadedPresets = sync.OnceValue(func() []Preset { return must(Presets()) })

// draft is a preset that somebody is writing. Integrations that name it use it, also in place of one that ships with Tocsin.
var draft *Preset

// UseDraft reads a preset from the text of its file and makes it the draft: for commands that explain one payload, not for a
// server. The error joins a *CompileError for each mistake.
func UseDraft(text []byte) (*Preset, error) {
	preset, err := readPreset(text)
	if err != nil {
		return nil, err
	}
	if preset.Name == "" || preset.Name == Auto {
		return nil, fmt.Errorf("the name of a preset cannot be %q", preset.Name)
	}
	_, err = preset.program()
	mistakes := []error{err}
	for i, rule := range preset.Recognition {
		if _, err := compileMapping(preset.Name, &v1alpha1.Mapping{Drop: rule.Where}); err != nil {
			mistakes = append(mistakes, fmt.Errorf("recognition[%d].where: %w", i, err))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	draft = preset
	return preset, nil
}

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
	return presetNamed(name).Groups || name == Auto
}

// IsLarge reports whether larger bodies of the tool of a preset are accepted; of Auto, they may be.
func IsLarge(name string) bool {
	p := presetNamed(name)
	return p.Groups || p.Large || name == Auto
}

// PresetWindows are the windows of the presets, for package fold.
type PresetWindows struct{}

// LateFiringWindow returns what a preset says of late firings; not ok when it says nothing, or does not exist.
func (PresetWindows) LateFiringWindow(name string) (window time.Duration, ok bool) {
	if late := presetNamed(name).LateFiringWindow; late != nil {
		return late.Duration, true
	}
	return 0, false
}

// DefaultSeverity returns the severity that a preset gives to a firing alert that has none; empty if it gives none.
func DefaultSeverity(name string) v1alpha1.Severity { return presetNamed(name).Severity }

func presetProgram(name string) (*Program, error) {
	p := presetNamed(name)
	if p.program == nil {
		return nil, &CompileError{Field: "spec.preset", Message: fmt.Sprintf("there is no preset %q; there are %s",
			name, strings.Join(PresetNames(), ", "))}
	}
	return p.program()
}

// noPreset says nothing.
var noPreset = &Preset{}

// presetNamed returns a preset, or the draft, which nothing changes; noPreset if there is none of the name.
func presetNamed(name string) *Preset {
	switch {
	case name == "": // most requests need no presets, which take time to load
		return noPreset
	case draft != nil && draft.Name == name:
		return draft
	}
	presets := loadedPresets()
	if at := slices.IndexFunc(presets, func(p Preset) bool { return p.Name == name }); at >= 0 {
		return &presets[at]
	}
	return noPreset
}
