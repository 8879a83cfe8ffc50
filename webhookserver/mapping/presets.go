package mapping

import (
	"embed"
	"errors"
	"fmt"
	filepath "path"
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

const presetFolder = "presets"

// Auto is the name that stands for the preset that recognizes a payload.
const Auto = "auto"

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
	entries, err := presetFiles.ReadDir(presetFolder)
	if err != nil {
		return nil, fmt.Errorf("reading the presets: %w", err)
	}
	var presets []Preset
	for _, entry := range entries {
		name, isYAML := strings.CutSuffix(entry.Name(), ".yaml")
		if !isYAML || strings.Contains(name, ".") {
			continue // NAME.expected.yaml, NAME.firing.json
		}
		text, err := presetFiles.ReadFile(filepath.Join(presetFolder, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading the preset %s: %w", name, err)
		}
		preset := Preset{}
		if err := yaml.UnmarshalStrict(text, &preset); err != nil {
			return nil, fmt.Errorf("reading the preset %s: %w", name, err)
		}
		if preset.Name != name {
			return nil, fmt.Errorf("reading the preset %s: its name is %q", name, preset.Name)
		}
		presets = append(presets, preset)
	}
	return presets, nil
}

// PresetNames returns the values of spec.preset: the names of all presets in alphabetical order, then Auto.
func PresetNames() []string { return loadedPresets().names }

// Groups reports whether the tool of a preset sends groups of alerts; for Auto it may be one that does.
func Groups(preset string) bool {
	if preset == "" {
		return false // most requests need no presets, which take time to load
	}
	p, found := loadedPresets().byName[preset]
	return found && p.Groups || preset == Auto
}

// LateFiringWindow returns what a preset says of late firings; not ok when it says nothing, or does not exist.
func LateFiringWindow(preset string) (window time.Duration, ok bool) {
	p, found := loadedPresets().byName[preset]
	if !found || p.LateFiringWindow == nil {
		return 0, false
	}
	return p.LateFiringWindow.Duration, true
}

// presetSet holds the presets in use, which nothing changes.
type presetSet struct {
	names       []string // and Auto
	byName      map[string]*Preset
	programs    map[string]func() (*Program, error) // which compile a preset once, when it is used first
	recognizers func() []recognizer                 // which compile once too
}

// loadedPresets reads the presets once.
var loadedPresets = sync.OnceValue(func() *presetSet {
	presets := must(Presets())
	set := &presetSet{byName: map[string]*Preset{}, programs: map[string]func() (*Program, error){}}
	for i := range presets {
		preset := &presets[i]
		set.names = append(set.names, preset.Name)
		set.byName[preset.Name] = preset
		set.programs[preset.Name] = sync.OnceValues(func() (*Program, error) {
			return compileMapping(preset.Name, &preset.Mapping)
		})
	}
	set.names = append(set.names, Auto)
	set.recognizers = sync.OnceValue(func() []recognizer { return newRecognizers(presets) })
	return set
})

// must returns the value of a function that fails only if the binary was built wrong, which the tests show.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func presetProgram(name string) (*Program, error) {
	compile, found := loadedPresets().programs[name]
	if !found {
		return nil, &CompileError{Field: "spec.preset", Message: fmt.Sprintf("there is no preset %q; there are %s",
			name, strings.Join(PresetNames(), ", "))}
	}
	return compile()
}

// Recognition tells the payloads of a preset from those of all others.
type Recognition struct {
	// Has are paths that exist in the payload, and Lacks are paths that do not. A dot separates keys; a number is a place in
	// a list: "alerts.0.labels".
	Has   []string `json:"has"`
	Lacks []string `json:"lacks,omitempty"`

	// Shares are fields of Tocsin's own format that the tool's payloads may have too, of those that mark it.
	Shares []string `json:"shares,omitempty"`

	// Where is true of the payload. It is evaluated only if the paths are as they should be.
	Where v1alpha1.Expression `json:"where,omitempty"`
}

// ownMarks are the fields by which a payload is in Tocsin's own format, unless the rule of a preset has or shares them.
var ownMarks = []string{"title", "dedup_key", "starts_at", "ends_at"}

type recognizer struct {
	preset     string
	has, lacks [][]string // the steps of each path
	where      *expression
}

func newRecognizers(presets []Preset) []recognizer {
	var recognizers []recognizer
	for i := range presets {
		name := presets[i].Name
		for _, rule := range presets[i].Recognition {
			c := &compiler{env: loadedEnvironment(), preset: name}
			where := c.expression("where", "recognition.where", rule.Where, boolResult)
			must(where, errors.Join(c.errors...))
			lacks := rule.Lacks
			for _, field := range ownMarks {
				if !slices.Contains(rule.Has, field) && !slices.Contains(rule.Shares, field) {
					lacks = append(lacks, field, "0."+field) // the payload may be a list
				}
			}
			recognizers = append(recognizers, recognizer{name, split(rule.Has), split(lacks), where})
		}
	}
	return recognizers
}

func split(paths []string) [][]string {
	steps := make([][]string, len(paths))
	for i, path := range paths {
		steps[i] = strings.Split(path, ".")
	}
	return steps
}

// matches reports whether the payload is as the paths say. It takes a look-up for each step, however large the payload is.
func (rec *recognizer) matches(body any) bool {
	exists := func(path []string) bool { // it may be null
		_, found := valueAt(body, path)
		return found
	}
	lacking := func(path []string) bool { return !exists(path) }
	return !slices.ContainsFunc(rec.has, lacking) && !slices.ContainsFunc(rec.lacks, exists)
}

// recognize makes the reader use the one preset that recognizes the payload. If none does, or several do, the payload
// rules read it. A condition that fails, or for which no work is left, does not hold.
func (r *reader) recognize() {
	var names []string
	r.meter.left = maxRecognitionWork
	recognizers := loadedPresets().recognizers()
	for i := range recognizers {
		rec := &recognizers[i]
		if len(names) > 0 && names[len(names)-1] == rec.preset || !rec.matches(r.vars.payload) {
			continue
		}
		if rec.where != nil {
			if value, err := r.evaluate(rec.where); err != nil || value != true {
				continue
			}
		}
		names = append(names, rec.preset)
	}
	switch len(names) {
	case 0:
		r.warn("no preset recognizes the payload; it is read by the payload rules")
	case 1:
		r.usePreset(names[0])
	default:
		r.warn("more than one preset recognizes the payload (%s); it is read by the payload rules", strings.Join(names, ", "))
	}
}

// usePreset makes the reader use a preset below the integration's own expressions.
func (r *reader) usePreset(name string) {
	base, err := presetProgram(name)
	if err != nil {
		r.warn("the preset %s cannot be used: %s", name, oneLine(err.Error()))
		return
	}
	r.program = r.program.over(base)
	r.program.recognized = name
}

// prefixed returns the value that an expression gave, with the name of the recognized preset before it if it is the key that the
// preset gives: tools that share an integration must not resolve each other's alerts. A sender that repeats a key from an answer
// has put the prefix there already.
func (p *Program) prefixed(e *expression, value any) any {
	if p.recognized == "" || e.preset == "" || e.name != fields[dedupKeyIndex].name {
		return value
	}
	text, scalar := textOf(value)
	prefix := p.recognized + "/"
	if !scalar || strings.HasPrefix(text, prefix) {
		return value
	}
	return prefix + text
}
