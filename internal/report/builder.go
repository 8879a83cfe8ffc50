// Package report computes statistics of finished episodes, and renders them as text, Markdown and HTML.
//
// A Builder reads each episode once, in any order. Its memory is bounded: 16 bytes per episode for exact quantiles, as a
// quantile needs all values; at most maxKeys keys (see table), with 8 bytes for each day on which a key had an episode; and a
// few numbers per day.
package report

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/history"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/records"
)

// severities are the columns of counts: the severities of the API by their ranks, and one for unknown severities.
var severities = append(v1alpha1.Severities(), "other")

// perSeverity is a count of episodes for each of severities.
type perSeverity [5]int64

// Builder accumulates episodes. Create it with NewBuilder.
type Builder struct {
	report       Report // the period, and what needs no other computation than to count
	days         map[int32]perSeverity
	acknowledge  [len(perSeverity{})][]time.Duration
	resolve      [len(perSeverity{})][]time.Duration
	keys         *table
	integrations *table
}

// NewBuilder returns a Builder of a report on the episodes that ended from from to to. The days are those of zone.
func NewBuilder(from, to time.Time, zone *time.Location) *Builder {
	return &Builder{
		report: Report{From: from.In(zone), To: to.In(zone), Zone: to.In(zone).Format("MST")},
		days:   map[int32]perSeverity{}, keys: newTable(maxKeys), integrations: newTable(maxKeys),
	}
}

// Add accumulates an episode. It ignores those that ended outside of the period.
func (b *Builder) Add(r *records.Record) {
	resolved := r.ResolvedTime.Time
	if resolved.Before(b.report.From) || !resolved.Before(b.report.To) {
		return
	}
	severity, day := live.SeverityRank(history.Severity(r)), dayOf(resolved.In(b.report.From.Location()))
	counts := b.days[day]
	counts[severity]++
	b.days[day] = counts
	open, ok := between(r.OpenedTime.Time, resolved)
	if ok {
		b.resolve[severity] = append(b.resolve[severity], open)
	} else {
		b.report.Implausible++
	}
	if wait, ok := between(r.OpenedTime.Time, r.AcknowledgedTime.Time); ok {
		b.acknowledge[severity] = append(b.acknowledge[severity], wait)
	}
	b.keys.add(id{r.Namespace, r.Integration, r.DedupKey}, r, day, open)
	b.integrations.add(id{r.Namespace, r.Integration, ""}, r, day, open)
	if r.Omitted != nil {
		b.report.Omitted += max(0, r.Omitted.Episodes)
	}
}

// Warn has the report mention that episodes are missing because of errors.
func (b *Builder) Warn(errors int) {
	if errors > 0 {
		b.report.Warnings = append(b.report.Warnings, "Incomplete: "+count(int64(errors), "error")+" in reading the episodes.")
	}
}

// between returns the whole milliseconds from one time to another, unless one is unknown or they are in the wrong order.
func between(from, to time.Time) (d time.Duration, ok bool) {
	if from.IsZero() || to.IsZero() || to.Before(from) {
		return 0, false
	}
	const unit = time.Millisecond
	return to.Truncate(unit).Sub(from.Truncate(unit)).Truncate(unit), true
}

// dayOf returns the number of days from 1970-01-01 to the date of t in its zone.
func dayOf(t time.Time) int32 {
	const secondsPerDay = 24 * 60 * 60
	year, month, day := t.Date()
	return int32(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / secondsPerDay)
}

func dateOf(day int32) string {
	return time.Unix(0, 0).UTC().AddDate(0, 0, int(day)).Format(time.DateOnly)
}

// maxKeys bounds the keys of a table. An entry has about 250 bytes, and at most 2 KiB.
const maxKeys = 100_000

// maxTitle bounds the title of an entry, in bytes.
const maxTitle = 200

// id identifies a dedup key, which is scoped to its integration, or, with an empty key, an integration.
type id struct{ namespace, integration, key string }

// entry is the episodes of a key, with the title of the newest one.
type entry struct {
	Key
	newest time.Time
	days   []dayCount // only those with episodes, in the order of their first one
	peak   dayCount   // the day with the most episodes, the earliest of several
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

func (t *table) add(key id, r *records.Record, day int32, open time.Duration) {
	one := t.entries[key]
	if one == nil {
		if len(t.entries) >= t.limit {
			t.forget()
		}
		one = &entry{Key: Key{Namespace: key.namespace, Integration: key.integration, Key: key.key}}
		t.entries[key] = one
	}
	one.Episodes++
	one.Alerts += max(0, r.AlertCount)
	one.Open += open
	if one.Title == "" || r.ResolvedTime.After(one.newest) {
		title := strings.Clone(r.Alert.Title[:min(len(r.Alert.Title), maxTitle)]) // which releases the rest of the text
		one.Title, one.newest = strings.ToValidUTF8(title, ""), r.ResolvedTime.Time
	}
	one.addDay(day)
}

func (e *entry) addDay(day int32) {
	i := len(e.days) - 1 // most episodes come in the order of their days
	for i >= 0 && e.days[i].day != day {
		i--
	}
	if i < 0 {
		i, e.days = len(e.days), append(e.days, dayCount{day: day})
	}
	e.days[i].episodes++
	if n := e.days[i].episodes; n > e.peak.episodes || n == e.peak.episodes && day < e.peak.day {
		e.peak = e.days[i]
	}
}

// forget removes at least half of the entries, those with the fewest episodes.
func (t *table) forget() {
	counts := make([]int64, 0, len(t.entries))
	for _, one := range t.entries {
		counts = append(counts, one.Episodes)
	}
	slices.Sort(counts)
	median := counts[len(counts)/2]
	for key, one := range t.entries {
		if one.Episodes <= median {
			delete(t.entries, key)
		}
	}
	t.missed += median
}

// top returns the first n keys in an order.
func (t *table) top(n int, order func(a, b *entry) int) []Key {
	keys := []Key{} // not null in JSON
	entries := slices.SortedFunc(maps.Values(t.entries), order)
	for _, e := range entries[:min(n, len(entries))] {
		e.PeakDay, e.PeakEpisodes, e.Days = dateOf(e.peak.day), int64(e.peak.episodes), len(e.days)
		keys = append(keys, e.Key)
	}
	return keys
}
