package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/records"
)

var (
	from = time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)
	to   = from.Add(20 * 24 * time.Hour)
)

// episode returns an episode with these times, which are zero if unknown.
func episode(opened, acknowledged, resolved time.Time) *records.Record {
	r := &records.Record{}
	r.OpenedTime.Time, r.AcknowledgedTime.Time, r.ResolvedTime.Time = opened, acknowledged, resolved
	return r
}

func drawEpisode(t *rapid.T) *records.Record {
	resolved := from.Add(time.Duration(rapid.Int64Range(-int64(48*time.Hour), int64(22*24*time.Hour)).Draw(t, "resolved")))
	e := episode(time.Time{}, time.Time{}, resolved)
	e.Namespace = rapid.SampledFrom([]string{"shop", "web"}).Draw(t, "namespace")
	e.Integration = rapid.SampledFrom([]string{"mon", "other"}).Draw(t, "integration")
	e.DedupKey = rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "key")
	e.Severity = rapid.SampledFrom([]v1alpha1.Severity{"critical", "error", "warning", "info", "", "unheard-of"}).Draw(t, "severity")
	e.AlertCount = rapid.Int64Range(-1, 5).Draw(t, "alerts")
	if rapid.Bool().Draw(t, "hasOpened") {
		// Sometimes it is after the end.
		e.OpenedTime.Time = resolved.Add(-time.Duration(rapid.Int64Range(-int64(time.Hour), int64(30*time.Hour)).Draw(t, "open")))
	}
	if rapid.Bool().Draw(t, "isAcknowledged") {
		e.AcknowledgedTime.Time = e.OpenedTime.Add(
			time.Duration(rapid.Int64Range(-int64(time.Minute), int64(9*time.Hour)).Draw(t, "acknowledge")))
	}
	return e
}

// naive is the nearest-rank quantile by definition: the smallest value such that the part of the values is not above it.
func naive(values []time.Duration, part float64) time.Duration {
	for _, candidate := range slices.Sorted(slices.Values(values)) {
		notAbove := 0
		for _, value := range values {
			if value <= candidate {
				notAbove++
			}
		}
		if float64(notAbove) >= part*float64(len(values)) {
			return candidate
		}
	}
	return 0
}

func naiveQuantiles(values []time.Duration) Quantiles {
	return Quantiles{len(values), naive(values, 0.5), naive(values, 0.9)}
}

// TestReportAgainstAModel compares the statistics with a computation that looks at all episodes for every figure.
func TestReportAgainstAModel(t *testing.T) {
	zones := []*time.Location{time.UTC, time.FixedZone("east", 14*3600), time.FixedZone("west", -11*3600)}
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		b := NewBuilder(from, to, zone)
		var all []*records.Record
		for range rapid.IntRange(0, 60).Draw(t, "episodes") {
			e := drawEpisode(t)
			b.Add(e)
			if !e.ResolvedTime.Before(from) && e.ResolvedTime.Before(to) {
				all = append(all, e)
			}
		}
		bars := rapid.IntRange(1, 30).Draw(t, "bars")
		r := b.Report(3, bars)
		g.Expect(r.Episodes).To(Equal(int64(len(all))))
		checkBars(g, r, all, zone, bars)
		checkDurations(g, r, all)
		checkKeys(g, r, all, zone)
		// Every format has it, and the text fits.
		g.Expect(longestLine(render(g, r.Page(), "text"))).To(BeNumerically("<=", 80))
		render(g, r.Page(), "markdown")
		render(g, r.Page(), "html")
	})
}

func checkBars(g *WithT, r *Report, all []*records.Record, zone *time.Location, bars int) {
	g.Expect(len(r.Bars)).To(BeNumerically("<=", bars))
	at := 0
	covered := map[string]bool{}
	for day := from.In(zone); day.Format(time.DateOnly) <= to.Add(-1).In(zone).Format(time.DateOnly); day = day.AddDate(0, 0, 1) {
		date := day.Format(time.DateOnly)
		covered[date] = true
		if at+1 < len(r.Bars) && r.Bars[at+1].Date == date {
			at++
		}
		for _, e := range all {
			if e.ResolvedTime.In(zone).Format(time.DateOnly) == date {
				r.Bars[at].Counts[live.SeverityRank(e.Severity)]--
				r.Bars[at].Total--
			}
		}
	}
	for _, bar := range r.Bars {
		g.Expect(covered).To(HaveKey(bar.Date))
		g.Expect(bar.Total).To(BeZero())
		g.Expect(bar.Counts).To(HaveEach(BeZero()))
	}
	for _, e := range all { // for the rendering
		r.Bars[0].Counts[live.SeverityRank(e.Severity)]++
		r.Bars[0].Total++
	}
}

func checkDurations(g *WithT, r *Report, all []*records.Record) {
	implausible := int64(0)
	acknowledge, resolve := map[string][]time.Duration{}, map[string][]time.Duration{}
	counts := map[string]int64{"all": 0}
	note := func(to map[string][]time.Duration, e *records.Record, d time.Duration) {
		for _, severity := range []string{string(severities[live.SeverityRank(e.Severity)]), "all"} {
			to[severity] = append(to[severity], d)
		}
	}
	milliseconds := func(from, to time.Time) time.Duration {
		return time.Duration(to.UnixMilli()-from.UnixMilli()) * time.Millisecond
	}
	for _, e := range all {
		counts[string(severities[live.SeverityRank(e.Severity)])]++
		counts["all"]++
		if e.OpenedTime.IsZero() || e.ResolvedTime.Before(e.OpenedTime.Time) {
			implausible++
		} else {
			note(resolve, e, milliseconds(e.OpenedTime.Time, e.ResolvedTime.Time))
		}
		if !e.OpenedTime.IsZero() && !e.AcknowledgedTime.IsZero() && !e.AcknowledgedTime.Before(e.OpenedTime.Time) {
			note(acknowledge, e, milliseconds(e.OpenedTime.Time, e.AcknowledgedTime.Time))
		}
	}
	g.Expect(r.Implausible).To(Equal(implausible))
	for _, row := range r.Severities {
		g.Expect(row.Episodes).To(Equal(counts[row.Severity]), row.Severity)
		delete(counts, row.Severity)
		g.Expect(row.Acknowledge).To(Equal(naiveQuantiles(acknowledge[row.Severity])), row.Severity)
		g.Expect(row.Resolve).To(Equal(naiveQuantiles(resolve[row.Severity])), row.Severity)
	}
	g.Expect(counts).To(BeEmpty(), "each severity has a row")
	begin := time.Duration(0)
	for i, bin := range r.Histogram {
		end := time.Duration(math.MaxInt64)
		if i < len(bins) {
			end = bins[i].end
		}
		inside := func(values []time.Duration) (n int) {
			for _, value := range values {
				if value >= begin && value < end {
					n++
				}
			}
			return n
		}
		g.Expect(bin.Acknowledge).To(Equal(inside(acknowledge["all"])), bin.Label)
		g.Expect(bin.Resolve).To(Equal(inside(resolve["all"])), bin.Label)
		begin = end
	}
}

func checkKeys(g *WithT, r *Report, all []*records.Record, zone *time.Location) {
	counts, perDay := map[id]int64{}, map[id]map[string]int64{}
	for _, e := range all {
		for _, one := range []id{{e.Namespace, e.Integration, e.DedupKey}, {e.Namespace, e.Integration, ""}} {
			counts[one]++
			if perDay[one] == nil {
				perDay[one] = map[string]int64{}
			}
			perDay[one][e.ResolvedTime.In(zone).Format(time.DateOnly)]++
		}
	}
	for name, list := range map[string][]Key{"keys": r.Keys, "integrations": r.Integrations, "flapping": r.Flapping} {
		candidates := maps.Clone(counts)
		maps.DeleteFunc(candidates, func(one id, _ int64) bool {
			most := slices.Max(slices.Collect(maps.Values(perDay[one])))
			return (one.key == "") != (name == "integrations") || name == "flapping" && most < flapping
		})
		g.Expect(list).To(HaveLen(min(3, len(candidates))), name)
		for _, k := range list {
			one := id{k.Namespace, k.Integration, k.Key}
			days := slices.Collect(maps.Values(perDay[one]))
			g.Expect(k.Episodes).To(Equal(counts[one]), name)
			g.Expect(k.PeakEpisodes).To(Equal(slices.Max(days)), name)
			g.Expect(k.PeakEpisodes).To(Equal(perDay[one][k.PeakDay]), name)
			g.Expect(k.Days).To(Equal(len(days)), name)
			delete(candidates, one)
		}
		if name != "flapping" && len(list) > 0 {
			g.Expect(slices.IsSortedFunc(list, func(a, b Key) int { return cmp.Compare(b.Episodes, a.Episodes) })).To(BeTrue())
			for one, n := range candidates {
				g.Expect(n).To(BeNumerically("<=", list[len(list)-1].Episodes), "%s: %v is missing", name, one)
			}
		}
	}
}

// TestKeysBeyondTheLimit checks the error bound of the counts when there are more keys than fit.
func TestKeysBeyondTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		const limit = 8
		table, counts := newTable(limit), map[id]int64{}
		for range rapid.IntRange(0, 300).Draw(t, "episodes") {
			one := id{"n", "i", fmt.Sprint(rapid.IntRange(0, rapid.IntRange(0, 60).Draw(t, "skew")).Draw(t, "key"))}
			counts[one]++
			table.add(one, episode(from, from, from), 1, 0)
			g.Expect(len(table.entries)).To(BeNumerically("<=", limit))
		}
		for one, n := range counts {
			known := int64(0)
			if entry := table.entries[one]; entry != nil {
				known = entry.Episodes
			}
			g.Expect(known).To(And(BeNumerically("<=", n), BeNumerically(">=", n-table.missed)))
		}
	})
}

func TestAbsurdTimes(t *testing.T) {
	g := NewWithT(t)
	b := NewBuilder(from, to, time.UTC)
	at := from.Add(time.Hour)
	never, distant := time.Time{}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	b.Add(episode(at.Add(time.Hour), at, at))                                 // resolved before opened
	b.Add(episode(time.Date(-200000, 1, 1, 0, 0, 0, 0, time.UTC), never, at)) // longer than a Duration
	b.Add(episode(at, distant, at))                                           // acknowledged in the far future
	b.Add(episode(at, never, distant))                                        // outside of the period
	r := b.Report(5, 31)
	g.Expect(r.Episodes).To(BeEquivalentTo(3))
	g.Expect(r.Implausible).To(BeEquivalentTo(1))
	all := r.Severities[len(r.Severities)-1]
	g.Expect(all.Resolve.Count).To(Equal(2))
	g.Expect(all.Resolve.P90).To(Equal(time.Duration(math.MaxInt64/int64(time.Millisecond)) * time.Millisecond))
	g.Expect(all.Acknowledge.Count).To(Equal(1))
	// A period of all times has few bars all the same.
	ages := NewBuilder(never, distant, time.UTC)
	ages.Add(episode(never, never, at))
	g.Expect(len(ages.Report(5, 31).Bars)).To(BeNumerically("<=", 31))
}
