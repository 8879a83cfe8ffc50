package live

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestByUrgency(t *testing.T) {
	g := NewWithT(t)
	at := func(minute int) *v1alpha1.Timestamp {
		stamp := v1alpha1.NewTimestamp(time.Date(2026, 5, 4, 10, minute, 0, 0, time.UTC))
		return &stamp
	}
	incident := func(name string, severity v1alpha1.Severity, last int, change func(*v1alpha1.IncidentStatus)) *v1alpha1.Incident {
		i := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		i.Status = v1alpha1.IncidentStatus{State: v1alpha1.IncidentOpen, Alert: v1alpha1.AlertContent{Severity: severity}, LastAlertTime: at(last)}
		if change != nil {
			change(&i.Status)
		}
		return i
	}
	acknowledged := func(s *v1alpha1.IncidentStatus) {
		s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue}}
		s.Acknowledgement = &v1alpha1.Acknowledgement{Severity: s.Alert.Severity}
	}
	outgrown := func(s *v1alpha1.IncidentStatus) {
		acknowledged(s)
		s.Acknowledgement.Severity = v1alpha1.SeverityWarning
	}
	resolved := func(minute int) func(*v1alpha1.IncidentStatus) {
		return func(s *v1alpha1.IncidentStatus) { s.State, s.ResolvedTime = v1alpha1.IncidentResolved, at(minute) }
	}
	want := []*v1alpha1.Incident{
		incident("new", v1alpha1.SeverityCritical, 5, nil),
		incident("old", v1alpha1.SeverityCritical, 4, nil),
		incident("same-a", v1alpha1.SeverityCritical, 3, outgrown),
		incident("same-b", v1alpha1.SeverityCritical, 3, nil),
		incident("acknowledged", v1alpha1.SeverityCritical, 6, acknowledged),
		incident("error", v1alpha1.SeverityError, 9, nil),
		incident("unknown", "", 9, nil),
		incident("mild, resolved last", v1alpha1.SeverityInfo, 1, resolved(9)),
		incident("severe, resolved before", v1alpha1.SeverityCritical, 2, resolved(8)),
		incident("without a time", v1alpha1.SeverityCritical, 9, func(s *v1alpha1.IncidentStatus) { s.State = v1alpha1.IncidentResolved }),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, ByUrgency)
	g.Expect(got).To(Equal(want))
}

func TestAnAcknowledgementCoversNoHigherSeverity(t *testing.T) {
	for sentence, test := range map[string]struct {
		state         v1alpha1.IncidentState
		now, then     v1alpha1.Severity
		given, covers bool
	}{
		"nobody has acknowledged it":         {v1alpha1.IncidentOpen, v1alpha1.SeverityError, "", false, false},
		"it is as severe as it was then":     {v1alpha1.IncidentOpen, v1alpha1.SeverityError, v1alpha1.SeverityError, true, true},
		"it is less severe":                  {v1alpha1.IncidentOpen, v1alpha1.SeverityInfo, v1alpha1.SeverityError, true, true},
		"it became more severe":              {v1alpha1.IncidentOpen, v1alpha1.SeverityCritical, v1alpha1.SeverityError, true, false},
		"it was resolved after it became so": {v1alpha1.IncidentResolved, v1alpha1.SeverityCritical, v1alpha1.SeverityError, true, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			incident := &v1alpha1.Incident{}
			incident.Status.State, incident.Status.Alert.Severity = test.state, test.now
			if test.given {
				incident.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue}}
				incident.Status.Acknowledgement = &v1alpha1.Acknowledgement{Severity: test.then}
			}
			g.Expect(HasAcknowledgement(incident)).To(Equal(test.given))
			g.Expect(IsAcknowledged(incident)).To(Equal(test.covers))
		})
	}
}
