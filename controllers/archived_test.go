package controllers

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// requireArchive has Incidents kept until they are archived.
func (s *site) requireArchive() {
	s.incidents.archiveRequired, s.incidents.resolved.archive = true, true
	s.integrations.archive = s.incidents.resolved
}

// archive notes in an Incident that an ended episode is archived, in the version with a digest, as the archiver does.
func (s *site) archive(key string, episode int64, digest string) {
	incident := s.incident(key)
	incident.Status.Archive = &v1alpha1.ArchiveStatus{State: v1alpha1.ArchiveWaiting, Episode: episode, Digest: digest}
	if fold.IsArchived(&incident.Status) {
		incident.Status.Archive.State = v1alpha1.ArchiveComplete
	}
	s.Expect(s.live.Status().Update(s.ctx, incident)).To(Succeed())
}

// archiveNewest notes that everything is archived.
func (s *site) archiveNewest(key string) {
	status := s.incident(key).Status
	s.archive(key, status.Episode.Number, status.Ledger.Digest)
}

func TestAnIncidentIsDeletedOnlyAfterItIsArchived(t *testing.T) {
	s := newSite(t)
	s.requireArchive()
	s.resolvedUnder("disk", &metav1.Duration{Duration: time.Hour})
	s.Expect(s.incident("disk").Status.Archive.State).To(Equal(v1alpha1.ArchiveWaiting), "which is what the archiver looks for")
	s.pass(time.Hour + time.Second)
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(expiryRetry))
	s.pass(10 * time.Minute)
	s.Expect(s.fold("disk").RequeueAfter).To(BeNumerically("~", 10*time.Minute, time.Minute), "less and less often")
	s.pass(sweepInterval)
	s.Expect(s.fold("disk").RequeueAfter).To(BeZero(), "the sweep finds it")
	s.Expect(s.incidentNames()).To(HaveLen(1), "the store is unavailable")

	s.archive("disk", 1, "another version")
	s.fold("disk")
	s.Expect(s.incidentNames()).To(HaveLen(1))

	s.archiveNewest("disk")
	s.fold("disk")
	s.Expect(s.incidentNames()).To(BeEmpty())
}

func TestAReopenedIncidentIsDeletedOnlyAfterAllItsEpisodesAreArchived(t *testing.T) {
	s := newSite(t)
	s.requireArchive()
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

	s.archive("memory", 1, first)
	s.clock.SetTime(s.clock.Now().Add(2 * time.Hour))
	s.fold("memory")
	s.Expect(s.incidentNames()).To(HaveLen(1), "the second episode is not archived")
	s.archiveNewest("memory")
	s.fold("memory")
	s.Expect(s.incidentNames()).To(BeEmpty())
}

func TestEvictionSparesWhatIsNotArchived(t *testing.T) {
	s := newSite(t)
	s.requireArchive()
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
	s.archiveNewest("new")
	evict()
	s.Expect(s.incidentNames()).To(ConsistOf(s.keyOf("old").Name), "the only one that is archived goes, though it is newer")
}

func TestWhatIsNotArchivedIsBounded(t *testing.T) {
	s := newSite(t)
	s.requireArchive()
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

	s.archiveNewest("a")
	s.release()
	evict()
	s.pass(maxBlockedRetry)
	s.fold("c")
	s.Expect(s.incidentNames()).To(ContainElement(s.keyOf("c").Name))
}

func TestTheConditionArchived(t *testing.T) {
	s := newSite(t)
	s.requireArchive()
	integration := s.resolvedUnder("disk", &metav1.Duration{Duration: time.Hour})
	s.Expect(s.integrations.isOutsideOutdated(integration)).To(BeFalse(), "nothing is known before the first sweep")
	sweep := s.evictor(10)
	reason := func() string {
		sweep()
		s.reconcileIntegration()
		for _, condition := range s.integrationStatus().Conditions {
			if condition.Type == v1alpha1.ConditionArchived {
				return condition.Reason
			}
		}
		return ""
	}
	s.Expect(reason()).To(Equal(v1alpha1.ReasonArchiving))
	s.pass(archivePatience + time.Second)
	s.Expect(reason()).To(Equal(v1alpha1.ReasonArchiveBehind))
	behind, err := s.incidents.resolved.sweep(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(behind).To(BeTrue(), "so that the next sweep is soon")
	s.archiveNewest("disk")
	s.Expect(reason()).To(Equal(v1alpha1.ReasonArchiving))
	s.integrations.archive = nil // the flag was removed
	s.Expect(reason()).To(BeEmpty())
}

func TestTheSweepHasWhatIsNotArchivedWait(t *testing.T) {
	s := newSite(t)
	s.resolvedUnder("disk", &metav1.Duration{Duration: 7 * 24 * time.Hour})
	s.Expect(s.incident("disk").Status.Archive).To(BeNil())
	s.Expect(s.incidents.isDue(s.ctx, s.incident("disk"))).To(BeFalse())
	s.requireArchive() // the flag was added
	s.pass(time.Minute)
	s.Expect(s.incidents.isDue(s.ctx, s.incident("disk"))).To(BeTrue())
	s.fold("disk")
	s.Expect(s.incident("disk").Status.Archive.State).To(Equal(v1alpha1.ArchiveWaiting))
	s.Expect(s.incidents.isDue(s.ctx, s.incident("disk"))).To(BeFalse())
}
