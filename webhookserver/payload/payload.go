// Package payload reads what monitoring tools send: it decodes the body of a webhook request into a JSON
// object and normalises the object into an alert.
//
// It is pure: bytes in, values out, with no client, no context, no network and no clock of its own. docs/payload.md describes
// its rules for users; rules.go lists them in code, one for each field.
//
// Guarantees:
//   - Nothing that decodes as a JSON object is rejected. What cannot be used as sent is kept in the custom bag, with a warning.
//   - The API server accepts what it returns, and gives it back byte for byte: strings are within the bounds of the resource,
//     numbers and strings in the bags are spelt as the API server spells them.
//   - What gets printed by kubectl (the strings, not the bags) holds no control characters.
//   - The same object and time always give the same alert and warnings.
package payload

import (
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/origins"
)

type normaliser struct {
	object   map[string]any
	received time.Time
	alert    v1alpha1.Alert
	encoder  encoder
	buffer   []byte // of the encoder
	bagBytes int    // at least what the encoded entries of the bags take
	kept     []kept
	// guessedStart is true when the alert's StartTime is the time of receipt.
	guessedStart bool
	keys         Keys
	warnings     warnings
}

// Keys are the keys of a payload that the fields were read from; empty for a field that was read from none.
type Keys [origins.Count]string

type kept struct {
	name  string // in the bag
	from  string // in the payload
	value any
}

// Normalise reads a payload, as ParseAny gives it, as an alert. received is when the request came in, for times that cannot be
// read. What the payload does not say stays empty: defaults, ID, IncidentName and an absent DedupKey are left to the caller. The
// object is not changed and shares no memory with the alert.
func Normalise(object map[string]any, received time.Time) (v1alpha1.Alert, []Warning) {
	alert, _, warnings := Read(object, received)
	return alert, warnings
}

// Read does what Normalise does, and returns from which keys it read the fields.
func Read(object map[string]any, received time.Time) (v1alpha1.Alert, Keys, []Warning) {
	n := &normaliser{object: object, received: received, kept: make([]kept, 0, len(object))}
	n.alert.Status = v1alpha1.AlertFiring
	for i := range rules {
		n.apply(&rules[i])
	}
	n.settleTimes()
	n.alert.Labels, n.alert.Annotations = n.textsOf(origins.Labels), n.textsOf(origins.Annotations)
	if object := n.objectOf(origins.Values); len(object) > 0 {
		n.alert.Values = n.bagOf("values", object)
	}
	n.alert.Custom = n.custom()
	if n.alert.DedupKey == "" && n.alert.Status != v1alpha1.AlertFiring {
		n.warnings = append(n.warnings, NoMatch(n.alert.Status))
	}
	n.trim()
	return n.alert, n.keys, n.warnings.list()
}

// apply reads one field from the first of its names that holds a usable value, the canonical one first.
func (n *normaliser) apply(r *rule) {
	given, winner := false, ""
	for _, name := range r.names {
		value := n.object[name]
		text, scalar := TextOf(value)
		switch {
		case value == nil:
		case !scalar:
			given = true
			n.keep(r.names[0], name, value)
			n.warnings.add(notText, name, r.names[0])
		case isBlank(text):
		case winner != "": // kept, unless it says the same
			if used, _ := TextOf(n.object[winner]); used != text {
				n.keep(name, name, value)
				n.warnings.add(givenTwice, name, winner)
			}
		default:
			given = true
			if r.read(n, name, value, text) {
				winner = name
			}
		}
	}
	n.keys[r.field] = winner
	if given && winner == "" && r.fallback != nil {
		r.fallback(n)
	}
}

func (n *normaliser) keep(name, from string, value any) {
	n.kept = append(n.kept, kept{name: name, from: from, value: value})
}
