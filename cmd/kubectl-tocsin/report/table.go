package report

import (
	"slices"
	"strings"
	"time"
)

// maxKeys bounds the keys of a table. An entry has about 250 bytes, and at most 2 KiB.
const maxKeys = 100_000

// maxTitle bounds the title of an entry, in bytes.
const maxTitle = 200

// id identifies a dedup key, which is scoped to its integration, or, with an empty key, an integration.
type id struct{ namespace, integration, key string }

// entry is the episodes of a key.
type entry struct {
	id
	title    string // of the newest episode
	newest   time.Time
	episodes int64
	alerts   int64
	open     time.Duration // the sum of all episodes
	days     []dayCount    // only those with episodes, in the order of their first one
}

type dayCount struct {
	day      int32
	episodes int32
}

// table counts episodes by key. When it has more than its limit of keys, it forgets the half with the fewest episodes, so
// that dedup keys that senders generate do not fill the memory. The count of a key is then too low by at most missed.
// It is the algorithm "lossy counting" (Manku and Motwani, VLDB 2002) with windows that end when the table is full.
type table struct {
	limit   int
	entries map[id]*entry
	missed  int64
}

func newTable(limit int) *table { return &table{limit: limit, entries: map[id]*entry{}} }

func (t *table) add(key id, e *Episode, day int32, open time.Duration) {
	one := t.entries[key]
	if one == nil {
		if len(t.entries) >= t.limit {
			t.forget()
		}
		one = &entry{id: key}
		t.entries[key] = one
	}
	one.episodes++
	one.alerts += max(0, e.Alerts)
	one.open += open
	if one.title == "" || e.Resolved.After(one.newest) {
		one.title, one.newest = cutBytes(e.Title, maxTitle), e.Resolved
	}
	// Most episodes come in the order of their days, so the search begins at the end.
	for i := len(one.days) - 1; i >= 0; i-- {
		if one.days[i].day == day {
			one.days[i].episodes++
			return
		}
	}
	one.days = append(one.days, dayCount{day, 1})
}

// forget removes at least half of the entries, those with the fewest episodes.
func (t *table) forget() {
	counts := make([]int64, 0, len(t.entries))
	for _, one := range t.entries {
		counts = append(counts, one.episodes)
	}
	slices.Sort(counts)
	median := counts[len(counts)/2]
	for key, one := range t.entries {
		if one.episodes <= median {
			delete(t.entries, key)
		}
	}
	t.missed += median
}

// top returns the first n entries in an order.
func (t *table) top(n int, order func(a, b *entry) int, keep func(*entry) bool) []*entry {
	var list []*entry
	for _, one := range t.entries {
		if keep == nil || keep(one) {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, order)
	return list[:min(n, len(list))]
}

// peak returns the day with the most episodes, the earliest of several.
func (e *entry) peak() dayCount {
	best := e.days[0]
	for _, one := range e.days[1:] {
		if one.episodes > best.episodes || one.episodes == best.episodes && one.day < best.day {
			best = one
		}
	}
	return best
}

// cutBytes returns the beginning of a text, at most n bytes, in valid UTF-8.
func cutBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && text[n]&0xC0 == 0x80 {
		n--
	}
	return strings.Clone(text[:n]) // which releases the rest of the text
}
