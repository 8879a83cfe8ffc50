package forward

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// within returns a window that is open now, until a moment after.
func within(length time.Duration) v1alpha1.MaintenanceWindow {
	return testenv.Window(namespace, "db", time.Now(), time.Now().Add(length))
}

// maintain replaces the windows and folds, as the leader does when they open and end.
func (r *rig) maintain(windows ...v1alpha1.MaintenanceWindow) {
	r.replaceWindows(windows...)
	r.foldAgain()
}

func (r *rig) foldAgain() {
	for _, before := range r.refold() {
		after := r.objects[client.ObjectKeyFromObject(before)]
		if received, urgent := alerts.Urgent(before, after, nil); urgent {
			r.poster.schedule.changed.add(client.ObjectKeyFromObject(after), received)
		}
	}
	synctest.Wait()
}

func TestAWindowHoldsBackWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.alert("old", v1alpha1.AlertFiring, typed("Old"))
		r.maintain(within(2 * time.Hour))
		r.alert("old", v1alpha1.AlertFiring, typed("Older"), func(a *v1alpha1.Alert) { a.Severity = "critical" })
		r.alert("new", v1alpha1.AlertFiring, typed("New"))
		r.alert("brief", v1alpha1.AlertFiring, typed("Brief"))
		r.alert("brief", v1alpha1.AlertResolved)
		for range 2 {
			r.wait(time.Hour - time.Second)
			r.Expect(r.am.firing()).To(Equal([]string{"alertname=Old severity=warning"}), "it is kept alive, as it was")
			r.Expect(r.am.sets(false)).To(HaveLen(1), "nothing else was ever posted")
			r.lead()
		}
		r.wait(2 * time.Second)
		r.foldAgain()
		r.Expect(r.am.firing()).To(Equal([]string{"alertname=New severity=warning", "alertname=Older severity=critical"}), "at once")
		r.wait(time.Hour)
		for set, fired := range r.am.fired {
			r.Expect(fired).To(HaveLen(1), set)
		}
		r.Expect(r.am.sets(false)).To(HaveLen(3))
	})
}

func TestANewLeaderLearnsTheLabelsOfMutedIncidents(t *testing.T) {
	for sentence, test := range map[string]struct {
		change func(am *fakeAlertmanager)
		firing string
	}{
		"from Alertmanager": {func(am *fakeAlertmanager) {
			for _, others := range maps.Clone(am.alerts) {
				others.labels = maps.Clone(others.labels)
				others.labels[alerts.LabelNamespace], others.endsAt = "of-another-installation", am.now().Add(time.Minute)
				am.alerts["others"] = others
			}
		}, "alertname=Old severity=warning"},
		"which is slow": {func(am *fakeAlertmanager) {
			am.takes = 3 * time.Second
		}, "alertname=Old severity=warning"},
		"which tells only later": {func(am *fakeAlertmanager) {
			asked := false
			am.fail = func(body string) int {
				if body != "null" || asked {
					return 0
				}
				asked = true
				return hangs
			}
		}, "alertname=Old severity=warning"},
		"which does not always tell": {func(am *fakeAlertmanager) {
			am.fail = func(body string) int { return map[string]int{"null": http.StatusNotFound}[body] }
		}, "alertname=New severity=warning"},
		"and where anybody may have posted them": {func(am *fakeAlertmanager) {
			for set, known := range am.alerts {
				known.labels = maps.Clone(known.labels)
				known.labels["integration"], known.endsAt = "other", am.now().Add(time.Minute)
				am.alerts[set] = known
			}
		}, "alertname=New severity=warning"},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.lead()
				r.alert("old", v1alpha1.AlertFiring, typed("Old"))
				r.maintain(within(3 * time.Hour))
				r.alert("old", v1alpha1.AlertFiring, typed("New"), severity("critical"))
				r.wait(time.Second)
				test.change(r.am)
				r.lead()
				r.wait(time.Hour)
				r.Expect(r.am.firing()).To(ConsistOf(test.firing))
				r.Expect(r.am.listed).To(BeNumerically("<=", 2), "each leader asks it once")
				r.Expect(len(r.poster.record.incidents)).To(BeNumerically("<=", 1), "what others have there takes no memory")
				r.am.takes = 0
				r.maintain()
				r.wait(time.Second)
				r.Expect(r.am.firing()).To(ConsistOf("alertname=New severity=critical"), "and what fired before has ended")
			})
		})
	}
}

// The end of a muted Incident whose labels have changed has those of before in every request, also after one that failed.
func TestAMutedIncidentEndsByItsFormerLabels(t *testing.T) {
	for sentence, test := range map[string]struct {
		isNewLeader bool
		failures    int  // of requests with the former labels
		tellsNobody bool // Alertmanager does not list its alerts
	}{
		"at once":                     {},
		"after a request that failed": {failures: 1},
		"after one, by a leader that alone knows them": {failures: 1, tellsNobody: true},
		"for a new leader":                      {isNewLeader: true},
		"for one of which a request has failed": {isNewLeader: true, failures: 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, failures := newRig(t), test.failures
				r.lead()
				r.alert("old", v1alpha1.AlertFiring, typed("Old"))
				r.maintain(within(3 * time.Hour))
				r.alert("old", v1alpha1.AlertFiring, typed("New"))
				r.wait(2 * alerts.MinEndedWindow) // the change of its labels is forgotten
				r.am.fail = func(body string) int {
					if failures > 0 && strings.Contains(body, "Old") {
						failures--
						return http.StatusInternalServerError
					}
					if test.tellsNobody && body == "null" {
						return http.StatusNotFound
					}
					return 0
				}
				if test.isNewLeader {
					r.lead()
				}
				r.alert("old", v1alpha1.AlertResolved)
				r.wait(5 * time.Minute)
				r.Expect(failures).To(BeZero())
				r.Expect(r.am.firing()).To(BeEmpty())
				r.Expect(r.am.sets(false)).NotTo(ContainElement(ContainSubstring("New")), "it never fired with these labels")
			})
		})
	}
}

func TestTheEndOfWhatWasForwardedIsForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.alert("old", v1alpha1.AlertFiring)
		r.maintain(within(2 * time.Hour))
		r.alert("old", v1alpha1.AlertFiring, func(a *v1alpha1.Alert) { a.Severity = "critical" })
		r.wait(time.Hour)
		r.lead() // which knows nothing but the status
		r.alert("old", v1alpha1.AlertResolved)
		r.wait(2 * time.Second)
		r.Expect(r.am.firing()).To(BeEmpty())
		r.alert("old", v1alpha1.AlertFiring)
		r.wait(30 * time.Minute)
		r.Expect(r.am.firing()).To(BeEmpty(), "a new episode is new")
		r.maintain()
		r.Expect(r.am.firing()).To(Equal([]string{"alertname=mon severity=warning"}), "until the window is deleted")
	})
}

// The API server may accept no write when a window ends.
func TestAWindowEndsAlsoIfNoStatusCanBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.maintain(within(time.Hour))
		r.alert("new", v1alpha1.AlertFiring)
		r.wait(time.Hour - time.Second)
		r.Expect(r.am.firing()).To(BeEmpty())
		r.wait(alerts.MaxRoundInterval + time.Second)
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.replaceWindows(within(time.Hour))
		r.wait(30 * time.Minute)
		r.Expect(r.am.firing()).To(HaveLen(1), "nor does the next window end what is forwarded")
	})
}

// The API server accepts no write from before a window ends until the next one is open.
func TestTheNextWindowLeavesWhatWasPostedBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.replaceWindows(within(time.Hour), testenv.Window(namespace, "web", time.Now().Add(2*time.Hour), time.Now().Add(3*time.Hour)))
		key := r.alert("k", v1alpha1.AlertFiring)
		r.wait(time.Hour + alerts.MaxRoundInterval + time.Second)
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.wait(time.Hour)
		r.report() // the API server is back
		r.wait(reportInterval)
		(*r.term.forwarder.requestFold.Load())(key)
		r.Expect(r.status(key).Mute.Window).To(Equal("web"))
		r.wait(30 * time.Minute)
		r.Expect(r.am.firing()).To(HaveLen(1))
		for set, fired := range r.am.fired {
			r.Expect(fired).To(HaveLen(1), set)
		}
	})
}
