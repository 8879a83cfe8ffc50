// Package report computes statistics of finished episodes, and renders them as text, Markdown and HTML.
//
// A Builder reads each episode once, in any order. Its memory is bounded: 16 bytes per episode for exact quantiles, as a
// quantile needs all values; at most maxKeys keys (see table), with 8 bytes for each day on which a key had an episode; and a
// few numbers per day.
package report

import (
	"cmp"
	"math"
	"time"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/archive/records"
)

// Episode is a finished episode. The texts may hold anything.
type Episode struct {
	Namespace, Integration, Key, Title string

	Severity v1alpha1.Severity
	// Alerts is the number of alerts of the episode.
	Alerts int64
	// Opened, Acknowledged and Resolved are zero if unknown. Acknowledged is the first acknowledgement.
	Opened, Acknowledged, Resolved time.Time
}

// severities are the columns of counts: the severities of the API, and one for unknown severities.
var severities = append(v1alpha1.Severities(), "other")

// column returns the index of a severity in severities.
func column(severity v1alpha1.Severity) int {
	for i, known := range severities {
		if severity == known {
			return i
		}
	}
	return len(severities) - 1
}

// perSeverity is a count of episodes for each of severities.
type perSeverity [5]int64

func (c *perSeverity) total() (sum int64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// Builder accumulates episodes. Create it with NewBuilder.
type Builder struct {
	from, to     time.Time
	zone         *time.Location
	days         map[int32]*perSeverity
	acknowledge  [len(perSeverity{})][]int64 // durations in milliseconds
	resolve      [len(perSeverity{})][]int64
	implausible  int64
	omitted      int64
	errors       int64
	keys         *table
	integrations *table
}

// NewBuilder returns a Builder of a report on the episodes that ended from from to to. The days are those of zone.
func NewBuilder(from, to time.Time, zone *time.Location) *Builder {
	return &Builder{
		from: from.In(zone), to: to.In(zone), zone: zone, days: map[int32]*perSeverity{},
		keys: newTable(maxKeys), integrations: newTable(maxKeys),
	}
}

// Add accumulates an episode. It ignores those that ended outside of the period.
func (b *Builder) Add(e *Episode) {
	if e.Resolved.Before(b.from) || !e.Resolved.Before(b.to) {
		return
	}
	severity, day := column(e.Severity), dayOf(e.Resolved.In(b.zone))
	counts := b.days[day]
	if counts == nil {
		counts = &perSeverity{}
		b.days[day] = counts
	}
	counts[severity]++
	var open time.Duration
	if ms, ok := between(e.Opened, e.Resolved); ok {
		b.resolve[severity] = append(b.resolve[severity], ms)
		open = time.Duration(ms) * time.Millisecond
	} else {
		b.implausible++
	}
	if !e.Acknowledged.IsZero() {
		if ms, ok := between(e.Opened, e.Acknowledged); ok {
			b.acknowledge[severity] = append(b.acknowledge[severity], ms)
		}
	}
	b.keys.add(id{e.Namespace, e.Integration, e.Key}, e, day, open)
	b.integrations.add(id{e.Namespace, e.Integration, ""}, e, day, open)
}

// Warn records that episodes are missing because of an error, which the report mentions.
func (b *Builder) Warn() { b.errors++ }

// AddRecord accumulates an episode of the archive or the cluster.
func (b *Builder) AddRecord(r *records.Record) {
	b.Add(&Episode{
		Namespace: r.Namespace, Integration: r.Integration, Key: r.DedupKey, Title: r.Alert.Title,
		Severity: cmp.Or(r.HighestSeverity, r.Severity), Alerts: r.AlertCount,
		Opened: r.OpenedTime.Time, Acknowledged: r.AcknowledgedTime.Time, Resolved: r.ResolvedTime.Time,
	})
	if r.Omitted != nil {
		b.omitted += max(0, r.Omitted.Episodes)
	}
}

// between returns the milliseconds from one time to another. It reports false for times that cannot be: one is unknown, or
// they are in the wrong order.
func between(from, to time.Time) (ms int64, ok bool) {
	if from.IsZero() || to.IsZero() || to.Before(from) {
		return 0, false
	}
	return min(to.UnixMilli()-from.UnixMilli(), math.MaxInt64/int64(time.Millisecond)), true
}

// dayOf returns the number of days from 1970-01-01 to the date of t in its zone.
func dayOf(t time.Time) int32 {
	const secondsPerDay = 24 * 60 * 60
	_, offset := t.Zone()
	seconds := t.Unix() + int64(offset)
	day := seconds / secondsPerDay
	if seconds%secondsPerDay < 0 {
		day--
	}
	return int32(max(math.MinInt32, min(day, math.MaxInt32)))
}

// dateOf returns the date of a number from dayOf.
func dateOf(day int32) string {
	return time.Unix(0, 0).UTC().AddDate(0, 0, int(day)).Format(time.DateOnly)
}
