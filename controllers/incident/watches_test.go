package incident

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	expirecache "k8s.io/apimachinery/pkg/util/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/controllers/sweep"
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
	g.Expect(taken(queue)).To(BeEmpty())
	watch.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
	g.Expect(taken(queue)).To(ConsistOf(own))
	g.Expect(resolved.revisited).To(BeEmpty(), "their retention is the same")
	longer := after.DeepCopy()
	longer.Generation, longer.ResourceVersion, longer.Spec.Retention = 3, "3", &metav1.Duration{Duration: time.Hour}
	watch.Update(t.Context(), event.UpdateEvent{ObjectOld: after, ObjectNew: longer}, queue)
	g.Expect(taken(queue)).To(ConsistOf(own))
	g.Expect(resolved.revisited).To(ConsistOf("n"), "the Resolved ones")
	watch.Delete(t.Context(), event.DeleteEvent{Object: longer}, queue)
	g.Expect(taken(queue)).To(ConsistOf(own))
	kept, _ := r.retentions.Get(client.ObjectKeyFromObject(longer))
	g.Expect(kept).To(Equal(time.Hour))
}

// An outage in which 500 heartbeats of an integration are missed enqueues its Incidents twice: at its beginning and at its end.
func TestHeartbeatsEnqueueTheirIncidents(t *testing.T) {
	g := NewWithT(t)
	queue, _ := requests.NewQueue(1, requests.NameOf)("", requests.Backoff[reconcile.Request]()).(*fair.Queue[reconcile.Request])
	defer queue.ShutDown()
	scheme := runtime.NewScheme()
	g.Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	beat := func(name string, missed time.Duration) *v1alpha1.Heartbeat {
		h := &v1alpha1.Heartbeat{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
		h.Spec.IntegrationName = "mon"
		if missed > 0 {
			h.Status.MissedTime = new(v1alpha1.NewTimestamp(now.Add(missed)))
		}
		return h
	}
	own := []string{v1alpha1.IncidentName("mon", "a"), v1alpha1.IncidentName("mon", "b")}
	r := &reconciler{
		Options: Options{Health: always{clocktesting.NewFakeClock(now)}}, counts: namesOf{"mon": own}, missedBeats: expirecache.NewLRUExpireCache(1),
	}
	changes := func(before, after *v1alpha1.Heartbeat, others ...client.Object) []string {
		cached := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&v1alpha1.Heartbeat{}, v1alpha1.IntegrationField,
			func(client.Object) []string { return []string{"mon"} }).WithObjects(others...)
		if after != nil {
			after.ResourceVersion = "2"
			cached = cached.WithObjects(after.DeepCopy())
		}
		r.cache = cached.Build()
		if after == nil {
			r.onHeartbeat().Delete(t.Context(), event.DeleteEvent{Object: before}, queue)
		} else {
			r.onHeartbeat().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
		}
		return taken(queue)
	}
	const first, second = time.Second, 2 * time.Second
	g.Expect(changes(beat("x", 0), beat("x", first), beat("y", 0))).To(ConsistOf(own), "it is the first")
	g.Expect(changes(beat("x", 0), beat("x", first), beat("y", second))).To(ConsistOf(own), "though the cache has the next one")
	g.Expect(changes(beat("y", 0), beat("y", second), beat("x", first))).To(BeEmpty())
	g.Expect(changes(beat("y", second), beat("y", 0), beat("x", first))).To(BeEmpty(), "another one is still missed")
	g.Expect(changes(beat("y", second), beat("y", 0), beat("x", 0))).To(ConsistOf(own), "it was the last")
	g.Expect(changes(beat("y", 0), beat("y", 0))).To(BeEmpty())
	g.Expect(r.missedBeats.Keys()).To(BeEmpty())

	y := v1alpha1.IncidentName("mon", v1alpha1.HeartbeatKey("y"))
	g.Expect(changes(beat("y", 0), nil)).To(ConsistOf(y))
	g.Expect(changes(beat("y", second), nil, beat("x", 0))).To(ConsistOf(append([]string{y}, own...)))
	at, _ := r.missedBeats.Get(types.NamespacedName{Namespace: "n", Name: "mon"})
	g.Expect(at).To(Equal(now), "since then, its Incidents may end for want of alerts")
}

// namesOf are the names of the Incidents of integrations.
type namesOf map[string][]string

func (namesOf) MayOpen(string) bool { return true }

func (namesOf) Fits(*v1alpha1.Incident, *v1alpha1.IncidentStatus) bool { return true }

func (namesOf) Hides(string) bool { return false }

func (n namesOf) OfIntegration(_, integration string) []string { return n[integration] }

// taken takes what is in the queue.
func taken(queue *fair.Queue[reconcile.Request]) []string {
	names := []string{}
	for queue.Len() > 0 {
		request, _ := queue.Get()
		names = append(names, request.Name)
		queue.Done(request)
	}
	return names
}

// TestAHeartbeatWasNotMissedUntilTheFuture sets the API server's clock back after a heartbeat was deleted that was missed.
func TestAHeartbeatWasNotMissedUntilTheFuture(t *testing.T) {
	g, integration := NewWithT(t), types.NamespacedName{Namespace: "team", Name: "app"}
	r := newReconciler(nil, nil, nil, Options{Clock: clocktesting.NewFakePassiveClock(testEpoch), Ingest: backlogOf(0)})
	g.Expect(r.missedUntil(integration, testEpoch)).To(BeZero())
	r.missedBeats.Add(integration, testEpoch, missedMemory)
	for _, passed := range []time.Duration{0, time.Hour, -time.Minute} {
		g.Expect(r.missedUntil(integration, testEpoch.Add(passed))).To(Equal(testEpoch), "%s", passed)
	}
	back := testEpoch.Add(-time.Hour)
	g.Expect(r.missedUntil(integration, back)).To(Equal(back))
	g.Expect(r.missedUntil(integration, back.Add(time.Minute))).To(Equal(back), "not from each look on")
}
