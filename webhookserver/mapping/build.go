package mapping

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

const customKey = "custom" // of the custom bag in a payload

// sharedPrefix is put before a key of the payload around an alert that the alert has too, or that would be
// read as a field of it.
const sharedPrefix = "payload_"

// builder reads one alert: it evaluates the expressions and puts together the object that the payload rules then normalise.
type builder struct {
	reader  *reader
	element any // the alert as it was sent
	out     Alert

	values  [fieldCount]any // what the expressions gave
	gave    expressions     // the expressions that gave something
	refused []string        // keys of fields whose expressions mention them and gave nothing
	left    leftovers       // of the alert
	around  leftovers       // of the payload around it
	object  map[string]any
	custom  map[string]any // what goes into the object's custom
}

func (b *builder) evaluate() {
	for i, e := range b.reader.program.expressions[:fieldCount] {
		if e == nil {
			continue
		}
		value, err := b.reader.evaluate(e)
		if err != nil {
			b.fail(i, e, err)
			continue
		}
		looked := b.reader.vars.lookups
		if isAbsent(value) {
			b.refused = append(b.refused, e.ownKeys...)
			continue
		}
		b.values[i] = b.reader.program.prefixed(e, value)
		b.gave |= 1 << i
		b.out.mapped |= 1 << i
		b.left.settle(fields[i].object, value, b.element, looked.alert)
		b.around.settle(fields[i].object, value, b.reader.vars.payload, looked.payload)
	}
}

// fail records that an expression failed. The payload rules then read the field, but not the status: they could
// read something other than the status, and a wrong resolve hides an outage.
func (b *builder) fail(i int, e *expression, err error) {
	b.reader.fail(e, err)
	instead := "the field is read by the payload rules"
	if i == statusIndex {
		instead = "the alert counts as firing"
		b.values[i] = string(v1alpha1.AlertFiring)
		b.gave |= 1 << i
	}
	b.out.warn(fields[i].key, "the mapping's expression failed (%s); %s", oneLine(err.Error()), instead)
}

// normalise assembles the object from the results of the expressions and from what they left of the alert and
// of the payload around it, and normalises it.
func (b *builder) normalise(first bool) Alert {
	if element, ok := b.element.(map[string]any); ok && !b.reader.program.Mapped() {
		b.object = element // nothing to put in and nothing to leave out
	} else {
		b.assemble(first)
	}
	var warnings []payload.Warning
	b.out.Alert, warnings = payload.Normalise(b.object, b.reader.vars.received)
	b.out.Warnings = append(b.out.Warnings, warnings...)
	b.out.object, b.out.program = b.object, b.reader.program
	if b.isForwarded() {
		b.out.Dropped, b.out.Forwarded = true, true
		b.out.warn("labels", "the alert has the label %s: a Tocsin forwarded it, and it is dropped", v1alpha1.ForwardedLabel)
	}
	return b.out
}

// isForwarded reports whether a Tocsin forwarded the alert to an Alertmanager. It would open an Incident about an Incident,
// which would be forwarded in turn. The label counts where the sender has it, even if the mapping leaves it out.
func (b *builder) isForwarded() bool {
	if _, ok := b.out.Labels[v1alpha1.ForwardedLabel]; ok {
		return true
	}
	element, _ := b.element.(map[string]any)
	labels, _ := element["labels"].(map[string]any)
	_, ok := labels[v1alpha1.ForwardedLabel]
	return ok
}

func (b *builder) assemble(first bool) {
	element, isObject := b.discarded(b.element).(map[string]any)
	b.object = make(map[string]any, len(element)+fieldCount)
	b.startCustom()
	for _, key := range sortedKeys(element) { // in order, since names can be taken
		b.addKey(key, element[key])
	}
	isElement := func(given any) bool { return given != nil && isSame(given, b.element) }
	if !isObject && !slices.ContainsFunc(b.values[:], isElement) { // no field is the element
		if rest, less := b.left.prune(b.element); !less || rest != nil {
			b.keep(alertVariable, rest)
		}
	}
	if first || !b.reader.sharedOnce {
		b.addShared()
	}
	b.addMapped()
}

// startCustom puts what the expression of custom gave into custom, before what is left of the payload.
func (b *builder) startCustom() {
	given := b.values[customIndex]
	entries, isObject := given.(map[string]any)
	if b.gave&(1<<customIndex) != 0 && !isObject {
		b.out.warn(customKey, "the mapping gives no map for it; what it gives is kept in it as %s", customKey)
		entries = map[string]any{customKey: given}
	}
	b.custom = maps.Clone(entries)
}

// discarded returns the alert without what the mapping discards of it, even if the expression fails: it may be a credential.
func (b *builder) discarded(element any) any {
	isPayload := isSame(b.element, b.reader.vars.payload)
	for _, d := range b.reader.program.discards {
		if d.isOf(alertVariable) || isPayload && d.isOf(payloadVariable) {
			element = d.cutFrom(element)
		}
	}
	return element
}

// addKey adds one entry of the alert as it was sent.
func (b *builder) addKey(key string, value any) {
	field, listed := fieldOfKey[key]
	if listed && field != customIndex && b.gave&(1<<field) == 0 && !slices.Contains(b.refused, key) {
		b.object[key] = value // for the payload rules, whatever else was made of it
		return
	}
	rest, some := b.left.of(key, value)
	switch {
	case !some, b.reader.program.preset != "" && isEmpty(rest):
	case !listed:
		b.object[key] = rest // to custom, by the payload rules
	case isAbsent(rest):
	case field == customIndex:
		b.addCustom(rest)
	default:
		b.keep(key, rest)
	}
}

func (b *builder) addCustom(value any) {
	entries, isObject := value.(map[string]any)
	if !isObject {
		b.keep(customKey, value)
		return
	}
	for _, key := range sortedKeys(entries) {
		b.keep(key, entries[key])
	}
}

// keep adds an entry to custom, under another name if it has one of that name.
func (b *builder) keep(key string, value any) {
	if b.custom == nil {
		b.custom = map[string]any{}
	}
	b.custom[payload.FreeName(b.custom, key)] = value
}

// addShared adds what is left of the payload around the alert.
func (b *builder) addShared() {
	for _, name := range sortedKeys(b.reader.shared) {
		key := name
		if _, taken := b.object[key]; taken {
			key = sharedPrefix + key
		}
		b.object[payload.FreeName(b.object, key)] = b.reader.shared[name]
	}
}

func (b *builder) addMapped() {
	for i, value := range b.values[:customIndex] {
		if b.gave&(1<<i) != 0 {
			b.object[fields[i].key] = value
		}
	}
	if len(b.custom) > 0 {
		b.object[customKey] = b.custom
	}
}

// share finds what is left of the payload around the list of alerts: what all of them have in common. It is
// left out if every alert holds it.
func (r *reader) share(builders []builder) {
	around, ok := r.vars.payload.(map[string]any)
	if !ok || !r.fromList || len(builders) == 0 {
		return
	}
	all := make([]*leftovers, len(builders))
	for i := range builders {
		if isSame(builders[i].element, around) {
			return // the payload is itself one of the alerts
		}
		all[i] = &builders[i].around
	}
	left := common(all)
	left.hold(r.list)
	for i := range builders {
		left.hold(builders[i].element)
	}
	for _, d := range r.program.discards {
		if d.isOf(payloadVariable) {
			around, _ = d.cutFrom(around).(map[string]any)
		}
	}
	size := r.addShared(left, around)
	if len(builders) > 1 && (size > maxSharedBytes || size*len(builders) > maxSharedTotal) {
		r.sharedOnce = true
		r.warn("what the payload says beside its alerts is large; it is kept in custom of the first alert only")
	}
}

// addShared shares what is left around the list of alerts, and returns about how many bytes that is.
func (r *reader) addShared(left leftovers, around map[string]any) (size int) {
	r.shared = map[string]any{}
	for _, key := range sortedKeys(around) {
		rest, some := left.of(key, around[key])
		if !some || isAbsent(rest) || r.program.preset != "" && isEmpty(rest) {
			continue
		}
		if _, listed := fieldOfKey[key]; listed {
			key = sharedPrefix + key
		}
		r.shared[payload.FreeName(r.shared, key)] = rest
		size += len(key) + weighNative(rest, maxSharedTotal)
	}
	return size
}

// Source says where one field of an alert comes from.
type Source struct {
	Field      string `json:"field"`                // its name as in a payload: "dedup_key"
	Key        string `json:"key,omitempty"`        // that the payload rules read it from; empty if they read none
	Preset     string `json:"preset,omitempty"`     // of the expression; empty if it is spec.mapping's own
	Expression string `json:"expression,omitempty"` // that gave the field; empty if it was not mapped
}

// Sources returns for each field that the alert has where it comes from, in the order of the fields.
func (a *Alert) Sources() []Source {
	var present map[string]json.RawMessage
	if encoded, err := json.Marshal(a.Alert); err != nil || json.Unmarshal(encoded, &present) != nil {
		return nil // cannot happen: an alert is stored as JSON
	}
	var sources []Source
	for i, f := range fields {
		if _, found := present[f.name]; !found {
			continue
		}
		source := Source{Field: f.key}
		if e := a.program.expressions[i]; a.mapped&(1<<i) != 0 {
			source.Expression, source.Preset = e.source, e.preset
		} else {
			source.Key = a.keyOf(f.key)
		}
		sources = append(sources, source)
	}
	return sources
}

// keyOf returns the key that the payload rules read a field from; empty if it is what they say of a payload without one.
func (a *Alert) keyOf(field string) string {
	for _, name := range payload.Names(field) {
		if value, ok := a.object[name]; ok && !isAbsent(value) {
			return name
		}
	}
	return ""
}
