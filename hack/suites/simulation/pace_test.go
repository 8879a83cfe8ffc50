package simulation

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestTwoLeadersDoNotWriteAsFastAsTheyCan has two replicas lead at once. Only one of them sees that the namespace is full, so they
// do not agree on a condition.
func TestTwoLeadersDoNotWriteAsFastAsTheyCan(t *testing.T) {
	open := func(key int) operation {
		return post{times: 1, alerts: []alert{{key: key, status: "firing", severity: "error"}}}
	}
	operations := []operation{
		wait{5 * time.Second},
		trouble{replica: 1, effect: stall, target: target{"watch", "incidents"}, d: 40 * time.Second},
	}
	for key := range 9 {
		operations = append(operations, open(key), wait{time.Second})
	}
	story := &Story{
		Settings: Settings{Replicas: 2, Writes: 8, MaxIncidents: 8}, Operations: append(operations, wait{30 * time.Second}),
	}
	NewWithT(t).Expect(Run(t, 1, story, Watcher{})).To(BeEmpty())
}
