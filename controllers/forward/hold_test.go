package forward

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
)

// holdBack has Incidents held back for ten minutes, but for critical ones.
func (r *rig) holdBack(length time.Duration) {
	r.integrate(v1alpha1.WebhookIntegrationSpec{ForwardAfter: &v1alpha1.ForwardAfter{
		Default: &metav1.Duration{Duration: length}, Critical: &metav1.Duration{},
	}})
}

func TestAnIncidentIsHeldBackUntilItsTime(t *testing.T) {
	for sentence, lost := range map[string]bool{"which a fold finds": false, "also if no status can be written": true} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.holdBack(10 * time.Minute)
				r.lead()
				r.alert("brief", v1alpha1.AlertFiring, typed("Brief"))
				r.alert("long", v1alpha1.AlertFiring, typed("Long"))
				r.alert("worse", v1alpha1.AlertFiring, typed("Worse"))
				r.alert("critical", v1alpha1.AlertFiring, typed("Critical"), severity("critical"))
				r.Expect(r.am.firing()).To(ConsistOf("alertname=Critical severity=critical"), "at once")
				r.wait(5 * time.Minute)
				r.alert("worse", v1alpha1.AlertFiring, typed("Worse"), severity("critical"))
				r.Expect(r.am.firing()).To(HaveLen(2), "a rise counts at once")
				r.alert("critical", v1alpha1.AlertFiring, typed("Critical"), severity("warning"))
				r.Expect(r.am.firing()).To(HaveLen(2), "what is forwarded stays so")
				r.lead() // which knows nothing but the statuses
				r.wait(4 * time.Minute)
				r.alert("brief", v1alpha1.AlertResolved)
				r.wait(time.Minute - time.Second)
				r.Expect(r.am.firing()).To(HaveLen(2), "a new leader neither forgets nor hurries")
				if r.wait(2 * time.Second); lost {
					r.wait(alerts.MaxRoundInterval)
				} else {
					r.foldAgain()
				}
				r.Expect(r.am.firing()).To(ConsistOf("alertname=Critical severity=warning",
					"alertname=Worse severity=critical", "alertname=Long severity=warning"))
				r.lead()
				r.wait(30 * time.Minute)
				r.Expect(r.am.sets(false)).NotTo(ContainElement(ContainSubstring("Brief")), "nor was its end posted")
				r.Expect(r.am.sets(false)).NotTo(ContainElement("alertname=Worse severity=warning"), "it never fired with that severity")
				for set, fired := range r.am.fired {
					r.Expect(fired).To(HaveLen(1), set)
				}
				r.alert("long", v1alpha1.AlertResolved)
				r.Expect(r.am.firing()).To(HaveLen(2))
			})
		})
	}
}

// The next episode is held back anew, and the end of the last one is posted nevertheless, by the labels that it had.
func TestAnEpisodeThatIsHeldBackEndsTheLastOne(t *testing.T) {
	for sentence, next := range map[string]string{"with the same labels": "Disk", "with other labels": "Memory"} {
		t.Run(sentence, func(t *testing.T) { endsTheLastOne(t, next) })
	}
}

func endsTheLastOne(t *testing.T, next string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.holdBack(10 * time.Minute)
		r.lead()
		r.alert("k", v1alpha1.AlertFiring, typed("Disk"))
		r.wait(10 * time.Minute)
		r.foldAgain()
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.wait(2 * alerts.MinEndedWindow) // that it got its labels is forgotten
		r.am.fail = func(string) int { return http.StatusBadGateway }
		r.alert("k", v1alpha1.AlertResolved)
		r.wait(time.Second)
		r.alert("k", v1alpha1.AlertFiring, typed(next))
		r.wait(time.Second)
		r.am.fail = nil
		r.wait(alerts.MaxRoundInterval)
		r.Expect(r.am.firing()).To(BeEmpty())
		r.wait(9 * time.Minute)
		r.foldAgain()
		r.Expect(r.am.firing()).To(HaveLen(1))
	})
}

func TestAChangeOfTheIntegrationConcernsWhatIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.holdBack(10 * time.Minute)
		r.lead()
		r.alert("k", v1alpha1.AlertFiring)
		r.wait(5 * time.Minute)
		r.holdBack(6 * time.Minute)
		r.foldAgain()
		r.Expect(r.am.firing()).To(BeEmpty(), "it is counted from the opening")
		r.wait(time.Minute)
		r.foldAgain()
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.holdBack(time.Hour)
		r.foldAgain()
		r.wait(10 * time.Minute)
		r.Expect(r.am.firing()).To(HaveLen(1), "what is forwarded stays so")
		r.Expect(r.am.fired).To(HaveLen(1))
	})
}

// An acknowledgement that has expired changes a label, so Alertmanager takes the alert for a new one.
func TestAnExpiredAcknowledgementIsAnAlertOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead()
		key := r.alert("k", v1alpha1.AlertFiring, typed("Disk"))
		r.wait(time.Minute)
		expire := func() {
			r.edit(key, func(status *v1alpha1.IncidentStatus) {
				status.Episode.ExpiredAcknowledgements++
				status.Timeline = append(status.Timeline, v1alpha1.Transition{
					Type: v1alpha1.TransitionUnacknowledged, Time: v1alpha1.NewTimestamp(time.Now()),
				})
			})
			r.poster.schedule.changed.add(key, time.Time{})
			synctest.Wait()
		}
		r.stop()
		expire()
		r.lead() // which has not posted what fires now
		r.wait(time.Minute)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=Disk severity=warning tocsin_reminder=1"))
		r.maintain(within(time.Hour))
		expire()
		r.Expect(r.am.firing()).To(ConsistOf("alertname=Disk severity=warning tocsin_reminder=1"), "it pages nobody in a window")
		r.lead()
		r.wait(time.Minute)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=Disk severity=warning tocsin_reminder=1"), "nor does a new leader")
		r.maintain()
		r.wait(time.Minute)
		r.Expect(r.am.firing()).To(ConsistOf("alertname=Disk severity=warning tocsin_reminder=2"))
		r.alert("k", v1alpha1.AlertResolved)
		r.wait(time.Minute)
		r.Expect(r.am.firing()).To(BeEmpty())
	})
}
