package incident

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

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
			s.ExpectCounted("disk", events...)
			current := s.folder
			for _, s.folder = range []*folder{follower, current} { // any replica deletes it
				s.watch()
				s.release()
			}
			s.Expect(s.EventNames()).To(BeEmpty())
			s.pass(queue.CopyDoubt)
			s.fold("cpu")
			s.fold("disk")
			s.ExpectCounted("disk", events...)
			s.ExpectCounted("cpu", first)
		})
	}
}

func TestASecondCopyCountsOnceThoughTheLeaderStandsStill(t *testing.T) {
	s := newSite(t)
	old, first := s.folder, s.PostFiring("disk")
	s.fold("disk")
	s.release()
	s.watch()
	young, second := s.newFolder(), s.PostFiring("disk")
	young.cache.Reader = &ghostReader{Reader: s.Live, ghost: s.retry(first)}
	young.afterList = func() { // which has the second copy
		young.afterList = nil
		s.folder = old
		s.watch()
		s.release()
		s.folder = young
		s.pass(time.Minute)
	}
	s.folder = young
	s.Expect(s.fold("disk").RequeueAfter).To(BeNumerically("<=", time.Second))
	s.ExpectCounted("disk", first, second)
	young.cache.Reader = s.Live
	s.fold("disk")
	s.ExpectCounted("disk", first, second)
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
	s.watch()
	s.pass(20 * time.Second)
	events = append(events, s.Post(s.Alert(v1alpha1.AlertResolved, "disk")))
	result := s.fold("disk")
	s.Expect(result.RequeueAfter).To(BeNumerically("<=", 10*time.Second))
	s.Expect(s.Incident("disk").Status.AlertCount).To(BeEquivalentTo(1), "the resolve waits behind the retry")
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen), "nor is the Incident resolved for silence")

	s.memory.Listed(&v1alpha1.AlertEvent{}) // another gap does not delay it further
	s.pass(10 * time.Second)
	s.fold("disk")
	s.ExpectCounted("disk", events...)
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
	s.Expect(s.Incident("disk").Status.Conditions[0].Reason).To(Equal(v1alpha1.ReasonResolvedByAlert))
}

// A process that has just started does not remember that it is settled, and the ledger does.
func TestAFoldedRetryDelaysNoLaterAlert(t *testing.T) {
	s := newSite(t)
	first := s.retry(&v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Name: "01a1fc76-5bd7-792d-a695-2a362506dd6e"},
		Spec:       s.eventSpec(s.Alert(v1alpha1.AlertFiring, "disk")),
	})
	s.pass(2 * time.Second)
	s.fold("disk")
	s.pass(queue.CopyDoubt)
	s.fold("disk")
	s.ExpectCounted("disk", first)
	s.folder = s.newFolder()
	s.watch()
	second := s.PostFiring("disk")
	s.fold("disk")
	s.ExpectCounted("disk", first, second)
}

// eventSpec is what the webhook server stores.
func (s *site) eventSpec(alerts ...v1alpha1.Alert) v1alpha1.AlertEventSpec {
	return v1alpha1.AlertEventSpec{
		IntegrationName: testsite.Integration, ReceivedTime: v1alpha1.NewTimestamp(s.Clock.Now()), Alerts: testenv.Text(alerts...),
	}
}

// Ingest answered 202 to it: its first AlertEvent was gone.
func TestACopyOfARequestCountsAgainOnceItsKeyIsForgotten(t *testing.T) {
	s := newSite(t)
	first := s.PostAs(v1alpha1.KeyedEventName(testsite.Integration, "delivery-1"), s.Alert(v1alpha1.AlertFiring, "disk"))
	s.fold("disk")
	s.release() // which marks it
	s.pass(queue.KeyedLinger)
	s.release()
	s.Expect(s.EventNames()).To(BeEmpty())
	s.pass(time.Second)
	again := s.PostAs(first.Name, first.Alerts...)
	s.fold("disk")
	s.release()
	s.ExpectCounted("disk", first, again)
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
	s.PostAs(event.Name, event.Alerts...)
	s.fold("disk")
	s.release()
	s.ExpectCounted("disk", event)
	s.Expect(s.EventNames()).To(BeEmpty())
}

// The cache may show an event before the memory has seen it, and with it the end of the first copy.
func TestAMemoryThatLagsBehindTheCacheDelaysTheFold(t *testing.T) {
	s := newSite(t)
	event := s.PostFiring("disk")
	s.cache.memory = queue.NewMemory(s.Clock) // not the folder's
	result, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.RequeueAfter).To(Equal(staleRetry))
	s.Expect(s.IncidentNames()).To(BeEmpty())
	second := s.PostFiring("disk")
	s.memory.NoteShown(second, false)
	result, err = s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.RequeueAfter).To(Equal(staleRetry), "the first one is not known yet")
	s.memory.NoteShown(event, false)
	s.fold("disk")
	s.ExpectCounted("disk", event, second)
}
