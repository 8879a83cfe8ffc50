package mapping

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/origins"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

const customKey = "custom" // of the custom bag in a payload

// sharedPrefix is put before a key of the payload around an alert that the alert has too, or that would be read as its field.
const sharedPrefix = "payload_"

// builder reads one alert: it evaluates the expressions and puts together the object that the payload rules then normalise.
type builder struct {
	reader    *reader
	element   any  // the alert as it was sent
	isPayload bool // the alert is the whole payload
	out       Alert

	values  [origins.Count]any // what the expressions gave; nil where one gave nothing
	refused []string           // keys of fields whose expressions mention them and gave nothing
	left    leftovers          // of the alert
	around  leftovers          // of the payload around it
	object  map[string]any
	custom  map[string]any // what goes into the object's custom
}

func (b *builder) evaluate() {
	for i, e := range b.reader.program.expressions[:origins.Count] {
		if e == nil {
			continue
		}
		value, err := b.reader.evaluate(e)
		if err != nil {
			b.fail(origins.Field(i), e, err)
			continue
		}
		if isAbsent(value) {
			b.refused = append(b.refused, e.ownKeys...)
			continue
		}
		b.values[i], b.out.by[i] = b.reader.program.prefixed(e, value), e
		isBag := origins.Field(i).IsBag()
		b.left.settle(isBag, value, b.element, b.reader.vars.looked)
		b.around.settle(isBag, value, b.reader.body, b.reader.vars.lookedAround)
	}
}

// fail records that an expression failed. The payload rules read the field, but not the status: a wrong resolve hides an outage.
func (b *builder) fail(field origins.Field, e *expression, err error) {
	b.reader.fail(e, err)
	reason := payload.ExpressionFailed
	if field == origins.Status {
		reason = payload.StatusFailed
		b.values[field] = string(v1alpha1.AlertFiring)
	}
	b.out.warn(reason, field.String(), oneLine(err.Error()))
}

// isMessageKey reports whether the alert's key is that of one message, so that no other message has it.
func (b *builder) isMessageKey() bool {
	key := strings.TrimPrefix(b.out.DedupKey, b.reader.program.recognized+"/")
	return key != "" && slices.ContainsFunc(b.reader.program.messageKeys, func(path []string) bool {
		value, ok := valueAt(b.reader.body, path)
		text, _ := payload.TextOf(value)
		return ok && text == key
	})
}

// hops returns how many Tocsins have forwarded the alert. Labels count where the sender has them, even if the mapping leaves
// them out. A number that no Tocsin writes is beyond every bound.
func (b *builder) hops() int {
	if len(b.labels(v1alpha1.ForwardedLabel)) == 0 {
		return 0
	}
	most := 1
	for _, value := range b.labels(v1alpha1.HopsLabel) {
		text, _ := value.(string)
		hops, err := strconv.Atoi(text)
		if err != nil || hops < 1 || strconv.Itoa(hops) != text {
			return math.MaxInt
		}
		most = max(most, hops)
	}
	return most
}

// labels returns the values of a label: as the alert has it, and as it was sent.
func (b *builder) labels(name string) (values []any) {
	if mapped, ok := b.out.Labels[name]; ok {
		values = append(values, mapped)
	}
	if sent, ok := valueAt(b.element, []string{"labels", name}); ok {
		values = append(values, sent)
	}
	return values
}

func (b *builder) assemble() {
	roots := []string{alertVariable}
	if b.isPayload {
		roots = append(roots, payloadVariable)
	}
	element, isObject := b.reader.program.withoutDiscards(b.element, roots...).(map[string]any)
	b.object, b.custom = make(map[string]any, len(element)+origins.Count), map[string]any{}
	b.startCustom()
	for _, key := range slices.Sorted(maps.Keys(element)) { // in order, since names can be taken
		b.addKey(key, element[key])
	}
	isElement := func(given any) bool { return given != nil && isSame(given, b.element) }
	if !isObject && !slices.ContainsFunc(b.values[:], isElement) { // no field is the element
		if rest, some := b.left.prune(b.element); some {
			b.keep(alertVariable, rest)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.reader.shared)) {
		key := name
		if _, taken := b.object[key]; taken {
			key = sharedPrefix + key
		}
		b.object[payload.FreeName(b.object, key)] = b.reader.shared[name]
	}
	for i, value := range b.values[:origins.Custom] {
		if value != nil {
			b.object[origins.Field(i).String()] = value
		}
	}
	if len(b.custom) > 0 {
		b.object[customKey] = b.custom
	}
}

// startCustom puts what the expression of custom gave into custom, before what is left of the payload.
func (b *builder) startCustom() {
	given := b.values[origins.Custom]
	if entries, isObject := given.(map[string]any); isObject {
		maps.Copy(b.custom, entries)
	} else if given != nil {
		b.out.warn(payload.CustomIsNoMap, customKey, customKey)
		b.custom[customKey] = given
	}
}

func (b *builder) addKey(key string, value any) {
	field, listed := payload.KeyField(key)
	if listed && field != origins.Custom && b.values[field] == nil && !slices.Contains(b.refused, key) {
		b.object[key] = value // for the payload rules, whatever else was made of it
		return
	}
	rest, some := b.left.of(key, value)
	entries, isObject := rest.(map[string]any)
	switch {
	case !some, b.reader.program.preset != "" && isEmpty(rest):
	case !listed:
		b.object[key] = rest // to custom, by the payload rules
	case isAbsent(rest):
	case field == origins.Custom && isObject:
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			b.keep(key, entries[key])
		}
	default:
		b.keep(key, rest)
	}
}

// keep adds an entry to custom, under another name if it has one of that name.
func (b *builder) keep(key string, value any) {
	b.custom[payload.FreeName(b.custom, key)] = value
}

// heldAround returns what the payload around the list need not keep: what all alerts have a field of, and the alerts themselves.
func (r *reader) heldAround(builders []*builder) *leftovers {
	held := &builders[0].around
	for _, b := range builders[1:] {
		maps.DeleteFunc(held.whole, func(id identity, _ bool) bool { return !b.around.whole[id] })
		maps.DeleteFunc(held.keys, func(key string, _ bool) bool { return !b.around.keys[key] })
	}
	held.hold(r.list)
	for _, b := range builders {
		held.hold(b.element)
	}
	return held
}

// share finds what is left of the payload around the list of alerts, which each of them gets: what no field of one of them
// lacks is left out. It reports whether that is so large that only the first alert is to get it.
func (r *reader) share(builders []*builder) (once bool) {
	around, ok := r.body.(map[string]any)
	isPayload := func(b *builder) bool { return b.isPayload }
	if !ok || r.list == nil || len(builders) == 0 || slices.ContainsFunc(builders, isPayload) {
		return false
	}
	left := r.heldAround(builders)
	around, _ = r.program.withoutDiscards(around, payloadVariable).(map[string]any)
	r.shared = map[string]any{}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(around)) {
		rest, some := left.of(key, around[key])
		if !some || isAbsent(rest) || r.program.preset != "" && isEmpty(rest) {
			continue
		}
		if _, listed := payload.KeyField(key); listed {
			key = sharedPrefix + key
		}
		r.shared[payload.FreeName(r.shared, key)] = rest
		size += len(key) + weighNative(rest, maxSharedTotal)
	}
	once = len(builders) > 1 && (size > maxSharedBytes || size*len(builders) > maxSharedTotal)
	if once {
		r.warn(payload.AroundTooLarge)
	}
	return once
}

// noteOrigins says where each field comes from: keys are those that the payload rules read, of the object that was assembled for
// them, and named those of the payload that they took for a field's name.
func (b *builder) noteOrigins(keys *payload.Keys, named map[string]string) {
	from := &b.out.From
	from.Mapping, from.Preset = b.reader.program.digests.mapping, b.reader.program.digests.preset
	for i, key := range keys[:origins.Custom] {
		switch own := origins.Field(i).String(); {
		case key == "":
		case key != own:
			from.Kinds[i] = origins.Alias
		case b.out.by[i] != nil:
			from.Kinds[i] = b.out.by[i].kind()
		case named[own] != "":
			from.Kinds[i] = origins.OtherName
			from.Keys[i] = named[own]
		case b.values[i] != nil: // fail replaced it
			from.Kinds[i] = origins.Failed
		default:
			from.Kinds[i] = origins.Key
		}
	}
	sent, _ := valueAt(b.element, []string{customKey})
	given, _ := sent.(map[string]any)
	switch e := b.out.by[origins.Custom]; {
	case e != nil:
		from.Kinds[origins.Custom] = e.kind()
	case len(given) > 0:
		from.Kinds[origins.Custom] = origins.Key
	}
}

func (of *expression) kind() origins.Kind {
	if of.preset != "" {
		return origins.Preset
	}
	return origins.Mapping
}

// About notes warnings about the payload as a whole.
func (a *Alert) About(warnings []payload.Warning) {
	for _, w := range warnings {
		if w.Reason != 0 {
			a.From.Warn(origins.Whole, byte(w.Reason))
		}
	}
}

// TellOrigins writes into the alert, which is complete, where its fields come from and what was not taken as sent.
func (a *Alert) TellOrigins() {
	a.From.Settle(&a.Alert)
	for _, w := range a.Warnings {
		if w.Reason == 0 {
			continue
		}
		field, key := origins.Whole, w.Field
		if key != "" {
			field = origins.Custom // where what has another name is
		}
		key, _, _ = strings.Cut(key, ".") // and a key in a bag
		if of, listed := payload.KeyField(key); listed {
			field = of
		}
		a.From.Warn(field, byte(w.Reason))
	}
	a.Origins = a.From.String()
}
