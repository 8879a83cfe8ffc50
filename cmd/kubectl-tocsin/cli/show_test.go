package cli

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestForwardedTellsWhereAndSinceWhen(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *v1alpha1.Timestamp {
		stamp := v1alpha1.NewTimestamp(now.Add(-d))
		return &stamp
	}
	d := &description{screen: &screen{}, now: now}
	status := &v1alpha1.IncidentStatus{OpenedTime: ago(time.Hour)}
	g.Expect(d.forwarded(status)).To(BeEmpty())
	d.integration.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionForwarded, Status: metav1.ConditionTrue, Message: "Incidents are posted to am:9093.",
		LastTransitionTime: metav1.NewTime(now.Add(-2 * time.Hour)),
	}}
	g.Expect(d.forwarded(status)).To(Equal("yes, since " + d.time(ago(time.Hour)) + ". Incidents are posted to am:9093."))
	status.OpenedTime = ago(3 * time.Hour)
	g.Expect(d.forwarded(status)).To(HavePrefix("yes, since " + d.time(ago(2*time.Hour)) + "."))
	d.integration.Status.Conditions[0].Status = metav1.ConditionFalse
	g.Expect(d.forwarded(status)).To(HavePrefix("no, since " + d.time(ago(2*time.Hour)) + "."))
}
