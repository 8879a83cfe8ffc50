package simulation

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
)

// leaseLook notes who holds the lease, and how often it changed hands.
type leaseLook struct {
	holder      string // the name of the replica
	transitions int64
}

// look is the operation that begins to look.
func (l *leaseLook) look() operation {
	return act{"look at the lease", func(w *world) {
		w.server.OnCommit(func(c apiserver.Commit) {
			spec, _ := c.Object["spec"].(map[string]any)
			if !strings.HasPrefix(c.Resource, "leases") || spec["holderIdentity"] == "" {
				return
			}
			l.holder = c.Client
			l.transitions, _ = spec["leaseTransitions"].(int64)
		})
	}}
}

// end is the operation that ends the leader.
func (l *leaseLook) end(how func(*replica)) operation {
	return act{"end the leader", func(w *world) {
		for _, r := range w.replicas {
			if r.name == l.holder {
				how(r)
			}
		}
	}}
}

// TestTakeovers ends the leader in each of two ways, and has another one fold an alert that comes right after that.
func TestTakeovers(t *testing.T) {
	for sentence, test := range map[string]struct {
		end    func(*replica)
		within time.Duration
	}{
		"killed":     {(*replica).kill, 5 * time.Second},
		"terminated": {(*replica).terminate, time.Second},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			var lease leaseLook
			var ended time.Time
			var folded []time.Duration
			operations := []operation{lease.look(), wait{5 * time.Second}}
			const ends = 4
			for key := range ends {
				operations = append(operations,
					wait{10*time.Second + time.Duration(key)*250*time.Millisecond}, // at several phases of the renewals
					lease.end(func(r *replica) { ended = time.Now(); test.end(r) }),
					post{tenant: 0, times: 1, alerts: []alert{{key: key, status: "firing", severity: "error"}}},
					wait{10 * time.Second}, start{0}, start{1}, start{2},
				)
			}
			story := &Story{Settings: Settings{Replicas: 3, Elect: true, Writes: 8}, Operations: operations}
			found := Run(t, 1, story, Watcher{Written: func(incident *v1alpha1.Incident) {
				if incident.Status.AlertCount > 0 && !ended.IsZero() {
					folded = append(folded, time.Since(ended))
					ended = time.Time{}
				}
			}})
			g.Expect(found).To(BeEmpty())
			g.Expect(folded).To(HaveLen(ends))
			t.Log(folded)
			g.Expect(folded).To(HaveEach(BeNumerically("<", test.within)))
		})
	}
}

// TestNoTermEndsWhileLeasesAreSlow has requests for the lease take two seconds each, for ten minutes.
func TestNoTermEndsWhileLeasesAreSlow(t *testing.T) {
	g := NewWithT(t)
	var lease leaseLook
	operations := []operation{lease.look(), wait{5 * time.Second}}
	for i := range 3 {
		operations = append(operations, trouble{
			replica: i, effect: slow, target: target{"", "leases"}, delay: 2 * time.Second, d: 10 * time.Minute,
		})
	}
	first := int64(0)
	operations = append(operations, act{"note the term", func(*world) { first = lease.transitions }}, wait{10 * time.Minute})
	story := &Story{Settings: Settings{Replicas: 3, Elect: true, Writes: 8}, Operations: operations}
	g.Expect(Run(t, 1, story, Watcher{})).To(BeEmpty())
	g.Expect(first).To(BeEquivalentTo(1))
	g.Expect(lease.transitions).To(BeEquivalentTo(1))
}
