package mapping

import (
	"errors"
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Recognition tells the payloads of a preset from those of all others.
type Recognition struct {
	// Has are paths that exist in the payload, and Lacks are paths that do not. A dot separates keys; a number is a place in
	// a list: "alerts.0.labels".
	Has   []string `json:"has"`
	Lacks []string `json:"lacks,omitempty"`

	// Where is true of the payload. It is evaluated only if the paths are as they should be.
	Where v1alpha1.Expression `json:"where,omitempty"`
}

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
			recognizers = append(recognizers, recognizer{name, split(rule.Has), split(rule.Lacks), where})
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
