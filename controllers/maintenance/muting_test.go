package maintenance

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
)

// hourWindow is a window from one hour after noon to another one.
func hourWindow(namespace, name string, to int) v1alpha1.MaintenanceWindow {
	hour := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Hour) }
	return testenv.Window(namespace, name, hour(1), hour(to))
}

func TestIncidentsAreFoldedWhenTheirWindowsChangeOpenAndEnd(t *testing.T) {
	g := NewWithT(t)
	w, windows := windowWatch{}, maintenance.NewWindows()
	hour := func(n float64) time.Time { return noon.Add(time.Duration(n * float64(time.Hour))) }
	at := func(n float64) (names []string) {
		now, gone := windows.All()
		for namespace, plan := range w.changed(now, gone, hour(n)) {
			for _, window := range plan {
				names = append(names, namespace+"/"+window.Name)
			}
		}
		return names
	}
	daily := v1alpha1.MaintenanceWindow{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "daily"}}
	daily.Spec.Recurring = &v1alpha1.Recurrence{Cron: "0 20 * * *", Duration: &metav1.Duration{Duration: time.Hour}}
	once, other := hourWindow("team", "db", 3), hourWindow("other", "x", 2)
	windows.Set(&once)
	windows.Set(&daily)
	g.Expect(at(0)).To(ConsistOf("team/db", "team/daily"), "they are new")
	g.Expect(at(0.9)).To(BeEmpty())
	g.Expect(at(1)).To(ConsistOf("team/db", "team/daily"), "one opens")
	told := *once.DeepCopy()
	told.Status.Integrations = "all"
	windows.Set(&told)
	g.Expect(at(2.9)).To(BeEmpty(), "a change of the status is none")
	g.Expect(at(3)).NotTo(BeEmpty(), "it ends")
	g.Expect(at(2.99)).NotTo(BeEmpty(), "the clock was set back: it is open again")
	g.Expect(at(3)).NotTo(BeEmpty(), "and ends again")
	g.Expect(at(7.9)).To(BeEmpty())
	g.Expect(at(8.5)).NotTo(BeEmpty(), "another one opens")
	windows.Set(&other)
	g.Expect(at(8.6)).To(ConsistOf("other/x"), "a namespace does not have those of another one folded")
	g.Expect(at(100)).NotTo(BeEmpty(), "after a long pause, once")
	g.Expect(at(100.1)).To(BeEmpty())
	moved := *once.DeepCopy()
	moved.Spec.Once.EndTime = v1alpha1.NewTimestamp(hour(200))
	windows.Set(&moved)
	g.Expect(at(100.2)).To(ConsistOf("team/db", "team/db"), "the window as it was, and as it is: either may be for an integration alone")
	windows.Remove(&moved)
	g.Expect(at(100.3)).To(ConsistOf("team/db"))
	windows.Remove(&daily)
	windows.Remove(&other)
	g.Expect(at(100.4)).To(HaveLen(2))
	windows.Set(&once)
	windows.Set(&moved)
	windows.Remove(&moved)
	g.Expect(at(100.4)).To(ConsistOf("team/db", "team/db"), "it came, changed and went between two looks")
	g.Expect(at(100.4)).To(BeEmpty())
	g.Expect(w).To(BeEmpty())
}

// Only the Incidents of integrations that a window is for are folded when it opens.
func TestTheIncidentsOfAWindowAreFolded(t *testing.T) {
	s := newSite(t)
	muting := &Muting{cache: s.Live}
	s.Integrate(func(*v1alpha1.WebhookIntegrationSpec) {})
	other := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "other"}}
	s.Expect(s.Live.Create(s.Ctx, other)).To(Succeed())
	window := hourWindow(s.Namespace, "db", 3)
	s.Expect(muting.integrationsOf(s.Ctx, s.Namespace, maintenance.New(window))).To(ConsistOf("shop", "other"))
	window.Spec.Integrations = &v1alpha1.IntegrationSelection{Names: []string{"other"}}
	s.Expect(muting.integrationsOf(s.Ctx, s.Namespace, maintenance.New(window))).To(ConsistOf("other"))
}

func TestTheConditionNamesOpenWindows(t *testing.T) {
	g := NewWithT(t)
	muting, whi := &Muting{Windows: maintenance.NewWindows()}, &v1alpha1.WebhookIntegration{}
	whi.Namespace = "team"
	muting.Set(new(hourWindow("team", "db", 2)))
	condition := metav1.Condition{Reason: v1alpha1.ReasonForwarding, Message: "Fine."}
	muting.Describe(&condition, whi, noon)
	g.Expect(condition.Message).To(Equal("Fine."))
	open := noon.Add(time.Hour)
	muting.Describe(&condition, whi, open)
	g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonMaintenance))
	g.Expect(condition.Message).To(Equal("Fine. " + messageOpen + "db."))
	condition.Reason = v1alpha1.ReasonAllFailing
	muting.Describe(&condition, whi, open)
	g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonAllFailing), "that is worse")
}
