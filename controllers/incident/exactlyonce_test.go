package incident

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

func TestACrashAfterTheWriteAndBeforeTheDelete(t *testing.T) {
	s := newSite(t)
	first := s.PostFiring("disk")
	s.fold("disk")

	s.folder = s.newFolder()
	s.fold("disk")
	s.Expect(s.faults.statusWrites).To(BeZero(), "the ledger knows the event")
	s.release()
	s.Expect(s.EventNames()).To(BeEmpty(), "the ledger settled it again")

	second := s.PostFiring("disk")
	s.fold("disk")
	s.ExpectCounted("disk", first, second)
}

func TestACrashBeforeTheAnswerToTheWrite(t *testing.T) {
	s := newSite(t)
	event := s.PostFiring("disk")
	s.faults.afterStatus = func() error { return errCrash }
	_, err := s.reconcile("disk")
	s.Expect(err).To(MatchError(errCrash))
	s.release()
	s.Expect(s.EventNames()).To(HaveLen(1))

	s.folder = s.newFolder()
	s.fold("disk")
	s.release()
	s.ExpectCounted("disk", event)
	s.Expect(s.EventNames()).To(BeEmpty())
}

func TestACrashBetweenCreateAndStatus(t *testing.T) {
	s := newSite(t)
	event := s.PostFiring("disk")
	s.faults.beforeStatus = func() error { return errCrash }
	_, err := s.reconcile("disk")
	s.Expect(err).To(MatchError(errCrash))
	s.Expect(s.Incident("disk").Status.State).To(BeEmpty())

	s.folder = s.newFolder()
	s.fold("disk")
	s.ExpectCounted("disk", event)
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
}

func TestAConflictStartsOver(t *testing.T) {
	s := newSite(t)
	events := []*v1alpha1.AlertEvent{s.PostFiring("disk")}
	s.fold("disk")
	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))

	events = append(events, s.PostFiring("disk"))
	s.faults.beforeStatus = func() error {
		s.faults.beforeStatus = nil
		incident := s.Incident("disk")
		incident.Labels = map[string]string{"by": "somebody"}
		return s.Live.Update(s.Ctx, incident)
	}
	result, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.RequeueAfter).To(Equal(staleRetry))
	s.Expect(s.told()).To(HaveLen(1))

	s.fold("disk")
	s.ExpectCounted("disk", events...)
	s.Expect(s.Incident("disk").Labels).To(HaveKeyWithValue("by", "somebody"))
}

func TestAnIncidentThatSomebodyElseCreatedFirst(t *testing.T) {
	s := newSite(t)
	event := s.PostFiring("disk")
	other := s.newFolder()
	s.faults.beforeCreate = func() error {
		s.faults.beforeCreate = nil
		mine := s.folder
		s.folder = other
		s.fold("disk")
		s.folder = mine
		return nil
	}
	_, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.ExpectCounted("disk", event)
	s.fold("disk")
	s.ExpectCounted("disk", event)
}

// A zombie is a leader that does not know yet that it is none. Its cache stopped long ago.
func TestAZombieWithAStaleCacheCountsNothingTwice(t *testing.T) {
	s := newSite(t)
	leader, zombie := s.folder, s.newFolder()
	events := []*v1alpha1.AlertEvent{s.PostFiring("disk")}
	s.fold("disk")
	// What the zombie sees from now on: the Incident as it is, and each AlertEvent that is not deleted.
	zombie.cache.frozen[s.KeyOf("disk")] = s.Incident("disk")

	writes := 0
	zombie.faults.beforeStatus = func() error { writes++; return nil }
	for range 5 {
		s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
		events = append(events, s.PostFiring("disk"), s.PostFiring("disk"))
		s.folder = leader
		s.fold("disk")
		s.folder = zombie
		_, err := s.reconcile("disk")
		s.Expect(err).NotTo(HaveOccurred())
		s.release()
	}
	s.Expect(zombie.faults.statusWrites).To(BeZero())
	s.Expect(writes).To(Equal(1), "its write conflicts; from then on it reads the Incident")

	s.folder = leader
	s.release()
	s.Expect(s.EventNames()).To(BeEmpty())
	s.ExpectCounted("disk", events...)
}

func TestTwoFoldersAtWorkAtOnce(t *testing.T) {
	s := newSite(t)
	folders := []*folder{s.folder, s.newFolder()}
	var events []*v1alpha1.AlertEvent
	for i := range 20 {
		s.Clock.SetTime(s.Clock.Now().Add(1500 * time.Millisecond))
		key := fmt.Sprintf("key-%d", i%2)
		both := s.Post(s.Alert(v1alpha1.AlertFiring, "key-0"), s.Alert(v1alpha1.AlertFiring, "key-1"))
		events = append(events, s.PostFiring(key), both)
		mine, other := folders[i%2], folders[1-i%2]
		// Just before one writes, the other folds and releases what it can.
		mine.faults.beforeStatus = func() error {
			mine.faults.beforeStatus = nil
			s.folder = other
			s.fold(key)
			s.release()
			s.folder = mine
			return nil
		}
		s.folder = mine
		_, err := s.reconcile(key)
		s.Expect(err).NotTo(HaveOccurred())
		s.release()
		mine.faults.beforeStatus = nil
	}
	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
	for _, s.folder = range folders {
		for _, key := range []string{"key-0", "key-1"} {
			s.fold(key)
		}
		s.release()
	}
	s.ExpectCounted("key-0", events...)
	s.ExpectCounted("key-1", events...)
	s.Expect(s.EventNames()).To(BeEmpty())
}

func TestAnEventDeletedBeforeTheListIsNotFoldedAgain(t *testing.T) {
	s := newSite(t)
	event := s.PostFiring("disk")
	other := s.newFolder()
	// The cache shows neither the Incident nor the deletion: the list alone tells.
	stale := s.folder
	stale.cache.frozen[s.KeyOf("disk")] = nil
	stale.cache.Reader = &ghostReader{Reader: s.Live, ghost: event}
	s.folder = other
	s.fold("disk")
	s.release()
	s.Expect(s.Live.Delete(s.Ctx, s.Incident("disk"))).To(Succeed())

	s.folder = stale
	s.fold("disk")
	s.Expect(s.IncidentNames()).To(BeEmpty())
}

func TestAnIncidentDeletedInTheMiddle(t *testing.T) {
	s := newSite(t)
	s.PostFiring("disk")
	s.fold("disk")
	s.release()
	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))

	event := s.PostFiring("disk")
	deleted := s.Incident("disk").UID
	s.faults.beforeStatus = func() error {
		s.faults.beforeStatus = nil
		return s.Live.Delete(s.Ctx, s.Incident("disk"))
	}
	result, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.RequeueAfter).To(Equal(staleRetry))

	s.Clock.SetTime(s.Clock.Now().Add(writeInterval))
	s.fold("disk")
	s.release()
	s.Expect(s.Incident("disk").UID).NotTo(Equal(deleted))
	s.ExpectCounted("disk", event)
	s.Expect(s.EventNames()).To(BeEmpty())
}

func TestWhatIsSettledDoesNotBringADeletedIncidentBack(t *testing.T) {
	s := newSite(t)
	s.PostAs(v1alpha1.KeyedEventName(testsite.Integration, "delivery-1"), s.Alert(v1alpha1.AlertFiring, "disk"))
	s.fold("disk")
	s.Expect(s.Live.Delete(s.Ctx, s.Incident("disk"))).To(Succeed())
	s.Clock.SetTime(s.Clock.Now().Add(time.Minute))
	s.fold("disk")
	s.Expect(s.EventNames()).To(HaveLen(1), "the key is remembered")
	s.Expect(s.IncidentNames()).To(BeEmpty())
}

func TestNoMatchIsConfirmedByTheQuorum(t *testing.T) {
	t.Run("an Incident that the cache does not show", func(t *testing.T) {
		s := newSite(t)
		first := s.PostFiring("disk")
		s.fold("disk")
		s.Clock.SetTime(s.Clock.Now().Add(3 * time.Second))
		s.cache.frozen[s.KeyOf("disk")] = nil
		s.release()
		second := s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
		_, err := s.reconcile("disk")
		s.Expect(err).NotTo(HaveOccurred())
		s.ExpectCounted("disk", first, second)
		s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
	})
	t.Run("an older AlertEvent that the cache does not show", func(t *testing.T) {
		s := newSite(t)
		first := s.PostFiring("disk")
		second := s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
		s.cache.hidden[first.UID] = true
		result, err := s.reconcile("disk")
		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(result.RequeueAfter).To(Equal(writeInterval))
		s.release()
		s.Expect(s.EventNames()).To(HaveLen(2))

		delete(s.cache.hidden, first.UID)
		s.fold("disk")
		s.ExpectCounted("disk", first, second)
		s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
	})
	t.Run("a newer AlertEvent that the cache does not show is none of its business", func(t *testing.T) {
		s := newSite(t)
		s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
		second := s.PostFiring("disk")
		s.cache.hidden[second.UID] = true
		s.fold("disk")
		s.release()
		s.Expect(s.EventNames()).To(ConsistOf(second.Name))
	})
}

// What the cache holds without content is read from the API server.
func TestContentThatTheCacheLacksIsRead(t *testing.T) {
	s := newSite(t)
	s.memory.Cached = queue.NewBoundedCached(fair.Limit{All: 1, Share: 1}, fair.Limit{All: 1 << 20, Share: 1})
	alert := s.Alert(v1alpha1.AlertFiring, "disk")
	alert.Title = "Disk full"
	event := s.Post(alert)
	s.fold("disk")
	s.ExpectCounted("disk", event)
	s.Expect(s.Incident("disk").Status.Alert.Title).To(Equal("Disk full"))
}

// A full ledger whose AlertEvents cannot be deleted gets space by their marks.
func TestALedgerOfEventsThatCannotBeDeletedGetsSpace(t *testing.T) {
	s := newSite(t)
	var events []*v1alpha1.AlertEvent
	for range v1alpha1.MaxLedger {
		events = append(events, s.PostFiring("disk"))
	}
	events = append(events, s.Post(s.Alert(v1alpha1.AlertResolved, "disk")))
	s.faults.onDelete = func() error { return forbidden("a policy denied request") }
	for range 8 {
		s.fold("disk")
		for _, ref := range s.releases.Refs() {
			_, _ = s.releases.Reconcile(s.Ctx, ref)
		}
		s.watch()
		s.pass(10 * time.Second)
	}
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
	s.faults.onDelete = nil
	s.release()
	s.ExpectCounted("disk", events...)
	s.Expect(s.EventNames()).To(BeEmpty())
}

func TestAFullLedgerPausesItsIncidentAndRecovers(t *testing.T) {
	s := newSite(t)
	var events []*v1alpha1.AlertEvent
	for range v1alpha1.MaxLedger + 10 {
		events = append(events, s.PostFiring("disk"))
	}
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(pausedRetry))
	s.Expect(s.Incident("disk").Status.AlertCount).To(Equal(int64(v1alpha1.MaxLedger)))
	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(pausedRetry), "as long as the events exist")
	s.Expect(s.Incident("disk").Status.AlertCount).To(Equal(int64(v1alpha1.MaxLedger)))

	s.release()
	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Second))
	s.fold("disk")
	s.release()
	s.ExpectCounted("disk", events...)
	s.Expect(s.EventNames()).To(BeEmpty())
}

func TestARewriteOfMetadataDisturbsNothing(t *testing.T) {
	s := newSite(t)
	annotate := func(event *v1alpha1.AlertEvent) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"policy":"checked"}}}`))
		s.Expect(s.Live.Patch(s.Ctx, event.DeepCopy(), patch)).To(Succeed())
	}
	event := s.PostFiring("disk")
	annotate(event)
	s.fold("disk")
	annotate(event)
	s.fold("disk")
	s.Expect(s.faults.statusWrites).To(Equal(1))
	s.release()
	s.Expect(s.EventNames()).To(BeEmpty())
	s.ExpectCounted("disk", event)
}

func TestACrashAfterAReportThatCameBeforeItsIncident(t *testing.T) {
	s := newSite(t)
	s.PostAs(v1alpha1.KeyedEventName("app", "early"), s.Alert(v1alpha1.AlertAcknowledged, "disk"))
	s.fold("disk")
	s.release()
	s.Expect(s.EventNames()).To(HaveLen(1), "it stays for its idempotency key")
	firing := s.PostFiring("disk")
	s.fold("disk")

	s.folder = s.newFolder()
	s.fold("disk")
	s.ExpectCounted("disk", firing)
}
