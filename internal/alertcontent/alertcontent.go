// Package alertcontent bounds and merges the content of alerts.
package alertcontent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// MaxBytes bounds the JSON of an alert's content as the API server stores it. With the limits of the other fields,
// it keeps an Incident below 256 KiB.
const MaxBytes = 176 << 10

// MaxKeys bounds the keys of an alert's bags together, without those of nested objects: an entry of a bag takes about 90 bytes
// of memory beside its text, a nested one takes only its text. JSONKey is the key of a bag that is kept as one text.
const (
	MaxKeys = 256
	JSONKey = "json"
)

// Merge returns older with its values replaced by those of newer. It changes neither; the result may be one of them.
func Merge[M ~map[string]V, V any](older, newer M) M {
	if len(newer) == 0 {
		return older
	}
	if len(older) == 0 {
		return newer
	}
	merged := make(M, len(older)+len(newer))
	maps.Copy(merged, older)
	maps.Copy(merged, newer)
	return merged
}

type entry struct {
	name   string // "bag.key"
	size   int
	remove func() // in place; a bag without entries becomes absent
}

type bag struct {
	name    string
	len     int
	entries func() []entry
	toText  func() // replaces all entries by one with their JSON
}

func bagOf[M ~map[string]V, V any](name string, in *M, size func(V) int, quoted func(text string) V) bag {
	return bag{
		name: name, len: len(*in),
		entries: func() (all []entry) {
			for key, value := range *in {
				all = append(all, entry{name + "." + key, quotedLen(key) + size(value) + separators, func() {
					if delete(*in, key); len(*in) == 0 {
						*in = nil
					}
				}})
			}
			return all
		},
		toText: func() {
			encoded, _ := json.Marshal(*in) // what was decoded from JSON always encodes
			*in = M{JSONKey: quoted(string(encoded))}
		},
	}
}

func bags(c *v1alpha1.AlertContent) []bag {
	asIs := func(text string) string { return text }
	return []bag{
		bagOf("custom", &c.Custom, rawLen, quote), bagOf("values", &c.Values, rawLen, quote),
		bagOf("annotations", &c.Annotations, quotedLen, asIs), bagOf("labels", &c.Labels, quotedLen, asIs),
	}
}

// Keys returns how many keys the four bags have.
func Keys(c *v1alpha1.AlertContent) int {
	return len(c.Labels) + len(c.Annotations) + len(c.Values) + len(c.Custom)
}

// Size returns an upper bound of the size in bytes of the content's JSON as the API server stores it.
func Size(c *v1alpha1.AlertContent) int {
	const overhead = 512 // field names, braces, the two times and the origins, which are written when the size has been bounded
	size := overhead
	for _, s := range []string{c.Title, c.Description, string(c.Severity), c.Type, c.Link, c.Hostname, c.Region, c.Preset} {
		size += quotedLen(s)
	}
	for _, texts := range []map[string]string{c.Labels, c.Annotations} {
		for key, value := range texts {
			size += quotedLen(key) + quotedLen(value) + separators
		}
	}
	for _, values := range []v1alpha1.Bag{c.Values, c.Custom} {
		for key, value := range values {
			size += quotedLen(key) + rawLen(value) + separators
		}
	}
	return size
}

// Bound keeps the content within MaxBytes and MaxKeys. It returns the removed entries as "bag.key", and the names of
// the bags that it replaced by their JSON, both sorted. It copies the bags that it changes.
func Bound(c *v1alpha1.AlertContent) (removed, replaced []string) {
	for limit := MaxBytes; ; limit -= MaxBytes / 8 {
		removed = append(removed, TrimTo(c, limit)...)
		bounded := *c
		replaced = LimitKeys(&bounded)
		if len(replaced) == 0 || Size(&bounded) <= MaxBytes { // quoted, JSON is longer
			*c = bounded
			slices.Sort(removed)
			return removed, replaced
		}
	}
}

// LimitKeys keeps the bags within MaxKeys: the largest bag becomes one entry with its JSON as a text, then the next. It
// returns the names of these bags, sorted, and changes no bag in place.
func LimitKeys(c *v1alpha1.AlertContent) (replaced []string) {
	for Keys(c) > MaxKeys {
		largest := slices.MaxFunc(bags(c), func(a, b bag) int { return cmp.Compare(a.len, b.len) })
		largest.toText()
		replaced = append(replaced, largest.name)
	}
	slices.Sort(replaced)
	return replaced
}

// TrimTo removes the largest bag entries until Size is at most limit bytes. It returns the removed entries as
// "bag.key", sorted. It copies the bags that it changes.
func TrimTo(c *v1alpha1.AlertContent, limit int) []string {
	size := Size(c)
	if size <= limit {
		return nil
	}
	c.Labels, c.Annotations = maps.Clone(c.Labels), maps.Clone(c.Annotations)
	c.Values, c.Custom = maps.Clone(c.Values), maps.Clone(c.Custom)
	var entries []entry
	for _, bag := range bags(c) {
		entries = append(entries, bag.entries()...)
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.size, a.size), strings.Compare(a.name, b.name))
	})
	var removed []string
	for _, e := range entries {
		if size <= limit {
			break
		}
		e.remove()
		removed = append(removed, e.name)
		size -= e.size
	}
	slices.Sort(removed)
	return removed
}

const separators = 2 // colon, comma

func quote(text string) json.RawMessage {
	raw, _ := json.Marshal(text) // no string fails to encode
	return raw
}

// quotedLen returns the length of a Go string as JSON.
func quotedLen(s string) int {
	n := len(s) + len(`""`)
	for _, r := range s {
		if r < utf8.RuneSelf {
			n += int(growthOf[r])
		} else {
			n += escapeGrowth(r)
		}
	}
	return n
}

// growthOf is the number of bytes that Go's encoder adds to an ASCII character of a string: most sizes are of ASCII, and each
// alert's is taken several times.
var growthOf = func() (growth [utf8.RuneSelf]uint8) {
	for c := range growth {
		switch r := rune(c); {
		case strings.ContainsRune("\"\\\n\r\t", r):
			growth[c] = 1
		case r < ' ':
			growth[c] = 5
		default:
			growth[c] = uint8(escapeGrowth(r))
		}
	}
	return growth
}()

// rawLen returns the maximum length of a JSON text after the API server has decoded and encoded it: besides escapes,
// numbers grow (1e20 becomes 100000000000000000000).
func rawLen(raw json.RawMessage) int {
	const (
		longest = 25 // the longest float64: -0.0000012345678901234567
		exact   = 17 // a shorter number without an exponent does not change
	)
	n := len(raw)
	quoted := false
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			quoted = !quoted
			i++
		case c == '\\' && quoted:
			i += 2 // an escaped quote does not end the string
		case !quoted && (c == '-' || '0' <= c && c <= '9'):
			number := raw[i : len(raw)-len(bytes.TrimLeft(raw[i:], "+-.0123456789Ee"))]
			if len(number) >= exact || bytes.ContainsAny(number, "eE") {
				n += max(0, longest-len(number))
			}
			i += len(number)
		case c < utf8.RuneSelf:
			n += escapeGrowth(rune(c))
			i++
		default:
			r, width := utf8.DecodeRune(raw[i:])
			n += escapeGrowth(r)
			i += width
		}
	}
	return n
}

// escapeGrowth is the number of bytes that Go's encoder adds to an unescaped character.
func escapeGrowth(r rune) int {
	switch r {
	case '<', '>', '&', utf8.RuneError: // RuneError stands for an invalid byte
		return 5
	case '\u2028', '\u2029':
		return 3
	}
	return 0
}
