package sweep

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// archive notes that everything of an Incident is archived.
func (s *stage) archive(name string) {
	incident := s.incident(crowded, name)
	incident.Status.Archive = &v1alpha1.ArchiveStatus{
		State: v1alpha1.ArchiveComplete, Episode: incident.Status.Episode.Number, Digest: incident.Status.Ledger.Digest,
	}
	s.Expect(fold.IsArchived(&incident.Status)).To(BeTrue())
	s.Expect(s.users.Status().Update(s.ctx, incident)).To(Succeed())
}

// evictAll sweeps, and evicts where there are too many.
func (s *stage) evictAll() {
	s.sweepOnce()
	for _, namespace := range s.overLimit() {
		_, err := s.evict(s.ctx, namespace)
		s.Expect(err).NotTo(HaveOccurred())
	}
}

func TestEvictionBeginsWithTheOldest(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		s.resolve(crowded, "old", "an-older-name") // which the API server lists first
		evicted := testutil.ToFloat64(incidentsEvicted)
		for range 2 {
			s.evictAll()
			s.Expect(s.names()).To(Equal([]string{"an-older-name"}), "no more than needed")
			s.Expect(testutil.ToFloat64(incidentsEvicted)).To(Equal(evicted + 1))
		}
	})
}

// Nothing tells that a user has deleted Resolved Incidents: those that are left are counted before one is evicted.
func TestEvictionCountsWhatUsersDeleted(t *testing.T) {
	onStage(t, 2, func(s *stage) {
		s.resolve(crowded, "a", "b", "c")
		s.sweepOnce()
		s.Expect(s.overLimit()).To(ConsistOf(crowded))
		s.Expect(s.users.Delete(s.ctx, s.incident(crowded, "b"))).To(Succeed())
		s.Expect(s.evictOnce()).To(BeZero())
		s.Expect(s.calls).NotTo(ContainElement("get a"), "nothing is looked at that may stay")
		s.Expect(s.names()).To(Equal([]string{"a", "c"}))
		s.evictAll()
		s.Expect(s.names()).To(HaveLen(2))
	})
}

func TestEvictionSparesWhatIsNotArchived(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		s.options.ArchiveRequired = true
		s.resolve(crowded, "old")
		s.evictAll()
		s.Expect(s.IsFull(crowded)).To(BeFalse())
		s.resolve(crowded, "new")
		s.evictAll()
		s.Expect(s.names()).To(HaveLen(2))
		s.Expect(s.IsFull(crowded)).To(BeTrue(), "etcd would fill")
		s.Expect(s.IsFull(calm)).To(BeFalse())
		s.archive("new")
		s.evictAll()
		s.Expect(s.names()).To(Equal([]string{"old"}), "the only one that is archived goes, though it is newer")
		s.Expect(s.IsFull(crowded)).To(BeFalse())

		s.counts.Bytes.Set(crowded, 2*s.counts.Bytes.Own())
		s.Expect(s.IsFull(crowded)).To(BeTrue(), "their bytes would fill it, too")
	})
}

// The list of an eviction is older than what it deletes.
func TestEvictionSparesAnEpisodeThatHasEndedMeanwhile(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		s.options.ArchiveRequired = true
		s.resolve(crowded, "old", "new")
		s.archive("old")
		s.sweepOnce()
		s.calls = nil
		s.arrive = func(call int) {
			if s.calls[call] == "get old" {
				again := s.incident(crowded, "old")
				again.Status.Episode.Number, again.Status.Archive = 2, nil
				s.Expect(s.users.Status().Update(s.ctx, again)).To(Succeed())
			}
		}
		s.Expect(s.evictOnce()).To(BeZero())
		s.Expect(s.calls).To(ContainElement("get old"))
		s.Expect(s.names()).To(HaveLen(2), "the archive does not have the second episode")
	})
}

// An end that is kept from being forwarded would be lost with its Incident.
func TestEvictionSparesWhoseEndIsKeptBack(t *testing.T) {
	onStage(t, 1, func(s *stage) {
		s.resolve(crowded, "old")
		kept := s.incident(crowded, "old")
		now := v1alpha1.NewTimestamp(time.Now())
		kept.Status.Flapping = &v1alpha1.Flapping{KeptFiring: &v1alpha1.KeptFiring{
			Severity: v1alpha1.SeverityError, StartTime: now, EndTime: v1alpha1.NewTimestamp(now.Add(time.Hour)),
		}}
		s.Expect(s.users.Status().Update(s.ctx, kept)).To(Succeed())
		s.resolve(crowded, "new", "newer")
		s.evictAll()
		s.Expect(s.names()).To(Equal([]string{"old"}), "though it is the oldest")
		time.Sleep(time.Hour + time.Minute)
		s.resolve(crowded, "newest")
		s.evictAll()
		s.Expect(s.names()).To(Equal([]string{"newest"}), "its end is forwarded")
	})
}

// TestAnEvictionLeavesHeadroom of a twentieth of the share, so that not every Incident that is resolved begins one.
func TestAnEvictionLeavesHeadroom(t *testing.T) {
	onStage(t, 40, func(s *stage) {
		for i := range 41 {
			s.resolve(crowded, "i-"+string([]byte{byte('a' + i/26), byte('a' + i%26)}))
		}
		s.evictAll()
		names := s.names()
		s.Expect(names).To(HaveLen(38))
		s.Expect(slices.Contains(names, "i-aa")).To(BeFalse())
		s.Expect(slices.Contains(names, "i-bo")).To(BeTrue(), "the newest")
	})
}

func TestTheConditionArchived(t *testing.T) {
	onStage(t, 10, func(s *stage) {
		integration := &v1alpha1.WebhookIntegration{}
		integration.Namespace = crowded
		none, known := s.Condition(integration)
		s.Expect(known).To(BeTrue())
		s.Expect(none.Status).To(BeEmpty(), "without an archive there is none")
		s.options.ArchiveRequired = true
		s.resolve(crowded, "disk")
		_, known = s.Condition(integration)
		s.Expect(known).To(BeFalse(), "nothing is known before the first sweep")
		reason := func() string {
			s.evictAll()
			condition, known := s.Condition(integration)
			s.Expect(known).To(BeTrue())
			return string(condition.Status) + " " + condition.Reason
		}
		s.Expect(reason()).To(Equal("True " + v1alpha1.ReasonArchiving))
		time.Sleep(archivePatience - time.Minute)
		s.Expect(reason()).To(Equal("True "+v1alpha1.ReasonArchiving), "it may take so long")
		time.Sleep(time.Second)
		s.Expect(reason()).To(Equal("False " + v1alpha1.ReasonArchiveBehind))
		s.Expect(s.sweep(s.ctx)).To(Succeed())
		s.Expect(s.overdue.Sum()).To(BeEquivalentTo(1), "so that the next sweep is soon")
		s.Expect(testutil.ToFloat64(archiveOverdue)).To(BeEquivalentTo(1))
		s.archive("disk")
		s.Expect(reason()).To(Equal("True " + v1alpha1.ReasonArchiving))
		s.Expect(testutil.ToFloat64(archiveOverdue)).To(BeZero())
	})
}
