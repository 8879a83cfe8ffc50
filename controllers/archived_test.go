package controllers

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// testArchive has the versions of episodes with these digests.
type testArchive map[string]bool

func (a testArchive) Archived(_ types.UID, _ int64, digest string) bool { return a[digest] }

func (a testArchive) Deleted(*v1alpha1.Incident) {}

func (a testArchive) Condition(*v1alpha1.WebhookIntegration) (metav1.Condition, bool) {
	return metav1.Condition{
		Type: v1alpha1.ConditionArchived, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonArchiveUnavailable, Message: "x",
	}, true
}

func TestAnIncidentIsDeletedOnlyAfterItIsArchived(t *testing.T) {
	s, archive := newSite(t), testArchive{}
	s.incidents.archive = archive
	s.resolvedUnder("disk", &metav1.Duration{Duration: time.Hour})
	s.clock.SetTime(s.clock.Now().Add(2 * time.Hour))
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(expiryRetry))
	s.Expect(s.incidentNames()).To(HaveLen(1), "the store is unavailable")

	archive["another version"] = true
	s.fold("disk")
	s.Expect(s.incidentNames()).To(HaveLen(1))

	archive[s.incident("disk").Status.Ledger.Digest] = true
	s.fold("disk")
	s.Expect(s.incidentNames()).To(BeEmpty())
}

func TestAReopenedIncidentIsDeletedOnlyAfterAllItsEpisodesAreArchived(t *testing.T) {
	s, archive := newSite(t), testArchive{}
	s.incidents.archive = archive
	s.resolvedUnder("memory", &metav1.Duration{Duration: time.Hour})
	first := s.incident("memory").Status.Ledger.Digest
	s.clock.SetTime(s.clock.Now().Add(10 * time.Minute))
	s.postFiring("memory")
	s.post(s.alert(v1alpha1.AlertResolved, "memory"))
	s.fold("memory")
	s.release()
	status := s.incident("memory").Status
	s.Expect(status.UnarchivedEpisodes).To(HaveLen(1), "the API server keeps the first episode")
	s.Expect(status.Episode.Number).To(BeEquivalentTo(2))

	archive[status.Ledger.Digest] = true
	s.clock.SetTime(s.clock.Now().Add(2 * time.Hour))
	s.fold("memory")
	s.Expect(s.incidentNames()).To(HaveLen(1), "the first episode is not archived")
	archive[first] = true
	s.fold("memory")
	s.Expect(s.incidentNames()).To(BeEmpty())
}

func TestEvictionSparesWhatIsNotArchived(t *testing.T) {
	s, archive := newSite(t), testArchive{}
	s.incidents.resolved.archive = archive
	evict := s.evictor(1)
	for _, key := range []string{"old", "new"} {
		s.postFiring(key)
		s.post(s.alert(v1alpha1.AlertResolved, key))
		s.fold(key)
		s.clock.SetTime(s.clock.Now().Add(time.Minute))
	}
	s.release()
	evict()
	s.Expect(s.incidentNames()).To(HaveLen(2))
	archive[s.incident("new").Status.Ledger.Digest] = true
	evict()
	s.Expect(s.incidentNames()).To(ConsistOf(s.keyOf("old").Name), "the only one that is archived goes, though it is newer")
}

func TestWhatIsNotArchivedIsBounded(t *testing.T) {
	s, archive := newSite(t), testArchive{}
	s.incidents.resolved.archive = archive
	evict := s.evictor(1)
	for _, key := range []string{"a", "b"} {
		s.postFiring(key)
		s.post(s.alert(v1alpha1.AlertResolved, key))
		s.fold(key)
		s.release()
	}
	evict()
	s.postFiring("c")
	_, err := s.reconcile("c")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(s.incidentNames()).To(HaveLen(2), "etcd would fill")
	s.Expect(s.incidents.blocked.cause(s.namespace).reason).To(Equal(v1alpha1.ReasonIncidentLimit))

	s.postFiring("b") // which exists
	s.fold("b")
	s.Expect(s.incident("b").Status.State).To(Equal(v1alpha1.IncidentOpen))

	archive[s.incident("a").Status.Ledger.Digest] = true
	s.release()
	evict()
	s.pass(maxBlockedRetry)
	s.fold("c")
	s.Expect(s.incidentNames()).To(ContainElement(s.keyOf("c").Name))
}

func TestTheConditionArchived(t *testing.T) {
	s := newSite(t)
	integration := s.integrate(func(*v1alpha1.WebhookIntegrationSpec) {})
	s.integrations.archive = testArchive{}
	s.Expect(s.integrations.isOutsideOutdated(integration)).To(BeTrue())
	s.reconcileIntegration()
	conditions := s.integrationStatus().Conditions
	s.Expect(conditions).To(ContainElement(And(HaveField("Type", v1alpha1.ConditionArchived),
		HaveField("Reason", v1alpha1.ReasonArchiveUnavailable))))
	s.integrations.archive = nil // the flag was removed
	s.reconcileIntegration()
	s.Expect(s.integrationStatus().Conditions).NotTo(ContainElement(HaveField("Type", v1alpha1.ConditionArchived)))
}
