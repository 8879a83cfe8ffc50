package incident

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

// hourWindow is a window between two hours after testEpoch.
func hourWindow(from, to int) v1alpha1.MaintenanceWindow {
	hour := func(n int) *v1alpha1.Timestamp {
		return new(v1alpha1.NewTimestamp(testEpoch.Add(time.Duration(n) * time.Hour)))
	}
	return v1alpha1.MaintenanceWindow{Name: "db", StartTime: hour(from), EndTime: hour(to)}
}

// A leader whose clock is two hours ahead mutes by the clock of the API server.
func TestIncidentsAreMutedByTheTimeOfTheAPIServer(t *testing.T) {
	s := newSite(t)
	l := s.listen()
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Maintenance = []v1alpha1.MaintenanceWindow{hourWindow(1, 3)}
	})
	const ahead = 2 * time.Hour
	at := func(hours int) {
		s.Clock.SetTime(testEpoch.Add(time.Duration(hours)*time.Hour + ahead))
		s.answer(l, ahead)
	}
	at(0)
	s.PostFiring("before")
	s.fold("before")
	s.Expect(s.Incident("before").Status.Mute).To(BeNil())
	at(2)
	s.PostFiring("within")
	s.fold("within")
	s.fold("before")
	s.Expect(s.Incident("within").Status.Mute.EndTime.Time).To(Equal(testEpoch.Add(3 * time.Hour)))
	s.Expect(s.Incident("within").Status.Mute.ForwardedSeverity).To(BeEmpty())
	s.Expect(s.Incident("before").Status.Mute.ForwardedSeverity).To(Equal(v1alpha1.SeverityWarning))
	s.folder = s.newFolder() // a new leader
	s.incidents.Health = l
	at(3)
	s.fold("within")
	s.Expect(s.Incident("within").Status.Mute).To(BeNil())
	s.Expect(s.Incident("within").Status.AlertCount).To(BeEquivalentTo(1))
}

func TestTheIncidentsOfAnIntegrationAreFoldedWhenItsWindowsOpenAndEnd(t *testing.T) {
	g := NewWithT(t)
	w, shop := &windowWatch{plans: map[types.NamespacedName]*watchedPlan{}}, types.NamespacedName{Namespace: "team", Name: "shop"}
	hour := func(n float64) time.Time { return testEpoch.Add(time.Duration(n * float64(time.Hour))) }
	at := func(n float64) bool { return len(w.changed(hour(n))) > 0 }
	nightly := v1alpha1.MaintenanceWindow{Name: "n", Schedule: "0 20 * * *", Duration: &metav1.Duration{Duration: time.Hour}}
	plan := maintenance.New([]v1alpha1.MaintenanceWindow{hourWindow(1, 3), nightly})
	w.set(shop, plan, hour(0))
	g.Expect(at(0.9)).To(BeFalse())
	g.Expect(at(1)).To(BeTrue(), "one opens")
	w.set(shop, plan, hour(1)) // as after a change of the status
	g.Expect(at(2.9)).To(BeFalse())
	g.Expect(at(3)).To(BeTrue(), "it ends")
	g.Expect(at(2.99)).To(BeTrue(), "the clock was set back: it is open again")
	g.Expect(at(3)).To(BeTrue(), "and ends again")
	g.Expect(at(7.9)).To(BeFalse())
	g.Expect(at(8.5)).To(BeTrue(), "another one opens")
	g.Expect(at(100)).To(BeTrue(), "after a long pause, once")
	g.Expect(at(100.1)).To(BeFalse())
	w.set(shop, nil, time.Time{})
	g.Expect(w.plans).To(BeEmpty())
}
