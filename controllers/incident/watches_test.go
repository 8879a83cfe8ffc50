package incident

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/queue"
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

	worst := s.Alert(v1alpha1.AlertFiring, "critical")
	worst.Severity = v1alpha1.SeverityCritical
	s.Post(worst)
	s.fold("critical")
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
		"a repeat beside that of a more severe Incident is not": {
			alerts: []v1alpha1.Alert{s.Alert(v1alpha1.AlertFiring, "open"), worst}, want: handler.LowPriority},
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
			queue := newQueue(t)
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
	queue := newQueue(t)
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

// newQueue is a queue of folds that ends with the test.
func newQueue(t *testing.T) *fair.Queue[reconcile.Request] {
	t.Helper()
	queue, _ := requests.NewQueue(1, requests.NameOf)("", requests.Backoff[reconcile.Request]()).(*fair.Queue[reconcile.Request])
	t.Cleanup(queue.ShutDown)
	return queue
}

func TestAnAlertEventEnqueuesTheIncidentsThatItConcerns(t *testing.T) {
	s := newSite(t)
	for _, key := range []string{"open", "over"} {
		s.PostFiring(key)
		s.fold(key)
	}
	s.Post(s.Alert(v1alpha1.AlertResolved, "over"))
	s.fold("over")
	s.release()
	posted := s.Post(s.Alert(v1alpha1.AlertResolved, "open"), s.Alert(v1alpha1.AlertResolved, "over"))
	open, over := s.KeyOf("open").Name, s.KeyOf("over").Name
	later := func(change func(later *v1alpha1.AlertEvent)) *v1alpha1.AlertEvent {
		later := posted.DeepCopy()
		later.ResourceVersion += "1"
		change(later)
		return later
	}
	marked := later(func(later *v1alpha1.AlertEvent) {
		mark := queue.Mark{ResourceVersion: posted.ResourceVersion, Incidents: []string{over}}
		later.Annotations = map[string]string{v1alpha1.SettledAnnotation: mark.String()}
	})
	full := queue.NewBoundedCached(fair.Limit{All: 1 << 20, Share: 1}, fair.Limit{All: 1, Share: 1})
	_, err := full.Condense(s.PostFiring("other").DeepCopy())
	s.Expect(err).NotTo(HaveOccurred())
	stub, err := full.Condense(posted.DeepCopy())
	s.Expect(err).NotTo(HaveOccurred())
	for sentence, change := range map[string]struct {
		before, after client.Object // nil: it was not there, or is gone
		want          []string
	}{
		"when it comes, all":                   {after: posted, want: []string{open, over}},
		"when its content comes, all":          {before: stub.(client.Object), after: posted, want: []string{open, over}},
		"when it is marked, those of the mark": {before: posted, after: marked, want: []string{over}},
		"when it is rewritten, none":           {before: posted, after: later(func(*v1alpha1.AlertEvent) {})},
		"when it is gone, those that are Open": {before: posted, want: []string{open}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, folds, watch := NewWithT(t), newQueue(t), s.incidents.onEvent()
			switch {
			case change.before == nil:
				watch.Create(t.Context(), event.CreateEvent{Object: change.after}, folds)
			case change.after == nil:
				watch.Delete(t.Context(), event.DeleteEvent{Object: change.before}, folds)
			default:
				watch.Update(t.Context(), event.UpdateEvent{ObjectOld: change.before, ObjectNew: change.after}, folds)
			}
			g.Expect(testsite.Taken(folds)).To(ConsistOf(change.want))
		})
	}
}

func TestTheMarkOfAnAlertEventIsKnownOnceTheCacheShowsIt(t *testing.T) {
	s := newSite(t)
	marked := s.PostFiring("disk")
	mark := queue.Mark{ResourceVersion: marked.ResourceVersion, All: true}
	marked.Annotations = map[string]string{v1alpha1.SettledAnnotation: mark.String()}
	marked.ResourceVersion += "1"
	s.incidents.onEvent().Create(t.Context(), event.CreateEvent{Object: marked}, newQueue(t))
	s.Expect(s.incidents.releases.IsSettled(marked, s.KeyOf("disk").Name)).To(BeTrue())
}

func TestAnIncidentIsFoldedWhenItChangesAndWhenSomebodyDeletesIt(t *testing.T) {
	s := newSite(t)
	s.PostFiring("disk")
	s.fold("disk")
	incident, folds, watch := s.Incident("disk"), newQueue(t), s.incidents.onIncident()
	changed := incident.DeepCopy()
	changed.ResourceVersion += "1"
	watch.Create(t.Context(), event.CreateEvent{Object: incident}, folds)
	s.Expect(testsite.Taken(folds)).To(ConsistOf(incident.Name))
	watch.Update(t.Context(), event.UpdateEvent{ObjectOld: incident, ObjectNew: changed}, folds)
	s.Expect(testsite.Taken(folds)).To(ConsistOf(incident.Name))
	watch.Delete(t.Context(), event.DeleteEvent{Object: incident}, folds)
	s.Expect(testsite.Taken(folds)).To(ConsistOf(incident.Name))

	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.fold("disk")
	watch.Delete(t.Context(), event.DeleteEvent{Object: s.Incident("disk")}, folds)
	s.Expect(testsite.Taken(folds)).To(BeEmpty(), "the cache has none that is Resolved")
}

func TestAnIntegrationEnqueuesItsIncidentsWhenItsPolicyMayBeAnother(t *testing.T) {
	own := []string{v1alpha1.IncidentName("mon", "a")}
	before := &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "mon", Generation: 1, ResourceVersion: "1"},
	}
	for sentence, test := range map[string]struct {
		change func(after *v1alpha1.WebhookIntegration)
		want   []string
	}{
		"not when its status changes":    {change: func(after *v1alpha1.WebhookIntegration) { after.Status.ObservedGeneration = 1 }},
		"when its labels change":         {change: func(after *v1alpha1.WebhookIntegration) { after.Labels = map[string]string{"team": "a"} }, want: own},
		"when the cache has but a stub":  {change: func(after *v1alpha1.WebhookIntegration) { integrations.MakeStub(after, true) }, want: own},
		"when its specification changes": {change: func(after *v1alpha1.WebhookIntegration) { after.Generation = 2 }, want: own},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, folds := NewWithT(t), newQueue(t)
			r := &reconciler{counts: namesOf{"mon": own}, sweeper: &noResolved{}, retentions: expirecache.NewLRUExpireCache(1)}
			after := before.DeepCopy()
			after.ResourceVersion = "2"
			test.change(after)
			r.onIntegration().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, folds)
			g.Expect(testsite.Taken(folds)).To(ConsistOf(test.want))
		})
	}
}

// asking is a Forwarder that requests the fold of an Incident at once.
type asking struct {
	justBegun
	incident types.NamespacedName
}

func (a asking) RequestFolds(_ context.Context, request func(types.NamespacedName)) {
	request(a.incident)
}

func TestTheForwardingRequestsFolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, folds := NewWithT(t), newQueue(t)
		defer folds.ShutDown()
		name := v1alpha1.IncidentName("mon", "a")
		r := &reconciler{Options: Options{Forwarder: asking{incident: types.NamespacedName{Namespace: "team", Name: name}}}}
		g.Expect(r.watchForwarding(t.Context(), folds)).To(Succeed())
		synctest.Wait()
		g.Expect(testsite.Taken(folds)).To(ConsistOf(name))
	})
}
