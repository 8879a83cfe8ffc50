package mapping

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/origins"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// Recognition tells the payloads of a preset from those of all others.
type Recognition struct {
	// Header is a header that the tool alone sets, and LacksHeader one of another tool that sets it as well.
	Header      string `json:"header,omitempty"`
	LacksHeader string `json:"lacksHeader,omitempty"`

	// Has are paths that exist in the payload, and Lacks are paths that do not. A dot separates keys; a number is a place in
	// a list: "alerts.0.labels". Has may be absent beside Header.
	Has   []string `json:"has,omitempty"`
	Lacks []string `json:"lacks,omitempty"`

	// Shares are fields of Tocsin's own format that the tool's payloads may have too, of those that mark it.
	Shares []string `json:"shares,omitempty"`

	// Where is true of the payload. It is evaluated only if the paths are as they should be.
	Where v1alpha1.Expression `json:"where,omitempty"`
}

// ownMarks are the fields by which a payload is in Tocsin's own format, unless the rule of a preset has or shares them.
var ownMarks = []string{"title", "dedup_key", "starts_at", "ends_at"}

type recognizer struct {
	Recognition

	preset     string
	has, lacks [][]string // the steps of each path
	where      *expression
}

// recognizers are the recognitions of all presets, their places by the first step of their first path, and the places of those by
// a header.
type recognizers struct {
	all      []recognizer
	places   map[string][]int
	byHeader []int
}

var compiledRecognizers = sync.OnceValue(func() *recognizers {
	rs := &recognizers{places: map[string][]int{}}
	for _, p := range loadedPresets() {
		for _, rule := range p.Recognition {
			for _, field := range ownMarks {
				if !slices.Contains(rule.Has, field) && !slices.Contains(rule.Shares, field) {
					rule.Lacks = append(rule.Lacks, field, "0."+field) // the payload may be a list
				}
			}
			e := &expression{name: "where", field: "recognition.where", source: string(rule.Where), preset: p.Name}
			rec := recognizer{rule, p.Name, split(rule.Has), split(rule.Lacks), must(compileExpression(e, boolResult))}
			if rule.Header != "" {
				rs.byHeader = append(rs.byHeader, len(rs.all))
			} else {
				first := rec.has[0][0]
				rs.places[first] = append(rs.places[first], len(rs.all))
			}
			rs.all = append(rs.all, rec)
		}
	}
	return rs
})

// candidates returns the places of those that may match a payload, in their order: few of the hundred and more.
func (rs *recognizers) candidates(body any, header http.Header) []int {
	var places []int
	for _, i := range rs.byHeader {
		if rec := &rs.all[i]; header.Get(rec.Header) != "" && (rec.LacksHeader == "" || header.Get(rec.LacksHeader) == "") {
			places = append(places, i)
		}
	}
	switch body := body.(type) {
	case []any:
		places = append(places, rs.places["0"]...)
	case map[string]any:
		for key := range body {
			places = append(places, rs.places[key]...)
		}
	}
	slices.Sort(places)
	return places
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

// recognize makes the reader use the one preset that recognizes the payload. If none does, as with Tocsin's own format, or
// several do, the payload rules read it. A condition that fails, or for which no work is left, does not hold.
func (r *reader) recognize() {
	r.meter.left = maxRecognitionWork
	names := r.recognizing(r.vars.header)
	switch len(names) {
	case 0:
	case 1:
		r.program = r.program.over(must(presetProgram(names[0])))
		r.program.recognized = names[0]
	default:
		r.warn(payload.SeveralPresets, strings.Join(names, ", "))
	}
}

func (r *reader) recognizing(header http.Header) (names []string) {
	rs := compiledRecognizers()
	for _, i := range rs.candidates(r.body, header) {
		rec := &rs.all[i]
		if slices.Contains(names, rec.preset) || !rec.matches(r.body) {
			continue
		}
		if rec.where != nil {
			if value, err := r.evaluate(rec.where); err != nil || value != true {
				continue
			}
		}
		names = append(names, rec.preset)
	}
	return names
}

// Unwrap returns which of the values within a body, from the outside in, is the payload, and the program that reads it; -1 and p
// for the body itself. It is one that a preset recognizes: any for Auto and for a preset of an envelope, else the program's own.
// What is in a payload that is recognized is a part of it.
func (p *Program) Unwrap(body any, within []any, headers http.Header, received time.Time) (chosen int, program *Program) {
	chosen, program = -1, p
	if len(within) == 0 || !p.auto && p.preset == "" || p.auto && hasOwnMarks(body) {
		return chosen, program
	}
	r := newReader(p, body, nil, received)
	r.meter.left = maxRecognitionWork
	around := r.recognizing(headers)
	for i, value := range within {
		if len(around) > 0 && !presetNamed(around[0]).Envelope {
			break
		}
		r.body = value
		switch names := r.recognizing(nil); {
		case len(names) != 1 || slices.Equal(names, around):
		case p.auto, p.preset == names[0]:
			chosen, around = i, names
		case presetNamed(p.preset).Envelope && !p.isOverridden():
			chosen, around, program = i, names, &Program{auto: true}
		}
	}
	return chosen, program
}

func (p *Program) isOverridden() bool {
	return slices.ContainsFunc(p.expressions[:], func(e *expression) bool { return e != nil && e.preset == "" })
}

func hasOwnMarks(body any) bool {
	return slices.ContainsFunc(ownMarks, func(field string) bool {
		_, marked := valueAt(body, []string{field})
		return marked
	})
}

// prefixed puts the name of the recognized preset before the key that the preset gives: tools that share an integration must not
// resolve each other's alerts. A sender that repeats a key from an answer has put the prefix there already.
func (p *Program) prefixed(e *expression, value any) any {
	if p.recognized == "" || e.preset == "" || e.name != fieldNames[origins.DedupKey] {
		return value
	}
	text, scalar := payload.TextOf(value)
	prefix := p.recognized + "/"
	if !scalar || strings.HasPrefix(text, prefix) {
		return value
	}
	return prefix + text
}
