package controllers

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

func largeEvent(namespace string, n, bytes int) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{}
	event.Namespace, event.Name, event.UID = namespace, fmt.Sprint(n), types.UID(fmt.Sprint(namespace, n))
	event.Spec.Alerts = []v1alpha1.Alert{{ID: "1", IncidentName: "x", Status: v1alpha1.AlertFiring, AlertContent: v1alpha1.AlertContent{
		Title: "disk", Description: strings.Repeat("x", bytes),
	}}}
	return event
}

func TestTheCacheHasABudgetForContent(t *testing.T) {
	g, memory := NewWithT(t), NewEventMemory(nil)
	memory.cached = newCachedContent(fair.Limit{All: 100_000, Share: 0.5})
	condense := func(event *v1alpha1.AlertEvent) (whole bool) {
		_, err := memory.Condense(event)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(event.Spec.Alerts[0].ID+event.Spec.Alerts[0].IncidentName).To(Equal("1x"), "its Incident is known")
		g.Expect(event.IsCondensed()).To(Equal(event.Spec.Alerts[0].Title == ""))
		return !event.IsCondensed()
	}
	kept := 0
	for n := range 100 { // what a user creates by hand
		event := largeEvent("a", n, 5000)
		if condense(event) {
			kept++
		}
		before := event.DeepCopy()
		condense(event)
		g.Expect(event).To(Equal(before), "client-go may transform it twice")
	}
	g.Expect(kept).To(BeNumerically("~", 8, 2))
	g.Expect(condense(largeEvent("b", 1, 5000))).To(BeTrue(), "another namespace has its own share")
	g.Expect(condense(largeEvent("a", 0, 5000))).To(BeTrue(), "as decided at first: a watch shows it again")
	g.Expect(condense(largeEvent("a", 99, 5000))).To(BeFalse())

	for n := range 100 {
		memory.forget(largeEvent("a", n, 0))
	}
	g.Expect(condense(largeEvent("a", 100, 5000))).To(BeTrue())
	memory.forget(largeEvent("a", 100, 0))
	memory.forget(largeEvent("b", 1, 0))
	g.Expect(memory.cached.events).To(BeEmpty())
	g.Expect(memory.cached.budget.Sum()).To(BeZero())
}

func TestAlertsWithoutContentInTheCacheAreFoldedWhole(t *testing.T) {
	s := newSite(t)
	s.incidents.memory.cached = newCachedContent(fair.Limit{All: 1, Share: 1})
	s.PostFiring("other") // takes the place
	long := func(n int) v1alpha1.Alert {
		alert := s.Alert(v1alpha1.AlertFiring, "disk")
		alert.Title, alert.Description = fmt.Sprint("disk ", n), strings.Repeat("d", 4000)
		alert.Values = v1alpha1.Bag{}
		for i := range 100 {
			alert.Values[fmt.Sprint("v", i)] = []byte(`"` + strings.Repeat("v", 1500) + `"`)
		}
		return alert
	}
	var events []*v1alpha1.AlertEvent
	const perEvent, count = 6, 10
	for n := range count {
		var alerts []v1alpha1.Alert
		for i := range perEvent {
			alerts = append(alerts, long(perEvent*n+i))
		}
		events = append(events, s.Post(alerts...))
	}
	s.Expect(s.reconcile("disk")).NotTo(BeNil())
	first := s.Incident("disk").Status.AlertCount
	s.Expect(first).To(And(BeNumerically(">", 0), BeNumerically("<", perEvent*count)), "as many as may be in memory")
	s.Expect(s.Incident("disk").Status.Alert.Title).To(Equal(fmt.Sprint("disk ", first-1)), "the oldest ones")
	for s.Incident("disk").Status.AlertCount < perEvent*count {
		s.pass(writeInterval)
		s.fold("disk")
		s.release()
	}
	s.Expect(s.Incident("disk").Status.Alert.Title).To(Equal(fmt.Sprint("disk ", perEvent*count-1)))
	s.expectCounted("disk", events...)
}
