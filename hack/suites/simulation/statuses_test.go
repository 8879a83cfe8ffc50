package simulation

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestStatusesAreTrue plays a story in which alerts cannot be folded for a while, both Alertmanagers are away, and the leader dies.
// A minute without any fault follows in which two alerts come: the time of the second is written a minute after that of the first.
func TestStatusesAreTrue(t *testing.T) {
	g := NewWithT(t)
	operations := []operation{
		breakAlertmanager{0, isAway, false, 100 * time.Second}, breakAlertmanager{1, answers503, false, 100 * time.Second},
		deny{"status of Incidents", 0, 20 * time.Second},
	}
	operations = append(operations, say("firing", "firing")...)
	operations = append(operations, wait{90 * time.Second}, kill{0}, start{0}, wait{90 * time.Second})
	operations = append(operations, say("firing", "firing")...)
	operations = append(operations, wait{85 * time.Second})
	story := &Story{Settings: Settings{Replicas: 2, Elect: true, Writes: 8, Forward: true}, Operations: operations}
	seen := map[string]bool{}
	found := Run(t, 1, story, Watcher{Conditions: func(kind, reason string) { seen[kind+" "+reason] = true }})
	g.Expect(found).To(BeEmpty())
	for _, condition := range []string{
		"AlertsFolded IncidentRejected", "AlertsFolded Folding", "Forwarded AlertmanagersFailing", "Forwarded Forwarding", "Ready Accepting",
	} {
		g.Expect(seen).To(HaveKey(condition))
	}
}

// TestAConditionThatEndsQuietlyIsCorrected has alerts wait for longer than a minute, after which nothing of their integration
// changes but that they are folded.
func TestAConditionThatEndsQuietlyIsCorrected(t *testing.T) {
	g := NewWithT(t)
	operations := append([]operation{deny{"status of Incidents", 0, 100 * time.Second}}, say("firing")...)
	story := &Story{Settings: calm.Settings, Operations: append(operations, wait{120 * time.Second})}
	g.Expect(Run(t, 1, story, Watcher{})).To(BeEmpty())
}
