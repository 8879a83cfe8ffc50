package simulation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// fires is a post of a firing alert.
func fires(tenant, key, to int) operation {
	return post{tenant: tenant, to: to, times: 1, alerts: []alert{{key: key, status: "firing", severity: "error"}}}
}

// repeated returns operations n times, made with the number of each time.
func repeated(n int, operations func(i int) []operation) (all []operation) {
	for i := range n {
		all = append(all, operations(i)...)
	}
	return all
}

// TestThemes plays a story of each theme. The judge knows what is right in it.
func TestThemes(t *testing.T) {
	folding := target{"update", "incidents/status"}
	storm := burst{tenant: 0, count: 300, keys: 5, over: 60 * time.Second, salt: 7}
	others := repeated(12, func(i int) []operation { return []operation{fires(1, i%5, i), wait{3 * time.Second}} })
	for sentence, story := range map[string]*Story{
		"a webhook that fails for the statuses of a namespace delays no other one": {Settings{Replicas: 2, Elect: true, Writes: 8},
			slices.Concat([]operation{wait{time.Minute}, breakWebhook{0, folding, false, 0}, storm}, others)},
		"a webhook that hangs for the statuses of a namespace delays no other one": {Settings{Replicas: 2, Elect: true, Writes: 8},
			slices.Concat([]operation{wait{time.Minute}, breakWebhook{0, folding, true, 0}, storm}, others)},
		"a create that takes effect after its AlertEvent is gone does not count": {Settings{Replicas: 2, Writes: 8},
			slices.Concat([]operation{
				wait{40 * time.Second},
				trouble{replica: 0, effect: late, target: target{"create", "alertevents"}, count: 2, delay: 100 * time.Second, d: time.Second},
				fires(0, 1, 0), fires(0, 2, 0), wait{8 * time.Second}, kill{1}, start{1}, wait{100 * time.Second},
			})},
		"nothing is resolved or missed while older definitions keep alerts away": {
			Settings{Replicas: 2, Elect: true, Writes: 8, AutoResolve: true},
			slices.Concat(
				repeated(6, func(i int) []operation { return []operation{fires(0, 1, i), wait{10 * time.Second}} }),
				[]operation{rollBack{5 * time.Minute}},
				repeated(12, func(i int) []operation { return []operation{fires(0, 1, i), wait{10 * time.Second}} }),
				[]operation{report{tenant: 0, key: 1, status: "acknowledged"}},
				repeated(24, func(i int) []operation { return []operation{fires(0, 1, i), wait{10 * time.Second}} }),
			)},
		"a namespace at its limit empties": {Settings{Replicas: 2, Elect: true, Writes: 8, MaxIncidents: 8, AutoResolve: true},
			repeated(5, func(i int) []operation { return []operation{fires(0, i, i), wait{time.Second}} })},
		"what is reopened while others are evicted stays": {Settings{Replicas: 2, Elect: true, Writes: 8, MaxIncidents: 8},
			evictions(2, 500*time.Millisecond)},
		"a repeated request counts once until its key is forgotten": {Settings{Replicas: 2, Elect: true, Writes: 8},
			[]operation{flood{0, 150, time.Minute, 3}, wait{14 * time.Minute}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			NewWithT(t).Expect(Run(t, 1, story, Watcher{})).To(BeEmpty(), fmt.Sprint(story))
		})
	}
}
