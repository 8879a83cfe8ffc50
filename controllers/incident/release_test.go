package incident

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/queue"
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
	s.ExpectCounted("a", second)
}

func TestAnEventWithAnIdempotencyKeyStaysTenMinutes(t *testing.T) {
	s := newSite(t)
	s.PostAs(v1alpha1.KeyedEventName(testsite.Integration, "delivery-1"), s.Alert(v1alpha1.AlertFiring, "disk"))
	s.fold("disk")
	s.release()
	s.Clock.SetTime(s.Clock.Now().Add(queue.KeyedLinger - time.Second))
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
	s.ExpectCounted("disk", first, second)
}

func TestADeletionThatFailsIsTriedAgain(t *testing.T) {
	s := newSite(t)
	event := s.PostFiring("disk")
	s.fold("disk")
	s.faults.onDelete = func() error { return apierrors.NewInternalError(errCrash) }
	_, err := s.releases.Reconcile(s.Ctx, queue.RefOf(event))
	s.Expect(err).To(HaveOccurred())
	s.Expect(s.releases.IsSettled(event, s.KeyOf("disk").Name)).To(BeTrue())
	s.faults.onDelete = nil
	s.release()
	s.Expect(s.EventNames()).To(BeEmpty())
	s.Expect(s.releases.Refs()).To(BeEmpty())
}

func TestARecordOfAnEventThatIsGoneIsDropped(t *testing.T) {
	s := newSite(t)
	event := s.Post(s.Alert(v1alpha1.AlertFiring, "a"), s.Alert(v1alpha1.AlertFiring, "b"))
	s.fold("a")
	s.release()
	s.Expect(s.releases.Refs()).To(HaveLen(1), "b is not settled")
	s.Expect(s.Live.Delete(s.Ctx, event)).To(Succeed())
	s.release()
	s.Expect(s.releases.Refs()).To(BeEmpty())
}
