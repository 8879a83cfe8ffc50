package mapping

import (
	"embed"
	"fmt"
	filepath "path"
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

// Preset is a mapping that ships with Tocsin, for the payloads of one tool.
type Preset struct {
	// Name is what spec.preset says.
	Name string `json:"name"`

	// Title is the tool's own name.
	Title string `json:"title"`

	// Documentation is where the format is described.
	Documentation string `json:"documentation,omitempty"`

	// Documented and Assumed say what of the format is known from there and what is not.
	Documented []string `json:"documented,omitempty"`
	Assumed    []string `json:"assumed,omitempty"`

	// LateFiringWindow is the default of spec.lateFiringWindow: 0s where the tool delivers in order. Absent: the
	// operator's default.
	LateFiringWindow *metav1.Duration `json:"lateFiringWindow,omitempty"`

	// Mapping is how the payloads are read.
	Mapping v1alpha1.Mapping `json:"mapping"`
}

// Presets returns all presets, by name in alphabetical order.
func Presets() ([]Preset, error) {
	presets, err := loadedPresets()
	if err != nil {
		return nil, err
	}
	list := make([]Preset, 0, len(presets.names))
	for _, name := range presets.names {
		list = append(list, presets.byName[name].copy())
	}
	return list, nil
}

// PresetNamed returns the preset of a name.
func PresetNamed(name string) (Preset, bool) {
	preset, found := findPreset(name)
	if !found {
		return Preset{}, false
	}
	return preset.copy(), true
}

// LateFiringWindow returns what a preset says of late firings; not ok when it says nothing, or does not exist.
func LateFiringWindow(preset string) (window time.Duration, ok bool) {
	p, found := findPreset(preset)
	if !found || p.LateFiringWindow == nil {
		return 0, false
	}
	return p.LateFiringWindow.Duration, true
}

// findPreset returns the preset of a name, which callers do not change.
func findPreset(name string) (*Preset, bool) {
	presets, err := loadedPresets()
	if err != nil {
		return nil, false
	}
	preset, found := presets.byName[name]
	return preset, found
}

func (p *Preset) copy() Preset {
	other := *p
	other.Mapping = *p.Mapping.DeepCopy()
	if p.LateFiringWindow != nil {
		other.LateFiringWindow = new(*p.LateFiringWindow)
	}
	return other
}

type presetSet struct {
	names  []string
	byName map[string]*Preset
}

// loadedPresets reads the presets once. They are part of the binary: an error is one of the build, which
// the tests show.
var loadedPresets = sync.OnceValues(func() (*presetSet, error) {
	set := &presetSet{byName: map[string]*Preset{}}
	entries, err := presetFiles.ReadDir(presetFolder)
	if err != nil {
		return nil, fmt.Errorf("reading the presets: %w", err)
	}
	for _, entry := range entries {
		name, isYAML := strings.CutSuffix(entry.Name(), ".yaml")
		if !isYAML || strings.Contains(name, ".") {
			continue // NAME.expected.yaml, NAME.firing.json
		}
		preset, err := readPreset(name)
		if err != nil {
			return nil, err
		}
		set.names = append(set.names, name)
		set.byName[name] = preset
	}
	return set, nil
})

func readPreset(name string) (*Preset, error) {
	text, err := presetFiles.ReadFile(filepath.Join(presetFolder, name+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the preset %s: %w", name, err)
	}
	preset := &Preset{}
	if err := yaml.UnmarshalStrict(text, preset); err != nil {
		return nil, fmt.Errorf("reading the preset %s: %w", name, err)
	}
	if preset.Name != name {
		return nil, fmt.Errorf("reading the preset %s: its name is %q", name, preset.Name)
	}
	return preset, nil
}
