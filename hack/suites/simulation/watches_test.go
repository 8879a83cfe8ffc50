package simulation

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestWatchesThatBreakTheirPromise has the watches of a store misbehave as those of etcd have: events get lost (etcd-io/etcd
// issues 17529, 18089, 19179), all of some seconds if a compacted watch goes on, come twice (17247), come in another order, or
// come again after newer ones (15271). Alerts fire and resolve meanwhile, and the leader ends afterwards.
func TestWatchesThatBreakTheirPromise(t *testing.T) {
	for _, breach := range []effect{drop, repeat, swap, rewind} {
		for _, resource := range []string{"alertevents", "incidents", "webhookintegrations", "heartbeats", ""} {
			t.Run(fmt.Sprintf("the watch of %q: %s", resource, breach), func(t *testing.T) {
				t.Parallel()
				for _, count := range []int{1, 0} {
					found := Run(t, 1, breachStory(breach, resource, count), Watcher{})
					NewWithT(t).Expect(found).To(BeEmpty(), "%d events", count)
				}
			})
		}
	}
}

// breachStory has the watches of all replicas break their promise for so many events each, 0: all within four seconds, while
// alerts fire and resolve.
func breachStory(breach effect, resource string, count int) *Story {
	operations := []operation{wait{40 * time.Second}}
	say := func(key int, status string) {
		operations = append(operations,
			post{to: key, times: 1, alerts: []alert{{key: key, status: status, severity: "error"}}}, wait{400 * time.Millisecond})
	}
	for key := range 3 {
		say(key, "firing")
	}
	for replica := range 2 {
		operations = append(operations,
			trouble{replica: replica, effect: breach, target: target{"watch", resource}, count: count, d: 4 * time.Second})
	}
	for key := range 5 {
		say(key, "firing")
		say((key+4)%5, "resolved")
	}
	operations = append(operations, wait{20 * time.Second})
	for key := range 5 {
		say(key, "firing")
		say(key, "resolved")
	}
	operations = append(operations, wait{30 * time.Second}, terminate{0}, wait{10 * time.Second}, start{0})
	for key := range 5 {
		say(key, "firing")
	}
	return &Story{Settings: Settings{Replicas: 2, Elect: true, Writes: 8}, Operations: operations}
}
