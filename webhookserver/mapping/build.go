package mapping

import (
	"fmt"
	"maps"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// customKey is the key of the custom bag in a payload.
const customKey = "custom"

// sharedPrefix is put before a key of the payload around an alert that the alert has too, or that would be
// read as a field of it.
const sharedPrefix = "payload_"

// builder reads one alert: it evaluates the expressions and puts together the object that the payload rules
// then normalise.
type builder struct {
	reader  *reader
	element any // the alert as it was sent
	out     Alert

	values [fieldCount]any // what the expressions gave
	silent expressions     // those that gave nothing, without an error
	left   leftovers
	object map[string]any
	custom map[string]any // what goes into the object's custom
}

// evaluate evaluates the expressions of the fields.
func (b *builder) evaluate() {
	for i, e := range b.reader.program.fields {
		if e == nil {
			continue
		}
		value, err := b.reader.evaluate(e)
		if err != nil {
			b.out.warn(fields[i].key, "the mapping's expression failed (%s); the field is read by the payload rules",
				oneLine(err.Error()))
			continue
		}
		if isAbsent(value) {
			b.silent |= 1 << i
			continue
		}
		b.values[i] = value
		b.left.gave |= 1 << i
		b.left.results = append(b.left.results, value)
	}
	b.out.mapped = b.left.gave
}

// normalise puts the object together, of what the expressions gave and of what they left of the alert and
// of the payload around it, and normalises it.
func (b *builder) normalise(first bool) Alert {
	if element, ok := b.element.(map[string]any); ok && !b.reader.program.mapped {
		b.object = element // nothing to put in and nothing to leave out
	} else {
		b.assemble(first)
	}
	var warnings []payload.Warning
	b.out.Alert, warnings = payload.Normalise(b.object, b.reader.vars.received)
	b.out.Warnings = append(b.out.Warnings, warnings...)
	b.out.object, b.out.program = b.object, b.reader.program
	return b.out
}

func (b *builder) assemble(first bool) {
	uses := []*usage{b.reader.program.alertUses, nil}[:1]
	if isSame(b.element, b.reader.vars.payload) {
		uses = append(uses, b.reader.program.payloadUses)
	}
	rest, some := b.element, true
	for _, u := range uses {
		if some && u.used(b.left.gave) {
			some = false
		}
	}
	element, isObject := rest.(map[string]any)
	b.object = make(map[string]any, len(element)+fieldCount)
	switch {
	case !some:
	case isObject:
		for key, value := range element {
			b.addKey(uses, key, value)
		}
	default:
		if rest, some := b.left.of(uses[0], b.element); some {
			b.keep(alertVariable, rest)
		}
	}
	if first || !b.reader.sharedOnce {
		b.addShared()
	}
	b.addMapped()
}

// addKey adds one entry of the alert as it was sent.
func (b *builder) addKey(uses []*usage, key string, value any) {
	field, listed := fieldOfKey[key]
	if listed && field != customIndex && b.left.gave&(1<<field) == 0 && !b.refused(key, 1<<field) {
		b.object[key] = value // for the payload rules, whatever else was made of it
		return
	}
	for _, u := range uses {
		rest, some := b.left.ofKey(u, key, value)
		if !some {
			return
		}
		value = rest
	}
	switch {
	case !listed:
		b.object[key] = value // to custom, by the payload rules
	case isAbsent(value):
	case field == customIndex:
		b.addCustom(value)
	default:
		b.keep(key, value)
	}
}

// refused reports whether the expression of a field has looked at a key that the payload rules would read for
// the field, and gave nothing: it does not want it then.
func (b *builder) refused(key string, of expressions) bool {
	u := b.reader.program.alertUses.keys[key]
	return u != nil && b.silent&of != 0 && (u.made|u.passed|u.perhaps)&of != 0
}

// addCustom adds the alert's own custom object.
func (b *builder) addCustom(value any) {
	entries, isObject := value.(map[string]any)
	if !isObject {
		b.keep(customKey, value)
		return
	}
	for key, entry := range entries {
		b.keep(key, entry)
	}
}

// keep adds an entry to custom, under another name if it has one of that name.
func (b *builder) keep(key string, value any) {
	if b.custom == nil {
		b.custom = map[string]any{}
	}
	b.custom[freeName(b.custom, key)] = value
}

// freeName is the name, or the first of name_2, name_3 and so on that the map does not have.
func freeName(m map[string]any, name string) string {
	free := name
	for i := 2; ; i++ {
		if _, taken := m[free]; !taken {
			return free
		}
		free = fmt.Sprintf("%s_%d", name, i)
	}
}

// addShared adds what is left of the payload around the alert.
func (b *builder) addShared() {
	for key, value := range b.reader.shared {
		if _, taken := b.object[key]; taken {
			key = sharedPrefix + key
		}
		b.object[freeName(b.object, key)] = value
	}
}

// addMapped adds what the expressions gave.
func (b *builder) addMapped() {
	for i, value := range b.values[:customIndex] {
		if b.left.gave&(1<<i) != 0 {
			b.object[fields[i].key] = value
		}
	}
	if b.left.gave&(1<<customIndex) != 0 {
		b.addMappedCustom(b.values[customIndex])
	}
	if len(b.custom) > 0 {
		b.object[customKey] = b.custom
	}
}

// addMappedCustom puts what the expression of custom gave into custom; it comes before what was left.
func (b *builder) addMappedCustom(value any) {
	given, isObject := value.(map[string]any)
	if !isObject {
		b.out.warn(customKey, "the mapping gives no map for it; what it gives is kept in it as %s", customKey)
		given = map[string]any{customKey: value}
	}
	leftover := b.custom
	b.custom = make(map[string]any, len(given)+len(leftover))
	maps.Copy(b.custom, given)
	for _, key := range sortedKeys(leftover) {
		b.keep(key, leftover[key])
	}
}

// share finds what is left of the payload around the list of alerts: what all of them have in common. It
// takes the expressions for used that gave something for every alert.
func (r *reader) share(builders []builder) {
	around, ok := r.vars.payload.(map[string]any)
	if !ok || !r.fromList || len(builders) == 0 {
		return
	}
	left := leftovers{gave: ^expressions(0)}
	for i := range builders {
		if isSame(builders[i].element, around) {
			return // the payload is itself one of the alerts
		}
		left.gave &= builders[i].left.gave | alertsExpression
	}
	left.results = []any{r.list}
	if len(builders) == 1 {
		left.results = append(builders[0].left.results, left.results...)
	}
	uses := r.program.payloadUses
	if uses.used(left.gave) {
		return
	}
	size := 0
	r.shared = map[string]any{}
	for key, value := range around {
		rest, some := left.ofKey(uses, key, value)
		if !some || isAbsent(rest) {
			continue
		}
		if _, listed := fieldOfKey[key]; listed {
			key = sharedPrefix + key
		}
		r.shared[key] = rest
		size += len(key) + weighNative(rest, maxSharedTotal)
	}
	if len(builders) > 1 && (size > maxSharedBytes || size*len(builders) > maxSharedTotal) {
		r.sharedOnce = true
		r.warn("what the payload says beside its alerts is large; it is kept in custom of the first alert only")
	}
}

// used reports whether the value as a whole is used.
func (u *usage) used(gave expressions) bool {
	return u.passed&gave != 0
}

// Source says where one field of an alert comes from.
type Source struct {
	// Field is its name as in a payload: "dedup_key".
	Field string `json:"field"`

	// Key is the key of the payload that the payload rules read it from; empty if it was mapped, or if it is
	// what they make of a payload that does not say.
	Key string `json:"key,omitempty"`

	// Preset is the preset that the expression is part of; empty if it is spec.mapping's own.
	Preset string `json:"preset,omitempty"`

	// Expression is what gave the field; empty if it was not mapped.
	Expression string `json:"expression,omitempty"`
}

// Sources says for each field that the alert has where it comes from, in the order of the fields.
func (a *Alert) Sources() []Source {
	var sources []Source
	for i, f := range fields {
		if !a.has(f.key) {
			continue
		}
		source := Source{Field: f.key}
		if e := a.program.fields[i]; a.mapped&(1<<i) != 0 {
			source.Expression = e.source
			if e.preset {
				source.Preset = a.program.preset
			}
		} else {
			source.Key = a.keyOf(f.key)
		}
		sources = append(sources, source)
	}
	return sources
}

// keyOf is the key that the payload rules read a field from; empty if it is what they say of a payload
// without one.
func (a *Alert) keyOf(field string) string {
	for _, name := range payload.Names(field) {
		if value, ok := a.object[name]; ok && !isAbsent(value) {
			return name
		}
	}
	return ""
}

// has reports whether the alert has something in a field.
func (a *Alert) has(key string) bool {
	texts := map[string]string{
		"title": a.Title, "description": a.Description, "severity": string(a.Severity), "status": string(a.Status),
		"dedup_key": a.DedupKey, "type": a.Type, "link": a.Link, "hostname": a.Hostname, "region": a.Region,
	}
	if text, ok := texts[key]; ok {
		return text != ""
	}
	switch key {
	case "starts_at":
		return a.StartsAt != nil
	case "ends_at":
		return a.EndsAt != nil
	}
	return len(*a.Bags()[key]) > 0
}
