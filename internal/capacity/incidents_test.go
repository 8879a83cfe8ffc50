package capacity

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
		event.Alerts = append(event.Alerts, v1alpha1.Alert{IncidentName: incident, Status: v1alpha1.AlertFiring})
	}
	event.Alerts = append(event.Alerts, v1alpha1.Alert{IncidentName: "resolved", Status: v1alpha1.AlertResolved})
	return event
}

// reserve reports whether a firing alert of the Incident may be stored.
func reserve(x *Counts, name string) bool {
	alerts := []v1alpha1.Alert{{IncidentName: name, Status: v1alpha1.AlertFiring}}
	return len(x.ReserveIncidents("a", alerts, false)) > 0
}

// TestIncidentsThatWaitCount has a namespace with a share of 3 Incidents.
func TestIncidentsThatWaitCount(t *testing.T) {
	for sentence, test := range map[string]struct {
		happens func(x *Counts)
		count   int
	}{
		"no Incident": {func(*Counts) {}, 0},
		"two that exist": {func(x *Counts) {
			x.SetIncident(openIncidentNamed("a", "one"), false)
			x.SetIncident(openIncidentNamed("a", "two"), false)
		}, 2},
		"three that wait": {func(x *Counts) { x.SetEvent(waitingEvent("a", "e", "one", "two", "three"), false) }, 3},
		"one that waits in two AlertEvents": {func(x *Counts) {
			x.SetEvent(waitingEvent("a", "e", "one", "one"), false)
			x.SetEvent(waitingEvent("a", "f", "one"), false)
		}, 1},
		"one that exists and waits": {func(x *Counts) {
			x.SetEvent(waitingEvent("a", "e", "one"), false)
			x.SetIncident(openIncidentNamed("a", "one"), false)
		}, 1},
		"one that existed and waits": {func(x *Counts) {
			x.SetEvent(waitingEvent("a", "e", "one"), false)
			x.SetIncident(openIncidentNamed("a", "one"), false)
			x.RemoveIncident(openIncidentNamed("a", "one"))
		}, 1},
		"one whose AlertEvents are gone": {func(x *Counts) {
			x.SetEvent(waitingEvent("a", "e", "one"), false)
			x.SetEvent(waitingEvent("a", "e", "one"), false)
			x.RemoveEvent(waitingEvent("a", "e", "one"))
		}, 0},
		"one whose AlertEvent is settled for another": {func(x *Counts) {
			event := waitingEvent("a", "e", "one", "two")
			x.SetEvent(event, false)
			event.Annotations = map[string]string{v1alpha1.SettledAnnotation: "9/one"}
			x.SetEvent(event, false)
		}, 1},
		"none whose AlertEvent is settled": {func(x *Counts) {
			event := waitingEvent("a", "e", "one", "two")
			event.Annotations = map[string]string{v1alpha1.SettledAnnotation: "9/*"}
			x.SetEvent(event, false)
		}, 0},
		"those of another namespace": {func(x *Counts) {
			x.SetEvent(waitingEvent("b", "e", "one", "two", "three"), false)
		}, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				x := newCounts(Limits{Incidents: 12})
				test.happens(x)
				g.Expect(x.Full("a") != "").To(Equal(test.count == 3))
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
		x := newCounts(Limits{Incidents: 4})
		g.Expect(reserve(x, "one")).To(BeTrue())
		g.Expect(reserve(x, "two")).To(BeFalse())
		time.Sleep(reservationTime - time.Second)
		g.Expect(x.Full("a")).To(Equal(v1alpha1.ReasonIncidentLimit))
		time.Sleep(time.Second)
		synctest.Wait()
		g.Expect(x.Full("a")).To(BeEmpty())
		g.Expect(x.incidents).To(BeEmpty())
	})
}

// TestAlertEventsByHandFillTheirNamespaceOnly has a tenant create AlertEvents for more Incidents than all may have.
func TestAlertEventsByHandFillTheirNamespaceOnly(t *testing.T) {
	g := NewWithT(t)
	x := newCounts(Limits{Incidents: 12})
	for i := range 100 {
		x.SetEvent(waitingEvent("bad", fmt.Sprint(i), fmt.Sprint("a", i), fmt.Sprint("b", i)), false)
	}
	g.Expect(x.Full("bad")).To(Equal(v1alpha1.ReasonIncidentLimit))
	g.Expect(x.Full("good")).To(BeEmpty())
	g.Expect(reported(x, incidentsRatio)[""]).To(Equal(0.25))
	for i := range 100 {
		x.RemoveEvent(waitingEvent("bad", fmt.Sprint(i)))
	}
	g.Expect(x.incidents).To(BeEmpty())
	g.Expect(x.events).To(BeEmpty())
	g.Expect(x.expected.Sum()).To(BeZero())
}

func TestTheIncidentsOfAnIntegration(t *testing.T) {
	counts := newCounts(Limits{})
	own := []string{v1alpha1.IncidentName("mon", "a"), v1alpha1.IncidentName("mon", "b")}
	for _, name := range append(own, v1alpha1.IncidentName("mon-2", "a"), v1alpha1.IncidentName("other", "a"), "mon-x") {
		counts.SetIncident(openIncidentNamed("n", name), true)
	}
	counts.SetEvent(waitingEvent("n", "e", v1alpha1.IncidentName("mon", "waits")), true)
	NewWithT(t).Expect(counts.OfIntegration("n", "mon")).To(ConsistOf(own))
}
