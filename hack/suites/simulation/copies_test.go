package simulation

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestALateCopyIsDeletedBeforeAnotherReplicaFoldsIt has first attempts arrive 50 seconds late, as at an API server that was frozen.
// Their retries were stored, folded and released long ago. One replica remembers that; the other one began anew 37 s before.
func TestALateCopyIsDeletedBeforeAnotherReplicaFoldsIt(t *testing.T) {
	fire := func(key int) operation {
		return post{tenant: 0, to: 0, times: 1, alerts: []alert{{key: key, status: "firing", severity: "error"}}}
	}
	story := &Story{Settings: Settings{Replicas: 2, Writes: 8}, Operations: []operation{
		fire(1), fire(2), fire(3), wait{40 * time.Second},
		trouble{replica: 0, effect: late, target: target{"create", "alertevents"}, count: 3, delay: 50 * time.Second, d: time.Second},
		fire(1), fire(2), fire(3), wait{8 * time.Second},
		kill{1}, start{1}, wait{55 * time.Second},
	}}
	for seed := range uint64(10) {
		NewWithT(t).Expect(Run(t, seed, story, Watcher{})).To(BeEmpty(), "seed %d", seed)
	}
}
