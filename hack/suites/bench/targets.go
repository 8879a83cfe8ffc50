package main

import (
	"fmt"
	"io"
	"strings"
)

// target is a figure that the project wants to reach.
type target struct {
	name string
	// scenarios begin with this name; the worst of them counts.
	scenarios string
	value     func(*result) float64
	least     float64 // the target is at least this
	most      float64 // or, if it is above 0, at most this
}

func targets() []target {
	plain := func(r *result) float64 { return r.Ratio }
	return []target{
		{"1 sender, one key: accepted / plain creates", "closed-1-shared", plain, 0.7, 0},
		{"1 sender, new keys: accepted / plain creates", "closed-1-unique", plain, 0.45, 0},
		{"8 senders: accepted / plain creates", "closed-8-", plain, 1.5, 0},
		{"64 senders: accepted / Alertmanager", "closed-64-", (*result).alertmanagerRatio, 0.7, 0},
		{"256 senders: accepted / Alertmanager", "closed-256-", (*result).alertmanagerRatio, 1, 0},
		{"64 senders, new keys: Incidents folded / plain creates", "closed-64-unique", (*result).drainRatio, 0.45, 0},
		{"64 senders, 1,000 keys: fold lag p50 in s", "closed-64-rotating", func(r *result) float64 { return r.LagP50 }, 0, 4},
	}
}

// judged is a target with the figure that was measured.
type judged struct {
	target
	measured float64
}

func (j judged) bound() string {
	if j.most > 0 {
		return fmt.Sprintf("≤ %g", j.most)
	}
	return fmt.Sprintf("≥ %g", j.least)
}

func (j judged) verdict() string {
	if j.most > 0 && j.measured > j.most || j.measured < j.least {
		return "no"
	}
	return "yes"
}

// judge compares the results with the targets. Targets of which nothing was measured are left out.
func judge(results []*result) []judged {
	var list []judged
	for _, t := range targets() {
		j := judged{target: t}
		found := false
		for _, r := range results {
			value := t.value(r)
			if !strings.HasPrefix(r.Name, t.scenarios) || value == 0 {
				continue
			}
			if !found || (t.most > 0) == (value > j.measured) {
				j.measured = value
			}
			found = true
		}
		if found {
			list = append(list, j)
		}
	}
	return list
}

func printTargets(w io.Writer, results []*result) {
	for _, j := range judge(results) {
		_, _ = fmt.Fprintf(w, "target: %-58s %7s, measured %6.2f: %s\n", j.name, j.bound(), j.measured, j.verdict())
	}
}
