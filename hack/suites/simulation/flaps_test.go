package simulation

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// TestAKeyThatFlapsIsPagedOnce has a key open and end five times, while leaders die: in between, and right before the last end is
// due. People get a page and an all-clear of the first episode, and one of all others.
func TestAKeyThatFlapsIsPagedOnce(t *testing.T) {
	g := NewWithT(t)
	var lease leaseLook
	key := types.NamespacedName{Namespace: tenantName(0), Name: v1alpha1.IncidentName(integrationName, keyName(0))}
	var begun, ended []int
	look := act{"look at the pager", func(w *world) {
		w.pager.mu.Lock()
		defer w.pager.mu.Unlock()
		begun, ended = append(begun, w.pager.begun[key]), append(ended, w.pager.ended[key])
	}}
	endLeader := lease.end((*replica).kill)
	say := func(status string) operation {
		return post{times: 1, alerts: []alert{{key: 0, status: status, severity: "error"}}}
	}
	flap := repeated(2, func(int) []operation {
		return []operation{say("firing"), wait{keptFor / 2}, say("resolved"), wait{keptFor / 2}}
	})
	revive := []operation{endLeader, wait{10 * time.Second}, start{0}, start{1}, wait{10 * time.Second}}
	story := &Story{Settings: Settings{Replicas: 2, Elect: true, Writes: 8, KeepFiring: true}, Operations: slices.Concat(
		[]operation{lease.look(), wait{time.Minute}}, flap, []operation{look}, revive, flap,
		[]operation{look, say("firing"), wait{time.Second}}, revive,
		[]operation{say("resolved"), wait{keptFor - 3*time.Second}, look, endLeader, wait{tellTime}, look},
	)}
	g.Expect(Run(t, 1, story, Watcher{})).To(BeEmpty())
	g.Expect(begun).To(Equal([]int{2, 2, 2, 2}))
	g.Expect(ended).To(Equal([]int{1, 1, 1, 2}))
}
