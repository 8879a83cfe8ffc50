package heartbeat

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

func TestAnIntegrationMissesAHeartbeat(t *testing.T) {
	g, now := NewWithT(t), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	stamp := func(minute int) *v1alpha1.Timestamp {
		return new(v1alpha1.NewTimestamp(now.Add(time.Duration(minute) * time.Minute)))
	}
	sender := func(beats ...*v1alpha1.Heartbeat) fold.Sender { return senderOf(beats) }
	g.Expect(sender().Missing).To(BeFalse())
	g.Expect(sender().PresentFrom).To(BeZero())

	a, b := &v1alpha1.Heartbeat{}, &v1alpha1.Heartbeat{}
	a.Name, b.Name, b.Status.MissedTime = "a", "b", stamp(1)
	g.Expect(sender(a, b).Keys).To(ConsistOf("heartbeat/a", "heartbeat/b"))
	g.Expect(sender(a, b).Missing).To(BeTrue())
	g.Expect(sender(b, a).Missing).To(BeTrue(), "in any order")
	g.Expect(sender(a).Missing).To(BeFalse())
	b.Status.MissedTime, b.Status.MissedUntilTime = nil, stamp(3)
	g.Expect(sender(b, a).Missing).To(BeFalse())
	g.Expect(sender(b, a).PresentFrom).To(Equal(stamp(3).Time))
	a.Status.ObservedTime = stamp(4)
	g.Expect(sender(b, a).PresentFrom).To(Equal(stamp(4).Time), "one that was missed was deleted and defined again")
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
	f := NewFeature(nil, &fixedHealth{now: now}, namesOf{"mon": own})
	changes := func(before, after *v1alpha1.Heartbeat, others ...client.Object) []string {
		cached := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&v1alpha1.Heartbeat{}, v1alpha1.IntegrationField,
			func(client.Object) []string { return []string{"mon"} }).WithObjects(others...)
		if after != nil {
			after.ResourceVersion = "2"
			cached = cached.WithObjects(after.DeepCopy())
		}
		f.cache = cached.Build()
		if after == nil {
			f.onHeartbeat().Delete(t.Context(), event.DeleteEvent{Object: before}, queue)
		} else {
			f.onHeartbeat().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
		}
		return testsite.Taken(queue)
	}
	const first, second = time.Second, 2 * time.Second
	g.Expect(changes(beat("x", 0), beat("x", first), beat("y", 0))).To(ConsistOf(own), "it is the first")
	g.Expect(changes(beat("x", 0), beat("x", first), beat("y", second))).To(ConsistOf(own), "though the cache has the next one")
	g.Expect(changes(beat("y", 0), beat("y", second), beat("x", first))).To(BeEmpty())
	g.Expect(changes(beat("y", second), beat("y", 0), beat("x", first))).To(BeEmpty(), "another one is still missed")
	g.Expect(changes(beat("y", second), beat("y", 0), beat("x", 0))).To(ConsistOf(own), "it was the last")
	g.Expect(changes(beat("y", 0), beat("y", 0))).To(BeEmpty())
	g.Expect(f.missed.Keys()).To(BeEmpty())

	y := v1alpha1.IncidentName("mon", v1alpha1.HeartbeatKey("y"))
	g.Expect(changes(beat("y", 0), nil)).To(ConsistOf(y))
	g.Expect(changes(beat("y", second), nil, beat("x", 0))).To(ConsistOf(append([]string{y}, own...)))
	at, _ := f.missed.Get(types.NamespacedName{Namespace: "n", Name: "mon"})
	g.Expect(at).To(Equal(now), "since then, its Incidents may end for want of alerts")
}

// namesOf are the names of the Incidents of integrations.
type namesOf map[string][]string

func (n namesOf) OfIntegration(_, integration string) []string { return n[integration] }

// TestAHeartbeatWasNotMissedUntilTheFuture sets the API server's clock back after a heartbeat was deleted that was missed.
func TestAHeartbeatWasNotMissedUntilTheFuture(t *testing.T) {
	epoch := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	g, integration := NewWithT(t), types.NamespacedName{Namespace: "team", Name: "app"}
	f := NewFeature(nil, nil, nil)
	g.Expect(f.missedUntil(integration, epoch)).To(BeZero())
	f.missed.Add(integration, epoch, missedMemory)
	for _, passed := range []time.Duration{0, time.Hour, -time.Minute} {
		g.Expect(f.missedUntil(integration, epoch.Add(passed))).To(Equal(epoch), "%s", passed)
	}
	back := epoch.Add(-time.Hour)
	g.Expect(f.missedUntil(integration, back)).To(Equal(back))
	g.Expect(f.missedUntil(integration, back.Add(time.Minute))).To(Equal(back), "not from each look on")
}

func TestNothingEndsForWantOfAlertsWhileNobodyCanTell(t *testing.T) {
	g, now := NewWithT(t), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	scheme := runtime.NewScheme()
	g.Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	key := types.NamespacedName{Namespace: "n", Name: "mon"}
	link := &v1alpha1.Heartbeat{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "link"}}
	link.Spec.IntegrationName, link.Spec.Every = "mon", &metav1.Duration{Duration: time.Minute}
	link.Spec.Match = &v1alpha1.HeartbeatMatch{AnyRequest: true}
	senderOf := func(federates bool, known fold.Sender, beats ...client.Object) fold.Sender {
		f := NewFeature(nil, &fixedHealth{now: now}, nil)
		f.cache = fake.NewClientBuilder().WithScheme(scheme).WithObjects(beats...).WithIndex(&v1alpha1.Heartbeat{},
			v1alpha1.IntegrationField, func(client.Object) []string { return []string{"mon"} }).Build()
		f.missed.Add(key, now.Add(-time.Minute), missedMemory)
		integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "mon"}}
		integration.Spec.Federate = federates
		policy := fold.Policy{Sender: known}
		g.Expect(f.AddTo(t.Context(), &policy, integration)).To(Succeed())
		return policy.Sender
	}
	deleted := now.Add(-time.Minute)
	g.Expect(senderOf(false, fold.Sender{})).To(Equal(fold.Sender{PresentFrom: deleted}), "one was missed until it was deleted")
	g.Expect(senderOf(true, fold.Sender{}).Missing).To(BeTrue(), "nobody watches the link")
	watched := senderOf(true, fold.Sender{}, link)
	g.Expect(watched.Missing).To(BeFalse())
	g.Expect(watched.Keys).To(ConsistOf("heartbeat/link"))
	other := fold.Sender{Missing: true, PresentFrom: now, Keys: []string{"other"}}
	g.Expect(senderOf(false, other)).To(Equal(other), "what another feature knows stays")
}

func TestATermForgetsWhatAnEarlierOneHasNoted(t *testing.T) {
	g, integration := NewWithT(t), types.NamespacedName{Namespace: "team", Name: "app"}
	f := NewFeature(nil, nil, nil)
	f.missed.Add(integration, time.Unix(1, 0), missedMemory)
	f.Source(nil)
	g.Expect(f.missedUntil(integration, time.Unix(2, 0))).To(BeZero())
}
