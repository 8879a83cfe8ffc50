package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/silences"
)

// assignServer has an Incident, and keeps what is reported. Its user is maria.
type assignServer struct {
	namesServer
	reports []v1alpha1.Report
}

func (s *assignServer) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	switch object := object.(type) {
	case *authenticationv1.SelfSubjectReview:
		object.Status.UserInfo.Username = "maria"
	case *v1alpha1.AlertEvent:
		s.reports = append(s.reports, *object.Spec.Report)
	}
	return nil
}

func TestAssign(t *testing.T) {
	open := v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen}
	assigned := v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, Assignee: &v1alpha1.Assignee{Name: "alex"}}
	for sentence, test := range map[string]struct {
		status  v1alpha1.IncidentStatus
		args    []string
		report  *v1alpha1.Report
		says    string
		problem string
	}{
		"to oneself": {open, nil, &v1alpha1.Report{Status: v1alpha1.AlertAssigned, Assignee: "maria"}, "will be assigned to maria", ""},
		"to somebody": {open, []string{"--to", "alex", "--comment", "hurry"},
			&v1alpha1.Report{Status: v1alpha1.AlertAssigned, Assignee: "alex", Comment: "hurry"}, "will be assigned to alex", ""},
		"to who has it already": {assigned, []string{"--to", "alex"}, nil, "already assigned to alex", ""},
		"to nobody":             {assigned, []string{"--unassign"}, &v1alpha1.Report{Status: v1alpha1.AlertUnassigned}, "will be unassigned", ""},
		"to nobody again":       {open, []string{"--unassign"}, nil, "not assigned", ""},
		"of a Resolved Incident": {v1alpha1.IncidentStatus{State: v1alpha1.IncidentResolved}, nil, nil, "",
			"disk is resolved and cannot be assigned"},
		"to a name that nobody sees": {open, []string{"--to", "\u202e"}, nil, "", "the name of a person has 1 to 256 printable characters"},
		"to a name that is too long": {open, []string{"--to", strings.Repeat("a", 257)}, nil, "", "1 to 256 printable characters"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			var out bytes.Buffer
			p := newPlugin(genericiooptions.NewTestIOStreamsDiscard())
			p.screen = &screen{out: &out}
			server := &assignServer{namesServer: namesServer{status: test.status}}
			o := p.newAct(v1alpha1.AlertAssigned)
			command := &cobra.Command{}
			command.Flags().StringVar(&o.Message, "comment", "", "")
			o.addAssignment(command)
			g.Expect(command.ParseFlags(test.args)).To(Succeed())
			command.PreRun(command, nil)
			o.wait = false
			err := o.run(t.Context(), &cluster{WithWatch: server, namespace: "shop"}, []string{"disk"})
			if test.problem != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.problem)))
				g.Expect(server.reports).To(BeEmpty())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out.String()).To(Equal("incident.tocsin.dev/disk " + test.says + "\n"))
			var want []v1alpha1.Report
			if test.report != nil {
				test.report.IncidentName, test.report.By = "disk", "maria"
				want = []v1alpha1.Report{*test.report}
			}
			g.Expect(server.reports).To(Equal(want))
		})
	}
}

func TestWhoWorksOnAnIncidentIsShown(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	since := v1alpha1.NewTimestamp(now.Add(-time.Hour))
	d := &description{screen: &screen{}, now: now}
	for says, assignee := range map[string]*v1alpha1.Assignee{
		"":                           nil,
		"to maria, since %s.":        {Name: "maria", Time: since, By: "maria"},
		"to alex, since %s, by mia.": {Name: "al\x1bex", Time: since, By: "mia"},
	} {
		says = strings.ReplaceAll(says, "%s", d.time(&since))
		NewWithT(t).Expect(d.assigned(&v1alpha1.IncidentStatus{Assignee: assignee})).To(Equal(says))
	}
}

func TestASilenceIsShownWithItsAddressAndItsEnd(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	earlier, later := v1alpha1.NewTimestamp(now.Add(-time.Hour)), v1alpha1.NewTimestamp(now.Add(time.Hour))
	d := &description{screen: &screen{}, now: now}
	for sentence, test := range map[string]struct {
		silenced          metav1.ConditionStatus
		request, covering *v1alpha1.Silence
		says              string
		address           string
	}{
		"a silence covers it": {"True", nil, &v1alpha1.Silence{EndTime: later, ID: "7b", Link: "https://am.example.com/#/silences/7b"},
			"yes. Said.", "https://am.example.com/#/silences/7b"},
		"the address is not known": {"True", nil, &v1alpha1.Silence{EndTime: later, ID: "7b"}, "yes. Said.", "7b"},
		"its time has passed": {"True", nil, &v1alpha1.Silence{EndTime: earlier, ID: "7b"},
			"yes. Said. That time has passed; Alertmanager has not confirmed the end.", "7b"},
		"one is requested": {"False", &v1alpha1.Silence{EndTime: later, By: "maria"}, nil,
			"no. Said. Requested until " + later.Local().Format(localTime) + " by maria.", ""},
		"a request has expired": {"False", &v1alpha1.Silence{EndTime: earlier}, nil,
			"no. Said. The one that an AlertEvent requested has expired at " + d.time(&earlier) + ".", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			incident := &v1alpha1.Incident{Status: v1alpha1.IncidentStatus{Silence: test.request, SilencedBy: test.covering,
				Conditions: []metav1.Condition{{Type: v1alpha1.ConditionSilenced, Status: test.silenced, Message: "Said."}}}}
			g.Expect(silences.Describe(incident, d.now, localTime, d.time)).To(Equal(test.says))
			g.Expect(silences.Address(&incident.Status)).To(Equal(test.address))
		})
	}
}

func TestIncidentsAreListedByWhoWorksOnThem(t *testing.T) {
	for sentence, test := range map[string]struct {
		change func(*filter)
		found  int
	}{
		"one person's": {func(f *filter) { f.Assignees = []string{"maria"} }, 1},
		"two people's": {func(f *filter) { f.Assignees = []string{"maria", "alex"} }, 2},
		"nobody's":     {func(f *filter) { f.Unassigned = true }, 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			s := newListServer(30) // one of ten is open
			s.incidents[9].Status.Assignee = &v1alpha1.Assignee{Name: "maria"}
			s.incidents[19].Status.Assignee = &v1alpha1.Assignee{Name: "alex"}
			f := &filter{allNamespaces: true, states: []string{"Open"}}
			test.change(f)
			g.Expect(f.isSet()).To(BeTrue())
			found, err := f.list(t.Context(), &cluster{WithWatch: s}, true, nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(HaveLen(test.found))
		})
	}
}
