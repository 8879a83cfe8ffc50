package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// Bounds in bytes, as JSON. docs/mcp.md states them.
const (
	// maxAnswer bounds an answer. Clients pass it on to models, of which some read no more than 25,000 tokens at a time.
	maxAnswer = 32 << 10
	// maxItems bounds the list in an answer, which leaves space for the rest.
	maxItems = 24 << 10

	maxLine        = 512
	maxCell        = 160
	maxProblem     = 2 << 10
	maxDescription = 4 << 10
	maxBag         = 2 << 10
	maxTimeline    = 6 << 10
)

type (
	// line is a text of others: one line of at most maxLine bytes, without invisible characters. An ellipsis shows where it was cut.
	line string
	// cell is a line of at most maxCell bytes.
	cell string
)

func lineOf(text string) line { return line(bounded(text, maxLine)) }

func cellOf(text string) cell { return cell(bounded(text, maxCell)) }

// bounded returns a text as one line with at most so many bytes.
func bounded(text string, most int) string {
	return plaintext.OneLine(strings.Map(visible, text), most, most)
}

var unseen = []*unicode.RangeTable{
	unicode.Cf, unicode.Co, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point,
}

// visible drops the characters that a person does not see and a model reads, such as those of the block Tags: a text could
// tell the model what its reader does not know of. It drops what marks the direction of writing and joins emoji as well.
func visible(r rune) rune {
	if r > unicode.MaxASCII && unicode.In(r, unseen...) {
		return -1
	}
	return r
}

// linesOf returns the lines of a text, at most so many bytes of them, and how many are left out.
func linesOf(text string, most int) (lines []line, left int) {
	for one := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, lineOf(one))
	}
	return fit(lines, most)
}

// entry is one of a map that a sender fills, such as the labels.
type entry struct {
	Name  line `json:"name"`
	Value line `json:"value"`
}

// entriesOf returns the entries of a map in the order of their names, and how many are left out.
func entriesOf[V ~string | ~[]byte](bag map[string]V) (entries []entry, left int) {
	for _, name := range slices.Sorted(maps.Keys(bag)) {
		entries = append(entries, entry{lineOf(name), lineOf(string(bag[name]))})
	}
	return fit(entries, maxBag)
}

// fit returns the first items, at most so many bytes of them, and how many are left out.
func fit[T any](items []T, most int) (fitting []T, left int) {
	for i := range items {
		encoded, err := json.Marshal(items[i])
		if most -= len(encoded) + 1; err != nil || most < 0 {
			return items[:i], len(items) - i
		}
	}
	return items, 0
}

// schemaOf returns the JSON schema of a type, with the bounds of its texts.
func schemaOf[T any]() *jsonschema.Schema {
	texts := func(most int) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", MaxLength: &most} }
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[line]():                   texts(maxLine),
		reflect.TypeFor[cell]():                   texts(maxCell),
		reflect.TypeFor[v1alpha1.Timestamp]():     {Type: "string", Format: "date-time"},
		reflect.TypeFor[v1alpha1.Severity]():      oneOf(v1alpha1.Severities()...),
		reflect.TypeFor[v1alpha1.IncidentState](): oneOf(v1alpha1.IncidentOpen, v1alpha1.IncidentResolved),
	}})
	if err != nil {
		panic(fmt.Sprintf("the schema of %T: %v", *new(T), err)) // the types are in this package
	}
	plain(s)
	return s
}

func oneOf[T ~string](words ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, word := range words {
		s.Enum = append(s.Enum, string(word))
	}
	return s
}

// plain removes null from the types of lists: not all clients accept a schema with two types, and this package leaves out
// empty lists.
func plain(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if slices.Equal(s.Types, []string{"null", "array"}) {
		s.Type, s.Types = "array", nil
	}
	plain(s.Items)
	for _, property := range s.Properties {
		plain(property)
	}
}
