package report

import (
	"cmp"
	"slices"
	"time"
)

// flapping is the number of episodes in one day from which on a key counts as flapping.
const flapping = 5

// Report is the result of a Builder. Its texts are as the senders wrote them.
type Report struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Zone is the time zone of the days.
	Zone string `json:"zone"`
	// Scope describes the namespace and the filters.
	Scope string `json:"scope"`
	// Episodes is the number of episodes that ended in the period.
	Episodes int64 `json:"episodes"`
	// Open is the number of incidents that are open now; absent if unknown.
	Open *int `json:"open,omitempty"`
	// Implausible is the number of episodes without usable times, which the times to resolve do not include.
	Implausible int64 `json:"implausible"`
	// Omitted is the number of episodes that ended in quick succession and have no record, so the other figures lack them.
	Omitted int64 `json:"omitted"`
	// Severities has a row for each severity that occurs, the most severe first, and one for all.
	Severities []Row `json:"severities"`
	// DaysPerBar is the number of days of each element of Bars; the last one may have fewer.
	DaysPerBar int   `json:"daysPerBar"`
	Bars       []Bar `json:"bars"`
	Histogram  []Bin `json:"histogram"`
	// Missed is how many episodes the counts of keys may be too low, because there were too many keys.
	Missed       int64 `json:"missed"`
	Keys         []Key `json:"keys"`
	Integrations []Key `json:"integrations"`
	// Flapping are the keys with many episodes in one day.
	Flapping []Key `json:"flapping"`
	// Warnings are problems in reading the episodes.
	Warnings []string `json:"warnings,omitempty"`
}

// Row has the statistics of a severity.
type Row struct {
	Severity    string    `json:"severity"`
	Episodes    int64     `json:"episodes"`
	PerDay      float64   `json:"perDay"`
	Acknowledge Quantiles `json:"acknowledge"`
	Resolve     Quantiles `json:"resolve"`
}

// Quantiles of durations. They are exact, by the nearest-rank method.
type Quantiles struct {
	// Count is the number of durations.
	Count  int           `json:"count"`
	Median time.Duration `json:"median"`
	P90    time.Duration `json:"p90"`
}

// Bar is the number of episodes that ended in one day or several.
type Bar struct {
	// Date of the first day.
	Date string `json:"date"`
	// Counts by severity: critical, error, warning, info and other.
	Counts []int64 `json:"counts"`
	Total  int64   `json:"total"`
}

// Bin is an interval of durations.
type Bin struct {
	// Label describes the interval, such as "5m to 15m".
	Label       string `json:"label"`
	Acknowledge int    `json:"acknowledge"`
	Resolve     int    `json:"resolve"`
}

// Key has the statistics of a dedup key, or of an integration if Key is empty.
type Key struct {
	Namespace   string `json:"namespace"`
	Integration string `json:"integration"`
	Key         string `json:"key,omitempty"`
	Title       string `json:"title,omitempty"`
	Episodes    int64  `json:"episodes"`
	Alerts      int64  `json:"alerts"`
	// Open is the sum of the durations of the episodes.
	Open time.Duration `json:"open"`
	// PeakDay is the day with the most episodes.
	PeakDay      string `json:"peakDay"`
	PeakEpisodes int64  `json:"peakEpisodes"`
	// Days is the number of days on which episodes ended.
	Days int `json:"days"`
}

// Report returns the statistics of all episodes that were added, with at most top keys and integrations in each list, and at
// most bars elements in Bars. The Builder must not be used afterwards.
func (b *Builder) Report(top, bars int) *Report {
	r := &Report{
		From: b.from, To: b.to, Zone: b.to.Format("MST"), Implausible: b.implausible, Omitted: b.omitted,
		Missed: b.keys.missed,
	}
	if b.errors > 0 {
		r.Warnings = append(r.Warnings, "Incomplete: "+count(b.errors, "error")+" in reading the episodes.")
	}
	b.fillBars(r, bars)
	b.fillDurations(r)
	byEpisodes := func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.Episodes, a.Episodes), cmp.Compare(b.Alerts, a.Alerts), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Integration, b.Integration), cmp.Compare(a.Key.Key, b.Key.Key))
	}
	byPeak := func(a, c *entry) int {
		return cmp.Or(cmp.Compare(c.peak().episodes, a.peak().episodes), byEpisodes(a, c))
	}
	r.Keys = keysOf(b.keys.top(top, byEpisodes, nil))
	r.Integrations = keysOf(b.integrations.top(top, byEpisodes, nil))
	r.Flapping = keysOf(b.keys.top(top, byPeak, func(e *entry) bool { return e.peak().episodes >= flapping }))
	return r
}

func keysOf(entries []*entry) []Key {
	keys := []Key{} // not null in JSON
	for _, e := range entries {
		peak := e.peak()
		e.PeakDay, e.PeakEpisodes, e.Days = dateOf(peak.day), int64(peak.episodes), len(e.days)
		keys = append(keys, e.Key)
	}
	return keys
}

// fillBars fills Bars, Episodes and the counts of Severities.
func (b *Builder) fillBars(r *Report, bars int) {
	first, last := dayOf(b.from), dayOf(b.to.Add(-1))
	r.DaysPerBar = (int(last-first) + bars) / bars
	for day := first; day <= last; day += int32(r.DaysPerBar) {
		r.Bars = append(r.Bars, Bar{Date: dateOf(day), Counts: make([]int64, len(severities))})
	}
	all := make([]int64, len(severities))
	for day, counts := range b.days {
		bar := &r.Bars[int(day-first)/r.DaysPerBar]
		for i, n := range counts {
			bar.Counts[i] += n
			bar.Total += n
			all[i] += n
			r.Episodes += n
		}
	}
	for i, n := range all {
		if n > 0 {
			r.Severities = append(r.Severities, Row{Severity: string(severities[i]), Episodes: n})
		}
	}
	r.Severities = append(r.Severities, Row{Severity: "all", Episodes: r.Episodes})
	for i := range r.Severities {
		r.Severities[i].PerDay = float64(r.Severities[i].Episodes) / max(1, b.to.Sub(b.from).Hours()/24)
	}
}

// fillDurations fills the quantiles of Severities, and Histogram.
func (b *Builder) fillDurations(r *Report) {
	var acknowledge, resolve []int64
	for i := range severities {
		acknowledge, resolve = append(acknowledge, b.acknowledge[i]...), append(resolve, b.resolve[i]...)
		at := slices.IndexFunc(r.Severities, func(row Row) bool { return row.Severity == string(severities[i]) })
		if at >= 0 {
			r.Severities[at].Acknowledge, r.Severities[at].Resolve = quantiles(b.acknowledge[i]), quantiles(b.resolve[i])
		}
		b.acknowledge[i], b.resolve[i] = nil, nil
	}
	all := &r.Severities[len(r.Severities)-1]
	all.Acknowledge, all.Resolve = quantiles(acknowledge), quantiles(resolve)
	for i := range len(bins) + 1 {
		label := "under " + bins[0].label
		switch {
		case i == len(bins):
			label = bins[i-1].label + " or more"
		case i > 0:
			label = bins[i-1].label + " to " + bins[i].label
		}
		r.Histogram = append(r.Histogram, Bin{label, inBin(acknowledge, i), inBin(resolve, i)})
	}
}

// bins are the upper ends of the intervals of Histogram.
var bins = []struct {
	end   time.Duration
	label string
}{
	{time.Minute, "1m"}, {5 * time.Minute, "5m"}, {15 * time.Minute, "15m"}, {time.Hour, "1h"}, {4 * time.Hour, "4h"},
	{24 * time.Hour, "1d"},
}

// inBin returns how many of sorted milliseconds are in an interval of bins.
func inBin(sorted []int64, bin int) int {
	below := func(i int) int {
		switch {
		case i < 0:
			return 0
		case i == len(bins):
			return len(sorted)
		}
		at, _ := slices.BinarySearch(sorted, bins[i].end.Milliseconds())
		return at
	}
	return below(bin) - below(bin-1)
}

// quantiles sorts milliseconds and returns their quantiles.
func quantiles(ms []int64) Quantiles {
	if len(ms) == 0 {
		return Quantiles{}
	}
	slices.Sort(ms)
	rank := func(percent int) time.Duration {
		return time.Duration(ms[(len(ms)*percent+99)/100-1]) * time.Millisecond
	}
	const median, p90 = 50, 90
	return Quantiles{Count: len(ms), Median: rank(median), P90: rank(p90)}
}
