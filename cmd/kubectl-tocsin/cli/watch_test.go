package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/live"
)

// Each change that a row shows is a line in a pipe, and nothing else.
func TestAPipedWatchPrintsWhatChanges(t *testing.T) {
	g := NewWithT(t)
	incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Name: "disk", UID: "1"}}
	incident.Status = v1alpha1.IncidentStatus{
		State: v1alpha1.IncidentOpen, AlertCount: 1, Alert: v1alpha1.AlertContent{Severity: v1alpha1.SeverityError, Title: "Disk full"},
	}
	var changes []live.Change
	then := func(change func(*v1alpha1.Incident)) {
		incident = incident.DeepCopy()
		change(incident)
		changes = append(changes, live.Change{Incident: incident})
	}
	then(func(*v1alpha1.Incident) {})
	then(func(i *v1alpha1.Incident) { i.Status.Assignee = &v1alpha1.Assignee{Name: "alex"} })
	then(func(i *v1alpha1.Incident) { i.Status.Ledger.ResourceVersion = "7" }) // no row shows it
	then(func(i *v1alpha1.Incident) {
		i.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue}}
		i.Status.Acknowledgement = &v1alpha1.Acknowledgement{By: "maria", Severity: v1alpha1.SeverityError}
	})
	then(func(i *v1alpha1.Incident) { i.Status.Acknowledgement.By = "zoe" })
	changes = append(changes, live.Change{Incident: incident, Deleted: true})
	resolved := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Name: "not-shown", UID: "2"}}
	resolved.Status.State = v1alpha1.IncidentResolved
	changes = append(changes, live.Change{Incident: resolved, Deleted: true})

	var out bytes.Buffer
	p := newPlugin(genericiooptions.NewTestIOStreamsDiscard())
	p.screen = newScreen(&out, colorNever)
	o := &getOptions{plugin: p, output: newOutputFlag(), filter: filter{states: []string{"Open"}}}
	o.output.noHeaders = true
	feed := live.Follow(newListServer(0), "", pruneForTable, func(live.Change) {})
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan live.Change)
	go func() {
		for _, change := range changes {
			sent <- change
		}
		cancel()
	}()
	g.Expect(o.printLines(ctx, feed, sent)).To(Succeed())
	var lines []string
	for line := range strings.Lines(out.String()) {
		cells := strings.Fields(line)
		lines = append(lines, strings.Join([]string{cells[0], cells[1], cells[3], cells[7]}, " ")) // name, state, acknowledged, assignee
	}
	g.Expect(lines).To(Equal([]string{
		"disk Open - -", "disk Open - alex", "disk Open maria alex", "disk Open zoe alex", "disk Deleted zoe alex",
	}))
	g.Expect(incident.Status.State).To(Equal(v1alpha1.IncidentOpen), "what the feed has is not modified")
}
