package simulation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
)

// TestAWebhookOfOneNamespaceConcernsNoOther has the admission webhook of a tenant fail for ten minutes, in which nobody else posts and
// the sender of the other tenant goes quiet: that is missed, and the lease stays where it is.
func TestAWebhookOfOneNamespaceConcernsNoOther(t *testing.T) {
	for _, what := range []target{{"create", "alertevents"}, {"update", "incidents/status"}} {
		t.Run(fmt.Sprint(what), func(t *testing.T) {
			g := NewWithT(t)
			var holders, missed []string
			looking := false
			story := &Story{Settings: Settings{Replicas: 2, Elect: true, Writes: 8}, Operations: []operation{
				act{"serve two namespaces", func(w *world) {
					for i, r := range w.replicas {
						r.args = []string{"--watch-namespaces=" + tenantName(0) + "," + tenantName(1)}
						kill{i}.do(w)
						start{i}.do(w)
					}
				}},
				wait{2 * time.Minute},
				act{"look at the lease", func(w *world) {
					looking = true
					w.server.OnCommit(func(c apiserver.Commit) {
						spec, _ := c.Object["spec"].(map[string]any)
						holder := fmt.Sprint(spec["holderIdentity"])
						if looking && strings.HasPrefix(c.Resource, "leases") && (len(holders) == 0 || holders[len(holders)-1] != holder) {
							holders = append(holders, holder)
						}
					})
				}},
				breakWebhook{0, what, false, 10 * time.Minute},
				post{tenant: 0, to: 0, times: 1, alerts: []alert{{key: 1, status: "firing", severity: "error"}}},
				hush{1, time.Hour}, wait{10 * time.Minute},
				act{"stop looking", func(w *world) { looking = false; w.judge.watchNoMore() }},
			}}
			Run(t, 1, story, Watcher{Missed: func(namespace string, _ time.Duration) { missed = append(missed, namespace) }})
			g.Expect(missed).To(ContainElement(tenantName(1)), "its sender has pinged nobody")
			g.Expect(holders).To(HaveLen(1), "no other replica could do better")
		})
	}
}

// TestOlderDefinitionsAreNoSilence rolls the CustomResourceDefinitions back for six minutes, while the senders go on: nothing ends, and
// no heartbeat is missed, for want of what they could not deliver.
func TestOlderDefinitionsAreNoSilence(t *testing.T) {
	g := NewWithT(t)
	var operations []operation
	for i := range 48 {
		if i == 12 {
			operations = append(operations, rollBack{6 * time.Minute})
		}
		operations = append(operations,
			post{tenant: 0, to: i, times: 1, alerts: []alert{{key: 1, status: "firing", severity: "error"}}}, wait{10 * time.Second})
	}
	ended, atTheEnd := 0, 0 // Incidents resolved, and heartbeats missed
	operations = append(operations, act{"look", func(*world) { atTheEnd = ended }})
	know := 0 // processes that know of the older definitions, which the judge of their writes goes by
	operations = slices.Insert(operations, len(operations)/2, operation(act{"ask", func(w *world) {
		for _, r := range w.replicas {
			if r.process.isOutdated(0) {
				know++
			}
		}
	}}))
	found := Run(t, 1, &Story{
		Settings: Settings{Replicas: 2, Elect: true, Writes: 8, AutoResolve: true}, Operations: operations,
	}, Watcher{
		Written: func(incident *v1alpha1.Incident) {
			if incident.Status.State == v1alpha1.IncidentResolved {
				ended++
			}
		},
		Missed: func(string, time.Duration) { ended++ },
	})
	g.Expect(found).To(BeEmpty())
	g.Expect(atTheEnd).To(BeZero())
	g.Expect(know).To(Equal(2))
}
