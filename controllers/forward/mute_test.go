package forward

import (
	"maps"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// within returns a window between two moments after now.
func within(from, to time.Duration) v1alpha1.MaintenanceWindow {
	return testenv.Window(namespace, "db", time.Now().Add(from), time.Now().Add(to))
}

// maintain replaces the windows and folds, as the leader does when they open and end.
func (r *rig) maintain(windows ...v1alpha1.MaintenanceWindow) {
	r.replaceWindows(windows...)
	r.foldAgain()
}

func (r *rig) foldAgain() {
	for _, before := range r.refold() {
		after := r.objects[keyOf(before)]
		if received, changed := transition(before, after, nil); changed {
			r.sender.queue.add(keyOf(after), received)
		}
	}
	synctest.Wait()
}

func TestAWindowHoldsBackWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.alert("old", v1alpha1.AlertFiring, typed("Old"))
		r.maintain(within(0, 2*time.Hour))
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
		change func(am *alertmanager)
		firing string
	}{
		"from Alertmanager": {func(am *alertmanager) {
			for _, others := range maps.Clone(am.alerts) {
				others.labels = maps.Clone(others.labels)
				others.labels[labelNamespace], others.endsAt = "of-another-installation", am.now().Add(time.Minute)
				am.alerts["others"] = others
			}
		}, "alertname=Old severity=warning"},
		"which does not always tell": {func(am *alertmanager) {
			am.fail = func(body string) int { return map[string]int{"null": http.StatusNotFound}[body] }
		}, "alertname=New severity=warning"},
		"and where anybody may have posted them": {func(am *alertmanager) {
			for set, known := range am.alerts {
				known.labels = maps.Clone(known.labels)
				known.labels[labelIntegration], known.endsAt = "other", am.now().Add(time.Minute)
				am.alerts[set] = known
			}
		}, "alertname=New severity=warning"},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.lead()
				r.alert("old", v1alpha1.AlertFiring, typed("Old"))
				r.maintain(within(0, 3*time.Hour))
				r.alert("old", v1alpha1.AlertFiring, typed("New"), severity("critical"))
				r.wait(time.Second)
				test.change(r.am)
				r.lead()
				r.wait(time.Hour)
				r.Expect(r.am.firing()).To(ConsistOf(test.firing))
				r.Expect(r.am.listed).To(BeNumerically("<=", 1), "it is asked once")
				r.Expect(len(r.sender.recalled)).To(BeNumerically("<=", 1), "what others have there takes no memory")
				r.maintain()
				r.wait(clockMargin)
				r.Expect(r.am.firing()).To(ConsistOf("alertname=New severity=critical"), "and what fired before has ended")
			})
		})
	}
}

func TestTheEndOfWhatWasForwardedIsForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.alert("old", v1alpha1.AlertFiring)
		r.maintain(within(0, 2*time.Hour))
		r.alert("old", v1alpha1.AlertFiring, func(a *v1alpha1.Alert) { a.Severity = "critical" })
		r.wait(time.Hour)
		r.lead() // which knows nothing but the status
		r.alert("old", v1alpha1.AlertResolved)
		r.wait(2 * clockMargin)
		r.Expect(r.am.firing()).To(BeEmpty())
		r.alert("old", v1alpha1.AlertFiring)
		r.wait(30 * time.Minute)
		r.Expect(r.am.firing()).To(BeEmpty(), "a new episode is new")
		r.maintain()
		r.Expect(r.am.firing()).To(Equal([]string{"alertname=mon severity=warning"}), "until the window is deleted")
	})
}

// Of an integration that has no place in the cache, the windows are unknown.
func TestWhatIsMutedStaysSoWhileTheWindowsAreUnknown(t *testing.T) {
	muted := &v1alpha1.Incident{}
	muted.Status.State, muted.Status.Mute = v1alpha1.IncidentOpen, &v1alpha1.Mute{EndTime: new(v1alpha1.NewTimestamp(time.Unix(100, 0)))}
	for sentence, test := range map[string]struct {
		incident *v1alpha1.Incident
		at       int64
		want     *v1alpha1.Mute
	}{
		"it is muted":                          {muted, 99, muted.Status.Mute},
		"the window that mutes it ends":        {muted, 100, nil},
		"it was not muted, so it is forwarded": {&v1alpha1.Incident{}, 99, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			whi := &v1alpha1.WebhookIntegration{}
			integrations.MakeStub(whi, true)
			NewWithT(t).Expect(mutedBy(test.incident, whi, nil, time.Unix(test.at, 0))).To(Equal(test.want))
		})
	}
}

// The API server may accept no write when a window ends.
func TestAWindowEndsAlsoIfNoStatusCanBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		r.maintain(within(0, time.Hour))
		r.alert("new", v1alpha1.AlertFiring)
		r.wait(time.Hour - time.Second)
		r.Expect(r.am.firing()).To(BeEmpty())
		r.wait(maxRoundInterval + time.Second)
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.replaceWindows(within(0, time.Hour))
		r.wait(30 * time.Minute)
		r.Expect(r.am.firing()).To(HaveLen(1), "nor does the next window end what is forwarded")
	})
}

func TestTheConditionNamesOpenWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		whi := &v1alpha1.WebhookIntegration{}
		whi.Namespace, whi.Name = namespace, integration
		r.replaceWindows(within(time.Minute, time.Hour))
		condition := metav1.Condition{Reason: v1alpha1.ReasonForwarding, Message: "Fine."}
		r.term.describeMaintenance(&condition, whi)
		r.Expect(condition.Message).To(Equal("Fine."))
		r.wait(time.Minute)
		r.term.describeMaintenance(&condition, whi)
		r.Expect(condition.Reason).To(Equal(v1alpha1.ReasonMaintenance))
		r.Expect(condition.Message).To(Equal("Fine. " + messageMaintenance + "db."))
		condition.Reason = v1alpha1.ReasonAllFailing
		r.term.describeMaintenance(&condition, whi)
		r.Expect(condition.Reason).To(Equal(v1alpha1.ReasonAllFailing), "that is worse")
	})
}
