package report

import (
	"cmp"
	"math"
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
	// Earlier is the number of ended episodes, of whatever time, that only an archive could describe; 0 if one was read.
	Earlier int64 `json:"earlier"`
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
	r := new(b.report)
	r.Missed = b.keys.missed
	counts := b.fillBars(r, bars)
	b.fillDurations(r, counts)
	byEpisodes := func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.Episodes, a.Episodes), cmp.Compare(b.Alerts, a.Alerts), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Integration, b.Integration), cmp.Compare(a.Key.Key, b.Key.Key))
	}
	byPeak := func(a, c *entry) int {
		return cmp.Or(cmp.Compare(c.peak.episodes, a.peak.episodes), byEpisodes(a, c))
	}
	r.Keys = b.keys.top(top, byEpisodes)
	r.Integrations = b.integrations.top(top, byEpisodes)
	r.Flapping = slices.DeleteFunc(b.keys.top(top, byPeak), func(k Key) bool { return k.PeakEpisodes < flapping })
	return r
}

// fillBars fills Bars and Episodes, and returns the numbers of episodes.
func (b *Builder) fillBars(r *Report, bars int) (all perSeverity) {
	first, last := dayOf(r.From), dayOf(r.To.Add(-1))
	r.DaysPerBar = (int(last-first) + bars) / bars
	for day := first; day <= last; day += int32(r.DaysPerBar) {
		r.Bars = append(r.Bars, Bar{Date: dateOf(day), Counts: make([]int64, len(severities))})
	}
	for day, counts := range b.days {
		bar := &r.Bars[int(day-first)/r.DaysPerBar]
		for i, n := range counts {
			bar.Counts[i] += n
			bar.Total += n
			all[i] += n
			r.Episodes += n
		}
	}
	return all
}

// fillDurations fills Severities, of which it gets the numbers of episodes, and Histogram.
func (b *Builder) fillDurations(r *Report, counts perSeverity) {
	addRow := func(severity string, episodes int64, acknowledge, resolve []time.Duration) {
		perDay := float64(episodes) / max(1, r.To.Sub(r.From).Hours()/24)
		r.Severities = append(r.Severities, Row{severity, episodes, perDay, quantiles(acknowledge), quantiles(resolve)})
	}
	for i, n := range counts {
		if n > 0 {
			addRow(string(severities[i]), n, b.acknowledge[i], b.resolve[i])
		}
	}
	acknowledge, resolve := slices.Concat(b.acknowledge[:]...), slices.Concat(b.resolve[:]...)
	addRow("all", r.Episodes, acknowledge, resolve)
	from := time.Duration(0)
	for _, bin := range bins {
		inside := func(sorted []time.Duration) int {
			first, _ := slices.BinarySearch(sorted, from)
			end, _ := slices.BinarySearch(sorted, bin.end)
			return end - first
		}
		r.Histogram = append(r.Histogram, Bin{bin.label, inside(acknowledge), inside(resolve)})
		from = bin.end
	}
}

// bins are the intervals of Histogram, each from the end of the one before it.
var bins = []struct {
	end   time.Duration
	label string
}{
	{time.Minute, "under 1m"}, {5 * time.Minute, "1m to 5m"}, {15 * time.Minute, "5m to 15m"}, {time.Hour, "15m to 1h"},
	{4 * time.Hour, "1h to 4h"}, {24 * time.Hour, "4h to 1d"}, {math.MaxInt64, "1d or more"},
}

// quantiles sorts durations and returns their quantiles.
func quantiles(all []time.Duration) Quantiles {
	if len(all) == 0 {
		return Quantiles{}
	}
	slices.Sort(all)
	rank := func(percent int) time.Duration { return all[(len(all)*percent+99)/100-1] }
	const median, p90 = 50, 90
	return Quantiles{Count: len(all), Median: rank(median), P90: rank(p90)}
}
