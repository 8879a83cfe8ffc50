package incident

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	expirecache "k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/controllers/sweep"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

// A key that only repeats itself never makes another one's opening wait, nor its own resolve.
func TestOnlyRepeatsOfOpenIncidentsAreNotUrgent(t *testing.T) {
	s := newSite(t)
	s.PostFiring("open")
	s.fold("open")
	s.PostFiring("over")
	s.fold("over")
	s.Post(s.Alert(v1alpha1.AlertResolved, "over"))
	s.fold("over")
	s.release()

	severe := func(severity v1alpha1.Severity) v1alpha1.Alert {
		alert := s.Alert(v1alpha1.AlertFiring, "open")
		alert.Severity = severity
		return alert
	}
	for sentence, test := range map[string]struct {
		alerts  []v1alpha1.Alert
		initial bool
		deleted bool
		want    int
	}{
		"a repeat of an open Incident is not urgent": {
			alerts: []v1alpha1.Alert{s.Alert(v1alpha1.AlertFiring, "open"), s.Alert(v1alpha1.AlertFiring, "open")}, want: handler.LowPriority},
		"a repeat with a higher severity is": {alerts: []v1alpha1.Alert{s.Alert(v1alpha1.AlertFiring, "open"), severe("critical")}},
		"a repeat with a lower one is not":   {alerts: []v1alpha1.Alert{severe("info")}, want: handler.LowPriority},
		"a resolve among repeats is": {
			alerts: []v1alpha1.Alert{s.Alert(v1alpha1.AlertResolved, "open"), s.Alert(v1alpha1.AlertFiring, "open")}},
		"an alert of a new key is":            {alerts: []v1alpha1.Alert{s.Alert(v1alpha1.AlertFiring, "new")}},
		"an alert of a resolved Incident is":  {alerts: []v1alpha1.Alert{s.Alert(v1alpha1.AlertFiring, "over")}},
		"an alert from before this leader is": {alerts: []v1alpha1.Alert{s.Alert(v1alpha1.AlertFiring, "open")}, initial: true},
		"the end of an AlertEvent is not": {
			alerts: []v1alpha1.Alert{s.Alert(v1alpha1.AlertFiring, "open")}, deleted: true, want: handler.LowPriority},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			queue, _ := requests.NewQueue(1, requests.NameOf)("", requests.Backoff[reconcile.Request]()).(*fair.Queue[reconcile.Request])
			defer queue.ShutDown()
			posted, watch := s.Post(test.alerts...), s.incidents.onEvent()
			if test.deleted {
				watch.Delete(t.Context(), event.DeleteEvent{Object: posted}, queue)
			} else {
				watch.Create(t.Context(), event.CreateEvent{Object: posted, IsInInitialList: test.initial}, queue)
			}
			_, priority, _ := queue.GetWithPriority()
			g.Expect(priority).To(Equal(test.want))
		})
	}
}

// Whoever is to wait for longer than until the next sweep leaves the queue.
func TestARestingIncidentLeavesTheQueue(t *testing.T) {
	s := newSite(t)
	for key, wait := range map[string]time.Duration{"long": 3 * sweep.Interval, "short": sweep.Interval} {
		s.PostFiring(key)
		s.Post(s.Alert(v1alpha1.AlertResolved, key))
		s.fold(key)
		s.release()
		incident := s.Incident(key)
		at, ok := fold.Deadline(incident, fold.PolicyOf(nil, nil))
		s.Expect(ok).To(BeTrue())
		s.Clock.SetTime(at.Add(-wait))
		result, err := s.incidents.Reconcile(s.Ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(incident)})
		s.Expect(err).NotTo(HaveOccurred())
		if wait > 2*sweep.Interval {
			s.Expect(result.RequeueAfter).To(BeZero(), key)
		} else {
			s.Expect(result.RequeueAfter).To(Equal(wait), key)
		}
	}
}

// A new policy concerns the Incidents of its integration only.
func TestAPolicyEnqueuesItsIncidents(t *testing.T) {
	g := NewWithT(t)
	queue, _ := requests.NewQueue(1, requests.NameOf)("", requests.Backoff[reconcile.Request]()).(*fair.Queue[reconcile.Request])
	defer queue.ShutDown()
	own := []string{v1alpha1.IncidentName("mon", "a"), v1alpha1.IncidentName("mon", "b")}
	before := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "mon", Generation: 1}}
	after := before.DeepCopy()
	after.Generation, after.ResourceVersion = 2, "2"
	resolved := &noResolved{}
	r := &reconciler{counts: namesOf{"mon": own}, sweeper: resolved, retentions: expirecache.NewLRUExpireCache(1)}
	watch := r.onIntegration()
	watch.Create(t.Context(), event.CreateEvent{Object: before, IsInInitialList: true}, queue)
	watch.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: before}, queue)
	g.Expect(testsite.Taken(queue)).To(BeEmpty())
	watch.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
	g.Expect(testsite.Taken(queue)).To(ConsistOf(own))
	g.Expect(resolved.revisited).To(BeEmpty(), "their retention is the same")
	longer := after.DeepCopy()
	longer.Generation, longer.ResourceVersion, longer.Spec.Retention = 3, "3", &metav1.Duration{Duration: time.Hour}
	watch.Update(t.Context(), event.UpdateEvent{ObjectOld: after, ObjectNew: longer}, queue)
	g.Expect(testsite.Taken(queue)).To(ConsistOf(own))
	g.Expect(resolved.revisited).To(ConsistOf("n"), "the Resolved ones")
	watch.Delete(t.Context(), event.DeleteEvent{Object: longer}, queue)
	g.Expect(testsite.Taken(queue)).To(ConsistOf(own))
	kept, _ := r.retentions.Get(client.ObjectKeyFromObject(longer))
	g.Expect(kept).To(Equal(time.Hour))
}

// namesOf are the names of the Incidents of integrations.
type namesOf map[string][]string

func (namesOf) MayOpen(string) bool { return true }

func (namesOf) Fits(*v1alpha1.Incident, *v1alpha1.IncidentStatus) bool { return true }

func (namesOf) Hides(string) bool { return false }

func (n namesOf) OfIntegration(_, integration string) []string { return n[integration] }
