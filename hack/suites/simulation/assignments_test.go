package simulation

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// TestAnAssignmentSurvivesLeadersAndNoEpisode ends the leader between the reports: the oracle judges each status as well.
func TestAnAssignmentSurvivesLeadersAndNoEpisode(t *testing.T) {
	g := NewWithT(t)
	var lease leaseLook
	var told []string
	fires := post{tenant: 0, times: 1, alerts: []alert{{key: 1, status: "firing", severity: "error"}}}
	resolves := post{tenant: 0, times: 1, alerts: []alert{{key: 1, status: "resolved"}}}
	assign := func(to string) operation { return report{tenant: 0, key: 1, status: "assigned", to: to} }
	operations := []operation{lease.look(), wait{5 * time.Second}}
	for _, one := range []operation{fires, assign("maria"), assign("alex"), resolves, fires, assign("maria")} {
		operations = append(operations, one, wait{300 * time.Millisecond}, lease.end((*replica).kill), wait{10 * time.Second},
			start{0}, start{1}, start{2}, wait{5 * time.Second})
	}
	story := &Story{Settings: Settings{Replicas: 3, Elect: true, Writes: 8}, Operations: operations}
	g.Expect(Run(t, 1, story, Watcher{Written: func(incident *v1alpha1.Incident) {
		status := &incident.Status
		if status.Episode == nil {
			return
		}
		assignee := ""
		if status.Assignee != nil {
			assignee = status.Assignee.Name
		}
		now := fmt.Sprint(status.Episode.Number, " ", status.State, " ", assignee)
		if len(told) == 0 || told[len(told)-1] != now {
			told = append(told, now)
		}
	}})).To(BeEmpty())
	g.Expect(told).To(Equal([]string{"1 Open ", "1 Open maria", "1 Open alex", "1 Resolved alex", "2 Open ", "2 Open maria"}))
}
