package forward

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// assigned makes an alert a report that assigns its Incident.
func assigned(to string) func(*v1alpha1.Alert) {
	return func(a *v1alpha1.Alert) { a.IsReport, a.By, a.Assignee = true, "maria", to }
}

func TestAnAssignmentIsForwardedIfTheConfigurationAllowsIt(t *testing.T) {
	for sentence, allowed := range map[string]bool{"it does": true, "it does not": false} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.target.AssigneeLabel = allowed
				r.lead()
				expect := func(assignee, because string) {
					t.Helper()
					set := "alertname=Disk severity=warning"
					if allowed && assignee != "" {
						set += " tocsin_assignee=" + assignee
					}
					r.Expect(r.am.firing()).To(ConsistOf(set), because)
				}
				r.alert("k", v1alpha1.AlertFiring, typed("Disk"))
				expect("", "nobody is assigned")
				r.wait(time.Minute)
				r.alert("k", v1alpha1.AlertAssigned, assigned("alex"))
				expect("alex", "at once, and the former alert has ended")
				r.maintain(within(time.Hour))
				r.alert("k", v1alpha1.AlertAssigned, assigned("maria"))
				expect("alex", "it pages nobody in a window")
				r.lead()
				r.wait(time.Minute)
				expect("alex", "nor does a new leader")
				r.maintain()
				r.wait(time.Minute)
				expect("maria", "the window is over")
				r.alert("k", v1alpha1.AlertUnassigned, assigned(""))
				expect("", "it was withdrawn")
				r.alert("k", v1alpha1.AlertAssigned, assigned("maria"))
				r.lead()
				r.wait(time.Minute)
				expect("maria", "a new leader knows it by the status")
				r.alert("k", v1alpha1.AlertResolved)
				r.wait(time.Minute)
				r.Expect(r.am.firing()).To(BeEmpty(), "the end has the label as well")
				r.alert("k", v1alpha1.AlertFiring, typed("Disk"))
				r.wait(time.Minute)
				expect("", "the next episode begins without it")
			})
		})
	}
}

// Each change of the label is a new alert: somebody who assigns all the time does not fill Alertmanager.
func TestAssignmentsAreForwardedABoundedNumberOfTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.target.AssigneeLabel = true
		r.lead()
		r.alert("k", v1alpha1.AlertFiring, typed("Disk"))
		for i := range 100 {
			r.alert("k", v1alpha1.AlertAssigned, assigned(string(rune('a'+i%26))+"-person"))
			r.wait(time.Second)
		}
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.Expect(len(r.am.fired)).To(BeNumerically("<=", 8))
		r.wait(20 * time.Minute)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=Disk severity=warning tocsin_assignee=v-person"), "the newest, in the end")
	})
}
