package forward

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
)

// keepFor is for how long the ends of Incidents are kept back that open more than once in an hour.
const keepFor = 20 * time.Minute

// keepBack has a leader keep ends back, and an Incident flap that is open now.
func (r *rig) keepBack() (incident types.NamespacedName) {
	r.integrate(v1alpha1.WebhookIntegrationSpec{Flapping: &v1alpha1.FlappingPolicy{
		Openings: 1, Period: &metav1.Duration{Duration: 2 * time.Hour}, KeepFiringFor: &metav1.Duration{Duration: keepFor},
	}})
	r.lead()
	r.alert("k", v1alpha1.AlertFiring, severity("error"))
	r.wait(time.Minute)
	r.alert("k", v1alpha1.AlertResolved)
	r.wait(time.Minute)
	incident = r.alert("k", v1alpha1.AlertFiring, severity("error"))
	r.Expect(r.am.firing()).To(HaveLen(1))
	r.wait(time.Minute)
	return incident
}

// begun is how often each set of labels has begun to fire.
func (r *rig) begun() map[string]int {
	begun := map[string]int{}
	for _, known := range r.am.alerts {
		begun[known.labels["severity"]] = 0
	}
	for set, fired := range r.am.fired {
		begun[r.am.alerts[set].labels["severity"]] = len(fired)
	}
	return begun
}

func TestAnEndIsForwardedWhenAnIncidentIsQuiet(t *testing.T) {
	for sentence, lead := range map[string]func(r *rig){
		"by the leader that has kept it": func(*rig) {},
		"by a new leader":                (*rig).lead,
		"after an Alertmanager was away": func(r *rig) {
			r.am.fail = func(string) int { return http.StatusBadGateway }
			r.wait(5 * time.Minute)
			r.am.fail = nil
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.keepBack()
				for range 5 {
					r.alert("k", v1alpha1.AlertResolved)
					r.wait(keepFor - 6*time.Minute)
					lead(r)
					r.Expect(r.am.firing()).To(HaveLen(1))
					r.alert("k", v1alpha1.AlertFiring, severity("error"))
					r.wait(time.Minute)
				}
				r.alert("k", v1alpha1.AlertResolved)
				r.wait(keepFor - 6*time.Minute)
				lead(r)
				r.Expect(r.begun()).To(Equal(map[string]int{"error": 2}), "one page, and that of before it flapped")
				r.wait(keepFor)
				r.Expect(r.am.firing()).To(BeEmpty())
			})
		})
	}
}

// The end is forwarded within a round of its time, not before it, and for some time, also by leaders that come then.
func TestWhenAnEndIsForwardedThatWasKeptBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.keepBack()
		r.alert("k", v1alpha1.AlertResolved)
		r.lead()
		r.wait(keepFor - time.Second)
		r.Expect(r.am.firing()).To(HaveLen(1))
		r.lead()
		r.Expect(r.am.firing()).To(HaveLen(1), "a new leader does not hurry")
		r.wait(alerts.MaxRoundInterval + time.Second)
		r.Expect(r.am.firing()).To(BeEmpty())

		r.am.alerts = map[string]stored{}
		r.lead()
		r.wait(alerts.MaxRoundInterval)
		r.Expect(r.am.sets(false)).To(HaveLen(1), "also when the Incident was resolved for longer than ends are posted")
		r.Expect(r.am.firing()).To(BeEmpty())
		r.wait(alerts.MinEndedWindow)
		r.am.alerts = map[string]stored{}
		r.lead()
		r.wait(alerts.MaxRoundInterval)
		r.Expect(r.am.sets(false)).To(BeEmpty(), "not for ever")
	})
}

func TestWhatIsToldOfAnIncidentThatFlaps(t *testing.T) {
	person := func(a *v1alpha1.Alert) { a.By, a.IsReport = "maria", true }
	for sentence, test := range map[string]struct {
		happens func(r *rig, incident types.NamespacedName)
		fires   []string
	}{
		"a rise of the severity, at once": {func(r *rig, _ types.NamespacedName) {
			r.alert("k", v1alpha1.AlertResolved)
			r.wait(time.Minute)
			r.alert("k", v1alpha1.AlertFiring, severity("critical"))
		}, []string{"alertname=mon severity=critical"}},
		"no fall of the severity": {func(r *rig, _ types.NamespacedName) {
			r.alert("k", v1alpha1.AlertResolved)
			r.wait(time.Minute)
			r.alert("k", v1alpha1.AlertFiring, severity("info"))
			r.lead()
		}, []string{"alertname=mon severity=error"}},
		"the fall of the severity, when it flaps no longer": {func(r *rig, _ types.NamespacedName) {
			r.alert("k", v1alpha1.AlertResolved)
			r.wait(time.Minute)
			r.alert("k", v1alpha1.AlertFiring, severity("info"))
			r.wait(3 * time.Hour)
			r.foldAgain()
		}, []string{"alertname=mon severity=info"}},
		"the resolve of a person, at once": {func(r *rig, _ types.NamespacedName) {
			r.alert("k", v1alpha1.AlertResolved, person)
		}, nil},
		"that it is over, by a person": {func(r *rig, _ types.NamespacedName) {
			r.alert("k", v1alpha1.AlertResolved)
			r.wait(time.Minute)
			r.Expect(r.am.firing()).To(HaveLen(1))
			r.alert("k", v1alpha1.AlertResolved, person)
			r.wait(alerts.MaxRoundInterval)
		}, nil},
		"its end within a round, if it is deleted, of which no watch tells while it is Resolved": {func(r *rig, i types.NamespacedName) {
			r.alert("k", v1alpha1.AlertResolved)
			r.wait(3 * time.Minute)
			r.mu.Lock()
			delete(r.objects, i)
			r.mu.Unlock()
			r.wait(2 * alerts.MaxRoundInterval)
		}, nil},
		"its end, if it is deleted": {func(r *rig, incident types.NamespacedName) {
			r.alert("k", v1alpha1.AlertResolved)
			r.wait(time.Minute)
			r.delete(incident)
			r.wait(alerts.MaxRoundInterval)
		}, nil},
		"its end, if the integration is forwarded no longer": {func(r *rig, _ types.NamespacedName) {
			r.alert("k", v1alpha1.AlertResolved)
			r.wait(time.Minute)
			r.integrate(v1alpha1.WebhookIntegrationSpec{Forward: v1alpha1.ForwardNever})
			r.wait(alerts.MaxRoundInterval)
		}, nil},
		"nothing new while the integration is away for a moment": {func(r *rig, _ types.NamespacedName) {
			r.alert("k", v1alpha1.AlertResolved)
			r.wait(time.Minute)
			r.disintegrate()
			r.wait(5 * time.Minute)
			r.integrate(r.spec)
			r.wait(10 * time.Minute)
		}, []string{"alertname=mon severity=error"}},
		"nothing new in a maintenance window": {func(r *rig, _ types.NamespacedName) {
			r.alert("k", v1alpha1.AlertResolved)
			r.wait(time.Minute)
			r.maintain(within(time.Hour))
			r.alert("k", v1alpha1.AlertFiring, severity("error"))
			r.wait(time.Minute)
			r.lead()
			r.wait(time.Minute)
		}, []string{"alertname=mon severity=error"}},
		"its end, after a window in which it opened": {func(r *rig, _ types.NamespacedName) {
			r.alert("k", v1alpha1.AlertResolved)
			r.wait(time.Minute)
			r.maintain(within(time.Hour))
			r.alert("k", v1alpha1.AlertFiring, severity("error"))
			r.wait(time.Minute)
			r.alert("k", v1alpha1.AlertResolved)
			r.wait(keepFor - time.Minute)
			r.Expect(r.am.firing()).To(HaveLen(1))
			r.lead()
			r.wait(2 * time.Minute)
		}, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				incident := r.keepBack()
				begun := r.begun()["error"]
				test.happens(r, incident)
				r.wait(2 * time.Second)
				r.Expect(r.am.firing()).To(ConsistOf(test.fires))
				r.Expect(r.begun()["error"]).To(Equal(begun), "nobody is paged again")
			})
		})
	}
}

// Another process has resolved it, so only the cache tells, and not until when the end is kept back.
func TestAnEndThatAnotherProcessKeepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		incident := r.keepBack()
		r.alert("k", v1alpha1.AlertResolved)
		resolved := r.objects[incident]
		r.term = r.newTerm()
		r.integrate(r.spec)
		r.term.incidentGone(resolved)
		r.lead()
		r.wait(time.Minute)
		r.lead()
		r.wait(keepFor - time.Minute - 10*time.Second)
		r.Expect(r.am.firing()).To(HaveLen(1), "longer than ends are posted")
		r.wait(2 * alerts.MaxRoundInterval)
		r.Expect(r.am.firing()).To(BeEmpty())
	})
}
