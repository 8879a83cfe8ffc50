package action

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// The Incident is as it was, but begins now: a firing that began in the episode that has ended counts as a late one.
func TestReopenTakesTheContentAndNotTheTimes(t *testing.T) {
	g := NewWithT(t)
	incident := &v1alpha1.Incident{Spec: v1alpha1.IncidentSpec{IntegrationName: "mon", DedupKey: "disk"}}
	incident.Namespace, incident.Name = "shop", v1alpha1.IncidentName("mon", "disk")
	incident.Status.State = v1alpha1.IncidentOpen
	reopen := Action{Status: v1alpha1.AlertFiring, Message: "wrong one"}
	g.Expect(reopen.Unneeded(incident)).To(Equal("already open"))
	incident.Status.State = v1alpha1.IncidentResolved
	g.Expect(reopen.Unneeded(incident)).To(BeEmpty())
	spec := reopen.Event(incident, "maria").Spec
	g.Expect(spec).To(Equal(v1alpha1.AlertEventSpec{IntegrationName: "mon", Report: &v1alpha1.Report{
		Status: v1alpha1.AlertFiring, IncidentName: incident.Name, DedupKey: "disk", By: "maria", Comment: "wrong one",
	}}))
}

func TestWhatAnAssignmentNeeds(t *testing.T) {
	assigned := v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, Assignee: &v1alpha1.Assignee{Name: "maria"}}
	for sentence, test := range map[string]struct {
		action Action
		status v1alpha1.IncidentStatus
		says   string
	}{
		"nobody is assigned":             {Action{Status: v1alpha1.AlertAssigned, Assignee: "maria"}, v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen}, ""},
		"somebody else is":               {Action{Status: v1alpha1.AlertAssigned, Assignee: "alex"}, assigned, ""},
		"the same person is":             {Action{Status: v1alpha1.AlertAssigned, Assignee: " maria "}, assigned, "already assigned to maria"},
		"the same, and there is news":    {Action{Status: v1alpha1.AlertAssigned, Assignee: "maria", Message: "hurry"}, assigned, ""},
		"it is withdrawn":                {Action{Status: v1alpha1.AlertUnassigned}, assigned, ""},
		"there is nothing to withdraw":   {Action{Status: v1alpha1.AlertUnassigned}, v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen}, "not assigned"},
		"a Resolved Incident takes none": {Action{Status: v1alpha1.AlertAssigned, Assignee: "maria"}, v1alpha1.IncidentStatus{State: v1alpha1.IncidentResolved}, "already resolved"},
	} {
		t.Run(sentence, func(t *testing.T) {
			NewWithT(t).Expect(test.action.Unneeded(&v1alpha1.Incident{Status: test.status})).To(Equal(test.says))
		})
	}
	g := NewWithT(t)
	report := Action{Status: v1alpha1.AlertAssigned, Assignee: "alex"}.Event(&v1alpha1.Incident{}, "maria").Spec.Report
	g.Expect([]string{report.Assignee, report.By}).To(Equal([]string{"alex", "maria"}))
	g.Expect(Action{Status: v1alpha1.AlertNoted, Assignee: "alex"}.Event(&v1alpha1.Incident{}, "maria").Spec.Report.Assignee).To(BeEmpty())
}

func TestWhatAnAcknowledgementNeeds(t *testing.T) {
	given := func(severity v1alpha1.Severity, until *v1alpha1.Timestamp) v1alpha1.IncidentStatus {
		status := v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen}
		status.Alert.Severity = v1alpha1.SeverityError
		status.Acknowledgement = &v1alpha1.Acknowledgement{Severity: severity, ExpirationTime: until}
		return status
	}
	soon := new(v1alpha1.NewTimestamp(time.Now().Add(time.Hour)))
	for sentence, test := range map[string]struct {
		action Action
		status v1alpha1.IncidentStatus
		says   string
	}{
		"nobody has acknowledged it":        {Action{}, v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen}, ""},
		"somebody has":                      {Action{}, given(v1alpha1.SeverityError, nil), "already acknowledged"},
		"somebody has, and there is news":   {Action{Message: "me too"}, given(v1alpha1.SeverityError, nil), ""},
		"somebody has, and now it expires":  {Action{Length: time.Hour}, given(v1alpha1.SeverityError, nil), ""},
		"somebody has, at a lower severity": {Action{}, given(v1alpha1.SeverityWarning, nil), ""},
		"one that expires is renewed":       {Action{}, given(v1alpha1.SeverityError, soon), ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			test.action.Status = v1alpha1.AlertAcknowledged
			NewWithT(t).Expect(test.action.Unneeded(&v1alpha1.Incident{Status: test.status})).To(Equal(test.says))
		})
	}
}

func TestTheNameOfAnAssigneeIsChecked(t *testing.T) {
	for name, valid := range map[string]bool{
		"": true, "maria": true, "João da Silva": true, strings.Repeat("é", 256): true,
		strings.Repeat("a", 257): false, " \n\t": false, "\u202e\x00": false,
	} {
		err := Action{Status: v1alpha1.AlertAssigned, Assignee: name}.CheckAssignee()
		NewWithT(t).Expect(err == nil).To(Equal(valid), "%q", name)
	}
}

// The request stays in the status when it has expired, and there is nothing to end.
func TestAnExpiredRequestIsNotEndedAgain(t *testing.T) {
	incident := &v1alpha1.Incident{}
	incident.Status.Silence = &v1alpha1.Silence{By: "maria"}
	for reason, says := range map[string]string{v1alpha1.ReasonNotSilenced: "not silenced", v1alpha1.ReasonSilenceRequested: ""} {
		incident.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSilenced, Status: metav1.ConditionFalse, Reason: reason}}
		NewWithT(t).Expect(Action{Status: v1alpha1.AlertSilenced}.Unneeded(incident)).To(Equal(says), reason)
	}
}

// What is resolved need not be resolved again, unless Alertmanager does not know of it yet.
func TestAPersonEndsWhatIsKeptFiring(t *testing.T) {
	g := NewWithT(t)
	now := time.Now()
	incident := &v1alpha1.Incident{Status: v1alpha1.IncidentStatus{
		State: v1alpha1.IncidentResolved, ResolvedTime: new(v1alpha1.NewTimestamp(now)),
	}}
	resolve := Action{Status: v1alpha1.AlertResolved}
	g.Expect(resolve.Unneeded(incident)).To(Equal("already resolved"))
	kept := &v1alpha1.KeptFiring{Severity: v1alpha1.SeverityError, EndTime: v1alpha1.NewTimestamp(now.Add(time.Hour))}
	incident.Status.Flapping = &v1alpha1.Flapping{KeptFiring: kept}
	g.Expect(resolve.Unneeded(incident)).To(BeEmpty())
	g.Expect(Action{Status: v1alpha1.AlertAcknowledged}.Unneeded(incident)).To(Equal("already resolved"))
	kept.EndTime = v1alpha1.NewTimestamp(now.Add(-time.Second))
	g.Expect(resolve.Unneeded(incident)).To(Equal("already resolved"))
}
