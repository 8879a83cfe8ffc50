package simulation

import (
	"slices"
	"time"

	"pgregory.net/rapid"
)

// theme is how a story begins that needs more than a few operations, and the pause after each of its chapters: so what takes
// minutes happens before the end of the story.
type theme struct {
	weight int
	draw   func(d *drawer, t *rapid.T, s *Story) (first []operation)
	pause  time.Duration
}

// themes are those of stories. Most have none: the others take several times as long.
var themes = []theme{
	{40, func(*drawer, *rapid.T, *Story) []operation { return nil }, 0},
	{4, (*drawer).brokenWebhook, 0},
	{3, (*drawer).lateCreates, 20 * time.Second},
	{3, (*drawer).olderDefinitions, 20 * time.Second},
	{2, (*drawer).fullNamespace, 0},
	{2, (*drawer).fewResolved, 0},
	{1, (*drawer).stayingQuota, 0},
	{1, (*drawer).keyedFlood, 135 * time.Second},
	{2, (*drawer).flappingKeys, keptFor + 10*time.Second},
}

// drawTheme draws the beginning of a story, and what comes after each chapter.
func (d *drawer) drawTheme(t *rapid.T, s *Story) (first, after []operation) {
	var weighted []theme
	for i, theme := range themes {
		weighted = append(weighted, slices.Repeat(themes[i:i+1], theme.weight)...)
	}
	if olderProgram != nil {
		return d.rolls(t, s), nil
	}
	drawn := oneOf(t, "theme", weighted...)
	if drawn.pause > 0 {
		after = []operation{wait{drawn.pause}}
	}
	return drawn.draw(d, t, s), after
}

// written are the writes that an admission webhook may concern.
var written = []target{
	{"update", "incidents/status"}, {"create", "alertevents"}, {"delete", "alertevents"}, {"create", "incidents"}, {"", "incidents"},
	{"", "alertevents"},
}

// brokenWebhook draws a webhook of one namespace that does not work, while senders post to both.
func (d *drawer) brokenWebhook(t *rapid.T, _ *Story) []operation {
	salt := d.salt(t)
	operations := []operation{
		wait{45 * time.Second},
		breakWebhook{
			tenant: 0, target: oneOf(t, "target", written...), hangs: rapid.Bool().Draw(t, "hangs"),
			d: oneOf(t, "broken", 40*time.Second, 2*time.Minute, 0),
		},
		burst{tenant: 0, count: rapid.IntRange(10, 60).Draw(t, "count"), keys: 5, over: 5 * time.Second, salt: salt},
	}
	for range 5 {
		operations = append(operations, wait{2 * time.Second},
			post{tenant: 1, to: d.replica(t), times: 1, alerts: rapid.SliceOfN(rapid.Custom(d.alert), 1, 3).Draw(t, "alerts")})
	}
	return append(operations, wait{12 * time.Second})
}

// lateCreates draws creates of AlertEvents that take effect after their client has given up, while replicas begin anew.
func (d *drawer) lateCreates(t *rapid.T, _ *Story) []operation {
	writer := d.replica(t)
	operations := []operation{
		wait{40 * time.Second},
		trouble{
			replica: writer, effect: late, target: target{"create", "alertevents"}, count: rapid.IntRange(1, 4).Draw(t, "calls"),
			delay: oneOf(t, "delay", 40*time.Second, 90*time.Second, longestDelay), d: 5 * time.Second,
		},
	}
	for range rapid.IntRange(1, 4).Draw(t, "posts") {
		operations = append(operations, post{
			tenant: 0, to: writer, times: 1, alerts: []alert{d.alert(t)}, key: oneOf(t, "key", "", "", "k1"),
		})
	}
	operations = append(operations, wait{8 * time.Second})
	switch rapid.IntRange(0, 3).Draw(t, "anew") {
	case 0:
		operations = append(operations, kill{writer}, start{writer})
	case 1:
		other := (writer + 1) % d.replicas
		operations = append(operations, kill{other}, start{other})
	default:
	}
	return append(operations, d.wait(t))
}

// olderDefinitions draws a rollback of the CustomResourceDefinitions, which replicas notice within a minute, while senders go on.
func (d *drawer) olderDefinitions(t *rapid.T, s *Story) []operation {
	s.AutoResolve = rapid.Bool().Draw(t, "autoResolve")
	operations := []operation{
		wait{40 * time.Second}, rollBack{oneOf(t, "for", 80*time.Second, 3*time.Minute, 5*time.Minute)},
	}
	for i := range rapid.IntRange(4, 16).Draw(t, "posts") {
		alerts := []alert{{key: rapid.IntRange(1, 2).Draw(t, "key"), status: "firing", severity: "error"}}
		operations = append(operations, post{tenant: 0, to: i, times: 1, alerts: alerts}, wait{10 * time.Second})
		if rapid.IntRange(0, 3).Draw(t, "report") == 0 {
			operations = append(operations, d.report(t))
		}
	}
	return operations
}

// fullNamespace draws a namespace that has as many Incidents as it may have, each of which ends when it is quiet.
func (d *drawer) fullNamespace(t *rapid.T, s *Story) []operation {
	s.MaxIncidents, s.Forbidden, s.AutoResolve = 8, false, true
	var operations []operation
	for _, key := range rapid.Permutation([]int{0, 1, 2, 3, 4}).Draw(t, "keys") {
		operations = append(operations,
			post{tenant: 0, to: d.replica(t), times: 1, alerts: []alert{{key: key, status: "firing", severity: "error"}}},
			wait{time.Second})
	}
	return operations
}

// fewResolved draws a namespace that may have four Resolved Incidents, whose others are evicted, and leaders that take long to
// look at each of them again: meanwhile some of them are reopened.
func (d *drawer) fewResolved(t *rapid.T, s *Story) []operation {
	s.MaxIncidents, s.Forbidden, s.AutoResolve = 8, false, false
	return evictions(s.Replicas, oneOf(t, "delay", 500*time.Millisecond, time.Second, 200*time.Millisecond))
}

// evictions open nine Incidents in turn for three minutes. The one that was resolved first is the next to be evicted, and the
// next to be reopened. Each read of an Incident takes so long.
func evictions(replicas int, delay time.Duration) (operations []operation) {
	for r := range replicas {
		operations = append(operations,
			trouble{replica: r, effect: slow, target: target{"get", "incidents"}, delay: delay, d: 3 * time.Minute})
	}
	say := func(key int, status string) operation {
		return post{times: 1, alerts: []alert{{key: key % 9, status: status, severity: "error"}}}
	}
	for i := range 45 {
		operations = append(operations, say(i, "firing"), wait{3 * time.Second}, say(i+8, "resolved"), wait{time.Second})
	}
	return operations
}

// stayingQuota draws a quota of a namespace that stays to the end.
func (d *drawer) stayingQuota(t *rapid.T, _ *Story) []operation {
	resource := oneOf(t, "resource", "incidents", "alertevents")
	return []operation{
		wait{40 * time.Second}, quota{tenant: 0, resource: resource, more: rapid.Int64Range(0, 2).Draw(t, "more")},
		d.burst(t), d.wait(t), d.burst(t),
	}
}

// keyedFlood draws many requests with idempotency keys, which are all repeated.
func (d *drawer) keyedFlood(t *rapid.T, _ *Story) []operation {
	return []operation{wait{10 * time.Second}, flood{
		tenant: d.tenant(t), count: rapid.IntRange(5, 150).Draw(t, "count"),
		over: oneOf(t, "over", 5*time.Second, time.Minute), salt: d.salt(t),
	}}
}
