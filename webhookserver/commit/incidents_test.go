package commit

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// waitingEvent makes an AlertEvent with a firing alert of each name, and a resolved one.
func waitingEvent(namespace, name string, incidents ...string) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "10"}}
	for _, incident := range incidents {
		event.Spec.Alerts = append(event.Spec.Alerts, v1alpha1.Alert{IncidentName: incident, Status: v1alpha1.AlertFiring})
	}
	event.Spec.Alerts = append(event.Spec.Alerts, v1alpha1.Alert{IncidentName: "resolved", Status: v1alpha1.AlertResolved})
	return event
}

func anIncident(name string) *v1alpha1.Incident {
	return &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
}

// reserve reports whether a firing alert of the Incident may be stored.
func reserve(x *Capacity, name string) bool {
	alerts := []v1alpha1.Alert{{IncidentName: name, Status: v1alpha1.AlertFiring}}
	return len(x.Reserve("a", alerts, false)) > 0
}

// TestIncidentsThatWaitCount has a namespace with a share of 3 Incidents.
func TestIncidentsThatWaitCount(t *testing.T) {
	for sentence, test := range map[string]struct {
		happens func(x *Capacity)
		count   int
	}{
		"no Incident":     {func(*Capacity) {}, 0},
		"two that exist":  {func(x *Capacity) { x.SetIncident(anIncident("one"), false); x.SetIncident(anIncident("two"), false) }, 2},
		"three that wait": {func(x *Capacity) { x.SetEvent(waitingEvent("a", "e", "one", "two", "three"), false) }, 3},
		"one that waits in two AlertEvents": {func(x *Capacity) {
			x.SetEvent(waitingEvent("a", "e", "one", "one"), false)
			x.SetEvent(waitingEvent("a", "f", "one"), false)
		}, 1},
		"one that exists and waits": {func(x *Capacity) {
			x.SetEvent(waitingEvent("a", "e", "one"), false)
			x.SetIncident(anIncident("one"), false)
		}, 1},
		"one that existed and waits": {func(x *Capacity) {
			x.SetEvent(waitingEvent("a", "e", "one"), false)
			x.SetIncident(anIncident("one"), false)
			x.RemoveIncident(anIncident("one"))
		}, 1},
		"one whose AlertEvents are gone": {func(x *Capacity) {
			x.SetEvent(waitingEvent("a", "e", "one"), false)
			x.SetEvent(waitingEvent("a", "e", "one"), false)
			x.RemoveEvent(waitingEvent("a", "e", "one"))
		}, 0},
		"one whose AlertEvent is settled for another": {func(x *Capacity) {
			event := waitingEvent("a", "e", "one", "two")
			x.SetEvent(event, false)
			event.Annotations = map[string]string{v1alpha1.SettledAnnotation: "9/one"}
			x.SetEvent(event, false)
		}, 1},
		"none whose AlertEvent is settled": {func(x *Capacity) {
			event := waitingEvent("a", "e", "one", "two")
			event.Annotations = map[string]string{v1alpha1.SettledAnnotation: "9/*"}
			x.SetEvent(event, false)
		}, 0},
		"those of another namespace": {func(x *Capacity) {
			x.SetEvent(waitingEvent("b", "e", "one", "two", "three"), false)
		}, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				x := NewCapacity(10_000, 12, 0.25)
				test.happens(x)
				g.Expect(x.Refusal("a") != "").To(Equal(test.count == 3))
				for i := range 3 {
					g.Expect(reserve(x, fmt.Sprint("new-", i))).To(Equal(test.count+i < 3), "new-%d", i)
				}
				g.Expect(reserve(x, "new-0")).To(Equal(test.count < 3), "a reserved one")
			})
		})
	}
}

// TestAReservationEndsWhenItsAlertsCount covers the time between a write and its AlertEvent in the informer.
func TestAReservationEndsWhenItsAlertsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		x := NewCapacity(10_000, 4, 0.25)
		g.Expect(reserve(x, "one")).To(BeTrue())
		g.Expect(reserve(x, "two")).To(BeFalse())
		time.Sleep(Timeout)
		g.Expect(x.Refusal("a")).To(Equal(v1alpha1.ReasonIncidentLimit))
		time.Sleep(maxWatchDelay)
		synctest.Wait()
		g.Expect(x.Refusal("a")).To(BeEmpty())
		g.Expect(x.incidents).To(BeEmpty())
	})
}

// TestAlertEventsByHandFillTheirNamespaceOnly has a tenant create AlertEvents for more Incidents than all may have.
func TestAlertEventsByHandFillTheirNamespaceOnly(t *testing.T) {
	g := NewWithT(t)
	x := NewCapacity(10_000, 12, 0.25)
	for i := range 100 {
		x.SetEvent(waitingEvent("bad", fmt.Sprint(i), fmt.Sprint("a", i), fmt.Sprint("b", i)), false)
	}
	g.Expect(x.Refusal("bad")).To(Equal(v1alpha1.ReasonIncidentLimit))
	g.Expect(x.Refusal("good")).To(BeEmpty())
	g.Expect(gauges(x, incidentsRatio)[""]).To(Equal(0.25))
	for i := range 100 {
		x.RemoveEvent(waitingEvent("bad", fmt.Sprint(i)))
	}
	g.Expect(x.incidents).To(BeEmpty())
	g.Expect(x.events).To(BeEmpty())
	g.Expect(x.budget.Sum()).To(BeZero())
}
