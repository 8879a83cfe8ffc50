package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/origins"
)

func (n *normaliser) bagOf(field string, object map[string]any) v1alpha1.Bag {
	bag := make(v1alpha1.Bag, len(object)+len(n.kept))
	start := len(n.warnings)
	for key, value := range object {
		bag[strings.ToValidUTF8(key, "\uFFFD")] = n.encode(field, key, value)
	}
	n.warnings[start:].sort()
	return bag
}

// textsOf returns the entries of an object as texts: a string as it is, any other value as its JSON, and no null.
func (n *normaliser) textsOf(field origins.Field) map[string]string {
	var texts map[string]string
	e := encoder{asText: true}
	for key, value := range n.objectOf(field) {
		if value == nil {
			continue
		}
		text, isText := value.(string)
		if !isText {
			text = string(e.append(nil, value))
		}
		if texts == nil {
			texts = map[string]string{}
		}
		n.bagBytes += len(key) + len(text) + entryOverhead
		texts[strings.ToValidUTF8(key, "\uFFFD")] = strings.ToValidUTF8(text, "\uFFFD")
	}
	return texts
}

// objectOf returns the object that a field holds, if any. Anything else that is not absent goes to custom.
func (n *normaliser) objectOf(bag origins.Field) map[string]any {
	field := bag.String()
	value := n.object[field]
	if object, ok := value.(map[string]any); ok || value == nil {
		if len(object) > 0 {
			n.keys[bag] = field
		}
		return object
	}
	if text, ok := value.(string); ok && isBlank(text) {
		return nil
	}
	n.keep(field, field, value)
	n.warnings.add(notObject, field)
	return nil
}

// custom puts together the bag of everything that has no field of its own: the entries of the payload's
// own custom object, the top-level keys without a rule, and what the rules kept. A name that is wanted
// twice stays with the entry of the custom object; the other value gets a number behind its name.
func (n *normaliser) custom() v1alpha1.Bag {
	explicit := n.objectOf(origins.Custom)
	for key, value := range n.object {
		if _, listed := fieldOfKey[key]; !listed {
			n.keep(key, key, value)
		}
	}
	if len(explicit)+len(n.kept) == 0 {
		return nil
	}
	start := len(n.warnings)
	bag := n.bagOf("custom", explicit)
	n.addKept(bag)
	n.warnings[start:].sort()
	return bag
}

// addKept adds the kept values to the bag, first those whose name is free.
func (n *normaliser) addKept(bag v1alpha1.Bag) {
	slices.SortStableFunc(n.kept, func(a, b kept) int { return strings.Compare(a.name, b.name) })
	var taken []kept
	for _, k := range n.kept {
		k.name = strings.ToValidUTF8(k.name, "\uFFFD")
		encoded := n.encode("", k.from, k.value)
		switch other, exists := bag[k.name]; {
		case !exists:
			bag[k.name] = encoded
		case !bytes.Equal(other, encoded):
			k.value = encoded
			taken = append(taken, k)
		}
	}
	for _, k := range taken {
		name := FreeName(bag, k.name)
		bag[name] = k.value.(json.RawMessage)
		n.warnings.add(nameTaken, k.from, quote(k.name), quote(name))
	}
}

// FreeName returns the name, or the first of name_2, name_3 and so on that the map does not have.
func FreeName[V any](m map[string]V, name string) string {
	free := name
	for i := 2; ; i++ {
		if _, taken := m[free]; !taken {
			return free
		}
		free = fmt.Sprintf("%s_%d", name, i)
	}
}

// encode returns the JSON of one bag entry, and warns of numbers in it that became strings. bag is empty for a
// key of the payload itself. Each entry has memory of its own, so that one that trim drops takes none.
func (n *normaliser) encode(bag, key string, value any) json.RawMessage {
	e := &n.encoder
	e.inexact = nil
	n.buffer = e.append(n.buffer[:0], value)
	raw := bytes.Clone(n.buffer)
	n.bagBytes += len(bag) + len(key) + len(raw) + entryOverhead
	path := key
	if bag != "" {
		path = bag + "." + key
	}
	switch len(e.inexact) {
	case 0:
	case 1:
		n.warnings.add(inexactNumber, path, quote(e.inexact[0]))
	default:
		n.warnings.add(inexactNumbers, path, len(e.inexact))
	}
	return raw
}

const (
	entryOverhead = len(`"":,_10000`) // the most that a bag entry takes beside its key and value
	escapedGrowth = 6                 // bytes of JSON, at most, for a byte of text: \u003c for <
)

// LimitKeys keeps the bags of an alert within alertcontent.MaxKeys, and warns of those that became texts.
func LimitKeys(content *v1alpha1.AlertContent) []Warning {
	return keysWarnings(alertcontent.LimitKeys(content))
}

func keysWarnings(bags []string) (warned warnings) {
	for _, bag := range bags {
		warned.add(tooManyKeys, bag, alertcontent.MaxKeys, bag, alertcontent.JSONKey)
	}
	return warned
}

func (n *normaliser) trim() {
	content := &n.alert.AlertContent
	text := len(content.Title) + len(content.Description) + len(content.Type) + len(content.Link) +
		len(content.Hostname) + len(content.Region)
	if escapedGrowth*(text+n.bagBytes) < alertcontent.MaxBytes/2 {
		// As nearly always, and without counting what each character takes.
		n.warnings = append(n.warnings, LimitKeys(content)...)
		return
	}
	dropped, replaced := alertcontent.Bound(content)
	n.warnings = append(n.warnings, keysWarnings(replaced)...)
	if len(dropped) > 0 {
		n.warnings.add(tooLarge, "", alertcontent.MaxBytes, summary(dropped))
	}
}
