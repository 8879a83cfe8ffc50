package fold

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// assigning is a user's report that assigns the Incident, or with an empty name withdraws that.
func assigning(to, by, comment string) v1alpha1.Alert {
	alert := alertOf(v1alpha1.AlertAssigned, v1alpha1.AlertContent{})
	if to == "" {
		alert.Status = v1alpha1.AlertUnassigned
	}
	alert.IsReport, alert.Assignee, alert.By, alert.Comment = true, to, by, comment
	return alert
}

func TestAnAssignment(t *testing.T) {
	g, bench := NewWithT(t), openIncident()
	before := bench.status().DeepCopy()
	for n, step := range []struct {
		sentence string
		report   v1alpha1.Alert
		result   string
		assignee *v1alpha1.Assignee
		entry    string // empty: the timeline has none
	}{
		{"nobody is assigned", assigning("", "maria", "x"), ResultUnassigned, nil, ""},
		{"a person takes it over", assigning("maria", "maria", ""), ResultAssigned,
			&v1alpha1.Assignee{Name: "maria", Time: *minuteStamp(3), By: "maria"}, "Taken over by maria"},
		{"the same again changes nothing", assigning("maria", "alex", ""), ResultAssigned,
			&v1alpha1.Assignee{Name: "maria", Time: *minuteStamp(3), By: "maria"}, ""},
		{"but for its comment", assigning(" maria\n", "alex", "hurry"), ResultAssigned,
			&v1alpha1.Assignee{Name: "maria", Time: *minuteStamp(3), By: "maria"}, "Assigned by alex to maria"},
		{"it is given to somebody", assigning("alex", "maria", ""), ResultAssigned,
			&v1alpha1.Assignee{Name: "alex", Time: *minuteStamp(6), By: "maria"}, "Assigned by maria to alex"},
		{"a report may tell no author", assigning("maria", "", ""), ResultAssigned,
			&v1alpha1.Assignee{Name: "maria", Time: *minuteStamp(7)}, "Assigned by an alert to maria"},
		{"a name of invisible characters is none", assigning("\u202e \x00", "maria", ""), ResultAssigned,
			&v1alpha1.Assignee{Name: "maria", Time: *minuteStamp(7)}, ""},
		{"it is withdrawn", assigning("", "maria", ""), ResultUnassigned, nil, "Unassigned by maria"},
	} {
		p := bench.at(n+2, eventOf(n+2, step.report))
		g.Expect(resultsOf(*p)).To(Equal([]string{step.result}), step.sentence)
		g.Expect(bench.status().Assignee).To(Equal(step.assignee), step.sentence)
		g.Expect(p.Urgent).To(Equal(step.entry != ""), step.sentence)
		if step.entry == "" {
			g.Expect(p.Transitions).To(BeEmpty(), step.sentence)
		} else {
			g.Expect(p.Transitions).To(HaveExactElements(And(HaveField("Message", step.entry), HaveField("By", step.report.By),
				HaveField("Comment", step.report.Comment))), step.sentence)
		}
	}
	after := bench.status()
	g.Expect([]any{after.AlertCount, after.LastAlertTime, after.Alert, after.Acknowledgement}).To(Equal(
		[]any{before.AlertCount, before.LastAlertTime, before.Alert, before.Acknowledgement}), "it is no alert and no acknowledgement")
	g.Expect(meta.IsStatusConditionTrue(after.Conditions, v1alpha1.ConditionAcknowledged)).To(BeFalse())
}

func TestAnAssignmentEndsWithItsEpisode(t *testing.T) {
	for sentence, firing := range map[string]v1alpha1.Alert{
		"that an alert follows": firingAlert(),
		"that a person reopens": func() v1alpha1.Alert {
			alert := firingAlert()
			alert.IsReport, alert.By = true, "maria"
			return alert
		}(),
	} {
		t.Run(sentence, func(t *testing.T) {
			g, bench := NewWithT(t), openIncident()
			bench.policy.LateFiringWindow, bench.archiveRequired = 0, true
			g.Expect(resultsOf(*bench.at(2, eventOf(2, assigning("alex", "maria", ""))))).To(Equal([]string{ResultAssigned}))
			bench.at(3, eventOf(3, resolvingAlert()))
			g.Expect(AssigneeOf(bench.status())).To(Equal("alex"), "the end is forwarded with the same labels")
			for n, late := range []v1alpha1.Alert{assigning("maria", "maria", "x"), assigning("", "maria", "")} {
				p := bench.at(4+n, eventOf(4+n, late))
				g.Expect(resultsOf(*p)).To(Equal([]string{ResultLate}))
				g.Expect(p.Transitions).To(BeEmpty())
			}
			ended, _ := DescribeEpisode(bench.status())
			g.Expect(ended.Assignee).To(Equal("alex"))
			bench.at(6, eventOf(6, firing))
			g.Expect(bench.status().Episode.Number).To(BeEquivalentTo(2))
			g.Expect(bench.status().Assignee).To(BeNil())
			archived, err := UnpackEpisode(&bench.status().UnarchivedEpisodes[0])
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(archived.Assignee).To(Equal("alex"), "the archive gets it although the next episode has begun")
		})
	}
}

func TestAnAssignmentThatChangesNothing(t *testing.T) {
	for sentence, test := range map[string]struct {
		event  *v1alpha1.AlertEvent
		result string
	}{
		"of another Incident's key": {eventOf(3, func() v1alpha1.Alert {
			alert := assigning("alex", "maria", "")
			alert.DedupKey = "other"
			return alert
		}()), ResultInvalid},
		"that was overtaken": {eventOf(1, assigning("alex", "maria", "")), ResultLate},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, bench := NewWithT(t), openIncident()
			bench.at(2, eventOf(2, assigning("maria", "maria", "")))
			test.event.UID = "another"
			g.Expect(resultsOf(*bench.at(4, test.event))).To(Equal([]string{test.result}))
			g.Expect(AssigneeOf(bench.status())).To(Equal("maria"))
		})
	}
	NewWithT(t).Expect(resultsOf(newBench().fold(eventOf(1, assigning("alex", "maria", ""))))).To(Equal([]string{ResultNoMatch}), "it opens none")
}

// A tenant may write any name: what is kept of it is short, and tells nothing else than it is.
func TestTheNameOfAnAssigneeIsBounded(t *testing.T) {
	for _, name := range []string{
		strings.Repeat("a", 256), strings.Repeat("<", 256), strings.Repeat("\U0001F525", 256), "alex by admin \u202e\n\x1b[2J" + strings.Repeat("é", 230),
	} {
		g, bench := NewWithT(t), openIncident()
		p := bench.at(2, eventOf(2, assigning(name, "maria", strings.Repeat("&", 1024))))
		kept := bench.status().Assignee.Name
		g.Expect(utf8.RuneCountInString(kept)).To(BeNumerically("<=", 256))
		encoded, err := json.Marshal(kept)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(encoded)).To(BeNumerically("<=", 258), "with quotes")
		g.Expect(kept).NotTo(ContainSubstring("\n"))
		g.Expect(kept).NotTo(ContainSubstring("\x1b"))
		g.Expect(p.Transitions[0].Message).To(HavePrefix("Assigned by maria to "), "who has done it is not cut off")
		g.Expect(utf8.RuneCountInString(p.Transitions[0].Message)).To(BeNumerically("<=", 256))
		g.Expect(p.Transitions[0].By).To(Equal("maria"))
	}
}
