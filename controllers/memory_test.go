package controllers

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestWhichEventsAreSecondCopies(t *testing.T) {
	const serverMade = "01a1fc76-5bd7-792d-a695-2a362506dd6e"
	keyed := v1alpha1.KeyedEventName("shop", "x")
	for sentence, test := range map[string]struct {
		name  string
		uid   int
		id    string
		after time.Duration
		want  bool

		unfolded bool // the first one was not marked
	}{
		"the same name with another UID":                        {name: serverMade, uid: 2, want: true},
		"the same name and UID, as after a restore":             {name: serverMade, uid: 1},
		"after two minutes the name is forgotten":               {name: serverMade, uid: 2, after: replayWindow + 1},
		"the name of an idempotency key, with the same alerts":  {name: keyed, uid: 2, id: "1", want: true},
		"the name of an idempotency key, with other alerts":     {name: keyed, uid: 2, id: "2"},
		"a key whose event a user deleted before its fold":      {name: keyed, uid: 2, id: "1", unfolded: true},
		"a name given by a person may come again":               {name: "by-hand", uid: 2},
		"another name is another event, whatever else is same":  {name: "01a1fc76-5bd7-792d-a695-2a362506dd6f", uid: 1},
		"a name is remembered while very many others are, too":  {name: serverMade, uid: 2, after: replayWindow - 1, want: true},
		"the second copy is deleted, and a third one is no new": {name: serverMade, uid: 3, want: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			clock := clocktesting.NewFakePassiveClock(testEpoch)
			m := NewEventMemory(clock)
			for _, name := range []string{serverMade, keyed, "by-hand"} {
				event := namedEvent(name, 1)
				event.Spec.Alerts[0].ID = "1"
				m.see(event)
				if event.Name == keyed && !test.unfolded {
					event.ResourceVersion, event.Annotations = "2", map[string]string{v1alpha1.SettledAnnotation: "1/*"}
				}
				m.forget(event)
			}
			clock.SetTime(clock.Now().Add(test.after))
			event := namedEvent(test.name, test.uid)
			event.Spec.Alerts[0].ID = test.id
			m.see(event)
			seen, ok := m.find(event.UID)
			g.Expect(ok).To(BeTrue())
			g.Expect(seen.isCopy).To(Equal(test.want))
			g.Expect(m.copies.Len() > 0).To(Equal(test.want))
		})
	}
}

func TestTheMemoryOfDeletedEventsIsBounded(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakePassiveClock(testEpoch)
	m := NewEventMemory(clock)
	for i := range 3*maxDeletedNames + 10 {
		event := namedEvent(fmt.Sprint("event-", i), i)
		m.see(event)
		m.forget(event)
		if i == maxDeletedNames {
			clock.SetTime(clock.Now().Add(time.Second))
		}
	}
	g.Expect(len(m.deleted) + len(m.older)).To(BeNumerically("<=", 2*maxDeletedNames))
	g.Expect(m.seen).To(BeEmpty())
	g.Expect(m.since).To(BeTemporally(">", testEpoch), "it does not claim to know the names that it has dropped")
	for range 2 {
		clock.SetTime(clock.Now().Add(replayWindow + time.Second))
		m.forget(namedEvent("last", 1))
	}
	g.Expect(len(m.deleted) + len(m.older)).To(BeNumerically("<=", 2))
}

// retry stores an event once more, as a writer does that has no response.
func (s *site) retry(event *v1alpha1.AlertEvent) *v1alpha1.AlertEvent {
	again := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: event.Name, Annotations: map[string]string{v1alpha1.RetryAnnotation: "true"},
		},
		Spec: *event.Spec.DeepCopy(),
	}
	s.Expect(s.Live.Create(s.Ctx, again)).To(Succeed())
	s.Created[again.UID] = metav1.NewTime(s.Clock.Now())
	return again
}

func TestASecondCopyCountsOnce(t *testing.T) {
	for sentence, test := range map[string]struct{ takeover, crash bool }{
		"with the same leader":                      {},
		"after a takeover":                          {takeover: true},
		"after a takeover by one that just started": {takeover: true, crash: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			leader, follower := s.folder, s.newFolder()
			first := s.Post(s.Alert(v1alpha1.AlertFiring, "disk"), s.Alert(v1alpha1.AlertFiring, "cpu"))
			events := []*v1alpha1.AlertEvent{first}
			watchBoth := func() {
				for _, s.folder = range []*folder{follower, leader} {
					s.watch()
				}
			}
			s.fold("cpu")
			for range 20 { // more than any ledger remembered
				s.fold("disk")
				watchBoth()
				s.release()
				s.pass(1200 * time.Millisecond)
				events = append(events, s.PostFiring("disk"))
			}
			s.fold("disk")
			s.release()
			watchBoth()
			if test.takeover {
				s.folder = follower
			}
			if test.crash {
				s.folder = s.newFolder()
			}
			s.retry(first)
			s.fold("cpu")
			s.fold("disk")
			s.expectCounted("disk", events...)
			current := s.folder
			for _, s.folder = range []*folder{follower, current} { // any replica deletes it
				s.watch()
				s.release()
			}
			s.Expect(s.EventNames()).To(BeEmpty())
			s.pass(retryHold)
			s.fold("cpu")
			s.fold("disk")
			s.expectCounted("disk", events...)
			s.expectCounted("cpu", first)
		})
	}
}

func TestARetryWaitsWhileTheMemoryIsYoung(t *testing.T) {
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.AutoResolveAfter = &metav1.Duration{Duration: time.Minute}
	})
	events := []*v1alpha1.AlertEvent{s.PostFiring("disk")}
	s.fold("disk")
	s.release()
	s.pass(49 * time.Second)
	s.memory.Listed(&v1alpha1.AlertEvent{}) // a gap in the watch
	events = append(events, s.retry(&v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Name: "01a1fc76-5bd7-792d-a695-2a362506dd6e"},
		Spec:       s.eventSpec(s.Alert(v1alpha1.AlertFiring, "disk")),
	}))
	s.pass(20 * time.Second)
	events = append(events, s.Post(s.Alert(v1alpha1.AlertResolved, "disk")))
	result := s.fold("disk")
	s.Expect(result.RequeueAfter).To(BeNumerically("<=", 10*time.Second))
	s.Expect(s.Incident("disk").Status.AlertCount).To(BeEquivalentTo(1), "the resolve waits behind the retry")
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen), "nor is the Incident resolved for silence")

	s.memory.Listed(&v1alpha1.AlertEvent{}) // another gap concerns later ones
	s.pass(10 * time.Second)
	s.fold("disk")
	s.expectCounted("disk", events...)
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
	s.Expect(s.Incident("disk").Status.Conditions[0].Reason).To(Equal(v1alpha1.ReasonResolvedByAlert))
}

// eventSpec is what the webhook server stores.
func (s *site) eventSpec(alerts ...v1alpha1.Alert) v1alpha1.AlertEventSpec {
	return v1alpha1.AlertEventSpec{IntegrationName: testsite.Integration, ReceivedTime: v1alpha1.NewTimestamp(s.Clock.Now()), Alerts: alerts}
}

func TestAKeyedRetryAfterAnEarlyReleaseCountsOnce(t *testing.T) {
	s := newSite(t)
	event := s.PostAs(v1alpha1.KeyedEventName(testsite.Integration, "delivery-1"), s.Alert(v1alpha1.AlertFiring, "disk"))
	s.fold("disk")
	s.release() // which marks it
	s.watch()
	s.Expect(s.Live.Delete(s.Ctx, event)).To(Succeed()) // too many stay for their keys
	s.watch()
	s.pass(2500 * time.Millisecond)
	s.PostAs(event.Name, event.Spec.Alerts...)
	s.fold("disk")
	s.release()
	s.expectCounted("disk", event)
	s.Expect(s.EventNames()).To(BeEmpty())
}

// The cache may show an event before the memory has seen it, and with it the end of the first copy.
func TestAMemoryThatLagsBehindTheCacheDelaysTheFold(t *testing.T) {
	s := newSite(t)
	event := s.PostFiring("disk")
	s.cache.memory = NewEventMemory(s.Clock) // not the folder's
	result, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.RequeueAfter).To(Equal(staleRetry))
	s.Expect(s.IncidentNames()).To(BeEmpty())
	s.memory.see(event)
	s.fold("disk")
	s.expectCounted("disk", event)
}

func TestAListAfterAGapShowsADeletionAndACreationAsOne(t *testing.T) {
	g := NewWithT(t)
	m := NewEventMemory(clocktesting.NewFakePassiveClock(testEpoch))
	const name = "01a1fc76-5bd7-792d-a695-2a362506dd6e"
	first, second := namedEvent(name, 1), namedEvent(name, 2)
	m.handler().OnAdd(first, true)
	m.handler().OnUpdate(first, second)
	g.Expect(m.isDeleted(eventRef{types.NamespacedName{Namespace: "team", Name: name}, "1"})).To(BeTrue())
	seen, ok := m.find("2")
	g.Expect(ok).To(BeTrue())
	g.Expect(seen.isCopy).To(BeTrue())
}
