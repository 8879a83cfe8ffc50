package incident

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/sweep"
)

// requireArchive has Incidents kept until they are archived.
func (s *site) requireArchive() {
	s.incidents.ArchiveRequired = true
}

// archive notes in an Incident that an ended episode is archived, in the version with a digest, as the archiver does.
func (s *site) archive(key string, episode int64, digest string) {
	incident := s.Incident(key)
	incident.Status.Archive = &v1alpha1.ArchiveStatus{State: v1alpha1.ArchiveWaiting, Episode: episode, Digest: digest}
	if fold.IsArchived(&incident.Status) {
		incident.Status.Archive.State = v1alpha1.ArchiveComplete
	}
	s.Expect(s.Live.Status().Update(s.Ctx, incident)).To(Succeed())
}

// archiveNewest notes that everything is archived.
func (s *site) archiveNewest(key string) {
	status := s.Incident(key).Status
	s.archive(key, status.Episode.Number, status.Ledger.Digest)
}

func TestAnIncidentIsDeletedOnlyAfterItIsArchived(t *testing.T) {
	s := newSite(t)
	s.requireArchive()
	s.resolvedUnder("disk", &metav1.Duration{Duration: time.Hour})
	s.Expect(s.Incident("disk").Status.Archive.State).To(Equal(v1alpha1.ArchiveWaiting), "which is what the archiver looks for")
	s.pass(time.Hour + time.Second)
	s.Expect(s.fold("disk").RequeueAfter).To(Equal(deletionRetry))
	s.pass(10 * time.Minute)
	s.Expect(s.fold("disk").RequeueAfter).To(BeNumerically("~", 10*time.Minute, time.Minute), "less and less often")
	s.pass(sweep.Interval)
	s.Expect(s.fold("disk").RequeueAfter).To(BeZero(), "the sweep finds it")
	s.Expect(s.IncidentNames()).To(HaveLen(1), "the store is unavailable")

	s.archive("disk", 1, "another version")
	s.fold("disk")
	s.Expect(s.IncidentNames()).To(HaveLen(1))

	s.archiveNewest("disk")
	s.fold("disk")
	s.Expect(s.IncidentNames()).To(BeEmpty())
}

func TestAReopenedIncidentIsDeletedOnlyAfterAllItsEpisodesAreArchived(t *testing.T) {
	s := newSite(t)
	s.requireArchive()
	s.resolvedUnder("memory", &metav1.Duration{Duration: time.Hour})
	first := s.Incident("memory").Status.Ledger.Digest
	s.Clock.SetTime(s.Clock.Now().Add(10 * time.Minute))
	s.PostFiring("memory")
	s.Post(s.Alert(v1alpha1.AlertResolved, "memory"))
	s.fold("memory")
	s.release()
	status := s.Incident("memory").Status
	s.Expect(status.UnarchivedEpisodes).To(HaveLen(1), "the API server keeps the first episode")
	s.Expect(status.Episode.Number).To(BeEquivalentTo(2))

	s.archive("memory", 1, first)
	s.Clock.SetTime(s.Clock.Now().Add(2 * time.Hour))
	s.fold("memory")
	s.Expect(s.IncidentNames()).To(HaveLen(1), "the second episode is not archived")
	s.archiveNewest("memory")
	s.fold("memory")
	s.Expect(s.IncidentNames()).To(BeEmpty())
}

func TestWhatIsNotArchivedIsBounded(t *testing.T) {
	s := newSite(t)
	resolved := &noResolved{full: true}
	s.incidents.sweeper = resolved
	s.PostFiring("c")
	_, err := s.reconcile("c")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(s.IncidentNames()).To(BeEmpty(), "etcd would fill")
	s.Expect(s.incidents.blocked.obstacle(s.Namespace, ofNamespace).cause.reason).To(Equal(v1alpha1.ReasonIncidentLimit))

	resolved.full = false
	s.pass(maxBlockedRetry)
	s.fold("c")
	s.PostFiring("b")
	s.Post(s.Alert(v1alpha1.AlertResolved, "b"))
	s.fold("b")
	resolved.full = true
	s.pass(maxBlockedRetry)
	s.PostFiring("b") // which exists
	s.fold("b")
	s.Expect(s.Incident("b").Status.State).To(Equal(v1alpha1.IncidentOpen))
}

func TestTheSweepHasWhatIsNotArchivedWait(t *testing.T) {
	s := newSite(t)
	s.resolvedUnder("disk", &metav1.Duration{Duration: 7 * 24 * time.Hour})
	s.Expect(s.Incident("disk").Status.Archive).To(BeNil())
	s.Expect(s.incidents.IsDue(s.Ctx, s.Incident("disk"))).To(BeFalse())
	s.requireArchive() // the flag was added
	s.pass(time.Minute)
	s.Expect(s.incidents.IsDue(s.Ctx, s.Incident("disk"))).To(BeTrue())
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.Archive.State).To(Equal(v1alpha1.ArchiveWaiting))
	s.Expect(s.incidents.IsDue(s.Ctx, s.Incident("disk"))).To(BeFalse())
}
