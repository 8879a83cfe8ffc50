package simulation

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestARequestedSilenceLastsAsLongAsAsked takes over between the requests: a new leader finds the silences of the former one.
func TestARequestedSilenceLastsAsLongAsAsked(t *testing.T) {
	g := NewWithT(t)
	var lease leaseLook
	var silenced []int // in how many Alertmanagers, at each look
	look := act{"look at the silences", func(w *world) {
		n := 0
		for _, a := range w.alertmanagers {
			for _, told := range a.told() {
				if told.silenced {
					n++
				}
			}
		}
		silenced = append(silenced, n)
	}}
	endByHand := act{"end all silences in Alertmanager 1", func(w *world) {
		a := w.alertmanagers[1]
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, s := range a.silences {
			s.EndsAt = time.Now()
		}
	}}
	takeover := lease.end((*replica).kill)
	request := func(lasts time.Duration) operation {
		return report{tenant: 0, key: 1, status: "silenced", lasts: lasts}
	}
	some := wait{35 * time.Second} // silences are compared every ten seconds, and end in two steps
	story := &Story{Settings: Settings{Replicas: 3, Elect: true, Writes: 8, Forward: true}, Operations: []operation{
		lease.look(), wait{5 * time.Second},
		post{tenant: 0, times: 1, alerts: []alert{{key: 1, status: "firing", severity: "error"}}}, some, look,
		request(2 * time.Minute), some, look, takeover, some, look, some, some, look,
		request(time.Hour), some, look, endByHand, some, look,
		request(time.Hour), some, look, request(0), some, look,
		request(time.Hour), some, look, post{tenant: 0, times: 1, alerts: []alert{{key: 1, status: "resolved"}}}, some, look,
	}}
	g.Expect(Run(t, 1, story, Watcher{})).To(BeEmpty())
	g.Expect(silenced).To(Equal([]int{
		0,    // nobody has asked
		2, 2, // for two minutes, also of the next leader
		0,    // after it
		2, 0, // until somebody ends it in one Alertmanager
		2, 0, // until the one who asked ends it
		2, 0, // until the Incident is resolved
	}))
}
