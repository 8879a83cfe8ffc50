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
	}
	resolved := func(minute int) func(*v1alpha1.IncidentStatus) {
		return func(s *v1alpha1.IncidentStatus) { s.State, s.ResolvedTime = v1alpha1.IncidentResolved, at(minute) }
	}
	want := []*v1alpha1.Incident{
		incident("new", v1alpha1.SeverityCritical, 5, nil),
		incident("old", v1alpha1.SeverityCritical, 4, nil),
		incident("same-a", v1alpha1.SeverityCritical, 3, nil),
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
