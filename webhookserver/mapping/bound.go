package mapping

import (
	"slices"
	"strings"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// bound keeps all alerts together within maxContentTotal, or maxGroupTotal. Only a mapping that puts the same large thing into
// many alerts comes near it.
func (r *reader) bound(result *Result) {
	total := maxContentTotal
	if Groups(r.program.preset) {
		total = maxGroupTotal
	}
	allowed := total
	for i := range result.Alerts {
		allowed -= perAlert + len(`\u003c`)*len(result.Alerts[i].DedupKey) // the JSON of <
	}
	allowed = max(allowed, minContentTotal)
	if len(result.Alerts)*v1alpha1.MaxContentBytes <= allowed {
		return // they are few, and each is within its bound
	}
	sizes, size := make([]int, len(result.Alerts)), 0
	for i := range result.Alerts {
		sizes[i] = result.Alerts[i].EncodedSize()
		size += sizes[i]
	}
	if size <= allowed {
		return
	}
	limit := share(sizes, allowed)
	for i := range result.Alerts {
		if sizes[i] > limit {
			result.Alerts[i].shrink(limit, total)
		}
	}
}

// share returns the most that each may have so that all together have no more than total: what is smaller
// leaves its rest to the others.
func share(sizes []int, total int) int {
	sorted := slices.Sorted(slices.Values(sizes))
	for i, size := range sorted {
		each := total / (len(sorted) - i)
		if size > each {
			return each
		}
		total -= size
	}
	return total
}

// shrink brings the content down to limit bytes: the largest entries of the bags go first, then the texts
// are cut. total is the bound of all alerts, for the warning.
func (a *Alert) shrink(limit, total int) {
	dropped := a.TrimTo(limit)
	cut := a.EncodedSize() > limit
	if cut {
		for _, text := range []*string{&a.Title, &a.Description, &a.Type, &a.Link, &a.Hostname, &a.Region} {
			*text = payload.CutBytes(*text, limit/16)
		}
	}
	payload.DropEmptyBags(&a.AlertContent)
	switch {
	case len(dropped) > 0:
		a.warn("", "the alerts of the payload are larger than %d bytes as stored; dropped from this one: %s",
			total, oneLine(strings.Join(dropped, ", ")))
	case cut:
		a.warn("", "the alerts of the payload are larger than %d bytes as stored; the texts of this one were cut", total)
	}
}
