package v1alpha1

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// MaxContentBytes bounds the JSON of one alert's content as the API server stores it. With the bounds
// of the other fields it keeps an Incident under 256 KiB.
const MaxContentBytes = 176 << 10

// Bag is a JSON object of the sender's making: the values are kept as they came.
type Bag map[string]json.RawMessage

// Merge returns b with the values of newer in it, each replacing an older one whole. Neither is changed;
// the result may be one of them.
func (b Bag) Merge(newer Bag) Bag {
	if len(newer) == 0 {
		return b
	}
	if len(b) == 0 {
		return newer
	}
	merged := make(Bag, len(b)+len(newer))
	maps.Copy(merged, b)
	maps.Copy(merged, newer)
	return merged
}

// Bags returns the content's four bags by their JSON names.
func (c *AlertContent) Bags() map[string]*Bag {
	return map[string]*Bag{
		"labels":      &c.Labels,
		"annotations": &c.Annotations,
		"values":      &c.Values,
		"custom":      &c.Custom,
	}
}

// EncodedSize is the size in bytes of the content's JSON as the API server stores it, never less.
func (c *AlertContent) EncodedSize() int {
	const overhead = 512 // field names, braces and the two times
	size := overhead
	for _, s := range []string{c.Title, c.Description, string(c.Severity), c.Type, c.Link, c.Hostname, c.Region} {
		size += encodedLen(s, true)
	}
	for _, bag := range c.Bags() {
		for key, value := range *bag {
			size += entrySize(key, value)
		}
	}
	return size
}

// TrimTo drops the largest bag entries until the content's EncodedSize is at most limit bytes, and
// returns the dropped ones as "bag.key", sorted. The bags it had are not changed.
func (c *AlertContent) TrimTo(limit int) []string {
	size := c.EncodedSize()
	if size <= limit {
		return nil
	}
	type entry struct {
		bag, key string
		size     int
	}
	var entries []entry
	bags := c.Bags()
	for name, bag := range bags {
		*bag = maps.Clone(*bag)
		for key, value := range *bag {
			entries = append(entries, entry{name, key, entrySize(key, value)})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		if a.size != b.size {
			return b.size - a.size
		}
		return strings.Compare(a.bag+"."+a.key, b.bag+"."+b.key)
	})
	var dropped []string
	for _, e := range entries {
		if size <= limit {
			break
		}
		delete(*bags[e.bag], e.key)
		dropped = append(dropped, e.bag+"."+e.key)
		size -= e.size
	}
	slices.Sort(dropped)
	return dropped
}

func entrySize(key string, value json.RawMessage) int {
	return encodedLen(key, true) + encodedLen(string(value), false) + 2 // colon, comma
}

// encodedLen is how long s becomes in JSON as Go's encoder writes it, which spells <, > and & and the
// two line separators as \u escapes. A quoted s is a Go string, otherwise it is JSON already.
func encodedLen(s string, quote bool) int {
	n := len(s)
	if quote {
		n += 2
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c == '<' || c == '>' || c == '&':
			n += 5
		case c == 0xe2 && strings.HasPrefix(s[i:], "\u2028"), c == 0xe2 && strings.HasPrefix(s[i:], "\u2029"):
			n += 3
		case quote && (c == '"' || c == '\\' || c == '\n' || c == '\t' || c == '\r'):
			n++
		case quote && (c < 0x20 || c == 0x7f):
			n += 5
		}
	}
	return n
}
