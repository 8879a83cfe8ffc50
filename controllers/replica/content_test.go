package replica

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

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
	g, memory := NewWithT(t), NewMemory(clock.RealClock{})
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
