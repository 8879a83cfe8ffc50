package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/fair"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestABatchIsReleasedWhenAllItsAlertsAreSettled(t *testing.T) {
	s := newSite(t)
	s.Post(s.Alert(v1alpha1.AlertFiring, "a"), s.Alert(v1alpha1.AlertFiring, "b"), s.Alert(v1alpha1.AlertResolved, "none"))
	for _, key := range []string{"a", "none"} {
		s.fold(key)
		s.release()
		s.Expect(s.EventNames()).To(HaveLen(1), "after %s", key)
	}
	s.fold("b")
	s.release()
	s.Expect(s.EventNames()).To(BeEmpty())
}

func TestAnAlertThatMatchedNothingIsNotFoundAgainByALaterIncident(t *testing.T) {
	s := newSite(t)
	s.Post(s.Alert(v1alpha1.AlertResolved, "a"), s.Alert(v1alpha1.AlertFiring, "b"))
	s.fold("a")
	second := s.PostFiring("a")
	s.fold("a")
	s.expectCounted("a", second)
}

func TestAnEventWithAnIdempotencyKeyStaysTenMinutes(t *testing.T) {
	s := newSite(t)
	s.PostAs(v1alpha1.KeyedEventName(testsite.Integration, "delivery-1"), s.Alert(v1alpha1.AlertFiring, "disk"))
	s.fold("disk")
	s.release()
	s.Clock.SetTime(s.Clock.Now().Add(replica.KeyedLinger - time.Second))
	s.release()
	s.Expect(s.EventNames()).To(HaveLen(1))
	s.Clock.SetTime(s.Clock.Now().Add(time.Second))
	s.release()
	s.Expect(s.EventNames()).To(BeEmpty())

	again := s.PostAs(v1alpha1.KeyedEventName(testsite.Integration, "delivery-1"), s.Alert(v1alpha1.AlertFiring, "disk"))
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.AlertCount).To(Equal(int64(2)), "%s is no replay", again.Name)
}

func TestAReleaseNeverDeletesAnotherEventOfTheName(t *testing.T) {
	s := newSite(t)
	first := s.PostAs("by-hand", s.Alert(v1alpha1.AlertFiring, "disk"))
	s.fold("disk")
	s.Expect(s.Live.Delete(s.Ctx, first)).To(Succeed())
	second := s.PostAs("by-hand", s.Alert(v1alpha1.AlertFiring, "disk"))
	s.release()
	s.Expect(s.EventNames()).To(ConsistOf(second.Name))

	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
	s.fold("disk")
	s.expectCounted("disk", first, second)
}

func TestADeletionThatFailsIsTriedAgain(t *testing.T) {
	s := newSite(t)
	event := s.PostFiring("disk")
	s.fold("disk")
	s.faults.onDelete = func() error { return apierrors.NewInternalError(errCrash) }
	_, err := s.releases.Reconcile(s.Ctx, refOf(event))
	s.Expect(err).To(HaveOccurred())
	s.Expect(s.releases.isSettled(event, s.KeyOf("disk").Name)).To(BeTrue())
	s.faults.onDelete = nil
	s.release()
	s.Expect(s.EventNames()).To(BeEmpty())
	s.Expect(s.releases.refs()).To(BeEmpty())
}

func TestARecordOfAnEventThatIsGoneIsDropped(t *testing.T) {
	s := newSite(t)
	event := s.Post(s.Alert(v1alpha1.AlertFiring, "a"), s.Alert(v1alpha1.AlertFiring, "b"))
	s.fold("a")
	s.release()
	s.Expect(s.releases.refs()).To(HaveLen(1), "b is not settled")
	s.Expect(s.Live.Delete(s.Ctx, event)).To(Succeed())
	s.release()
	s.Expect(s.releases.refs()).To(BeEmpty())
}

// memoryReleaser is a releaser without an API server.
func memoryReleaser() (*releaser, *clocktesting.FakePassiveClock) {
	clock := clocktesting.NewFakePassiveClock(testEpoch)
	return newReleaser(nil, nil, NewEventMemory(clock), clock), clock
}

func namedEvent(name string, uid int) *v1alpha1.AlertEvent {
	return &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(fmt.Sprint(uid))},
		Spec:       v1alpha1.AlertEventSpec{Alerts: []v1alpha1.Alert{{IncidentName: "incident"}}},
	}
}

// keyedEvents settles so many events of an integration with idempotency keys, and returns them.
func keyedEvents(r *releaser, integration string, n, bytes int) []*v1alpha1.AlertEvent {
	var events []*v1alpha1.AlertEvent
	for i := range n {
		event := namedEvent(v1alpha1.KeyedEventName(integration, fmt.Sprint(i)), i)
		event.UID = types.UID(integration + "-" + string(event.UID))
		event.Spec.IntegrationName = integration
		event.Spec.Alerts[0].Description = strings.Repeat("x", bytes)
		events = append(events, event)
		r.settle(event, "incident")
	}
	return events
}

// staying counts the events that are not due yet.
func (r *releaser) staying(events []*v1alpha1.AlertEvent) int {
	n := 0
	for _, event := range events {
		if r.records[event.UID].due.After(r.clock.Now()) {
			n++
		}
	}
	return n
}

func TestEventsThatStayForTheirKeysAreBoundedByIntegration(t *testing.T) {
	t.Run("the oldest of a busy integration go, and none of its neighbours'", func(t *testing.T) {
		g := NewWithT(t)
		r, clock := memoryReleaser()
		calm := keyedEvents(r, "calm", 10, 0)
		storm := keyedEvents(r, "storm", 60_000, 0) // 100 a second for ten minutes
		g.Expect(r.staying(storm)).To(Equal(maxLingering))
		g.Expect(r.staying(storm[:60_000-maxLingering])).To(BeZero(), "the oldest go")
		clock.SetTime(clock.Now().Add(replica.KeyedLinger - time.Second))
		g.Expect(r.staying(calm)).To(Equal(10))
		clock.SetTime(clock.Now().Add(time.Second))
		g.Expect(r.staying(calm)).To(BeZero())
	})
	t.Run("large ones are bounded by their size", func(t *testing.T) {
		g := NewWithT(t)
		r, _ := memoryReleaser()
		g.Expect(r.staying(keyedEvents(r, "large", 40, 1<<20))).To(Equal(15))
	})
	t.Run("many busy integrations leave a calm one its own", func(t *testing.T) {
		g := NewWithT(t)
		r, _ := memoryReleaser()
		calm := keyedEvents(r, "calm", 100, 0)
		all := 0
		for i := range 12 {
			all += len(keyedEvents(r, fmt.Sprint("storm-", i), maxLingering, 0))
		}
		g.Expect(all).To(BeNumerically(">", 2*maxAllLingering))
		g.Expect(r.lingering.events.Sum()).To(BeEquivalentTo(maxAllLingering))
		g.Expect(r.staying(calm)).To(Equal(100))
	})
	t.Run("what is gone is forgotten", func(t *testing.T) {
		g := NewWithT(t)
		r, _ := memoryReleaser()
		for _, event := range keyedEvents(r, "calm", 10, 100) {
			r.forget(refOf(event))
		}
		g.Expect(r.lingering.records).To(BeEmpty())
		g.Expect(r.lingering.events.Sum()).To(BeZero())
		g.Expect(r.lingering.bytes.Sum()).To(BeZero())
	})
}

func TestTheReleaseTakesTurns(t *testing.T) {
	g := NewWithT(t)
	ref := func(namespace, name string) eventRef {
		return eventRef{types.NamespacedName{Namespace: namespace, Name: name}, types.UID(name)}
	}
	q := fair.NewQueue(func(ref eventRef) string { return ref.Namespace }, namespaceWorkers(releaseConcurrency))("", requests.Backoff[eventRef]())
	defer q.ShutDown()
	for i := range 100 {
		q.Add(ref("storm", fmt.Sprint(i)))
	}
	q.Add(ref("calm", "a"))
	first, _ := q.Get()
	second, _ := q.Get()
	g.Expect([]string{first.Namespace, second.Namespace}).To(ConsistOf("storm", "calm"))
}
