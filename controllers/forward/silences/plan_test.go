package silences

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func TestTheSilencesOfANamespaceAreBounded(t *testing.T) {
	g := NewWithT(t)
	plan := NewPlan(&alerts.Target{Settings: &alerts.Settings{}}, "here", noon, 0)
	add := func(namespace string) Silence {
		key := types.NamespacedName{Namespace: namespace, Name: "new"}
		plan.add(kindRequested, key, "maria", "", noon.Add(time.Hour))
		return plan.wanted[marker{kindRequested, key, "here"}].silence
	}
	add("full")
	wanted := add("other")
	for i := range maxNamespaceSilences {
		key := types.NamespacedName{Namespace: "full", Name: fmt.Sprint(i)}
		s := Silence{ID: "x", Matchers: matchersOf(key, plan.target.Settings), Comment: marker{kindRequested, key, "here"}.String()}
		s.Status = &Status{State: "expired"}
		plan.Compare(&s)
	}
	g.Expect(plan.Calls()).To(ConsistOf(Call{Incident: types.NamespacedName{Namespace: "other", Name: "new"}, Set: wanted}))
}

func TestNamespacesTakeTurnsAtSilences(t *testing.T) {
	g := NewWithT(t)
	plan := NewPlan(&alerts.Target{Settings: &alerts.Settings{}}, "here", noon, 0)
	for i := range 10_000 {
		key := types.NamespacedName{Namespace: "storm", Name: fmt.Sprint(i)}
		s := Silence{ID: fmt.Sprint(i), Matchers: matchersOf(key, plan.target.Settings), Comment: marker{kindRequested, key, "here"}.String()}
		plan.Compare(&s)
	}
	plan.add(kindRequested, types.NamespacedName{Namespace: "calm", Name: "x"}, "maria", "", noon.Add(time.Hour))
	calls := plan.Calls()
	g.Expect(len(calls)).To(And(BeNumerically(">", MaxCalls), BeNumerically("<=", maxUnwanted+2)))
	g.Expect([]string{calls[0].Incident.Namespace, calls[1].Incident.Namespace}).To(ContainElement("calm"))
}
