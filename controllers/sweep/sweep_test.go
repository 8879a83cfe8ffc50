package sweep

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/capacity"
)

func TestMain(m *testing.M) { testsite.Main(m) }

// site is one with a Sweeper that works on it without a manager.
type site struct {
	*testsite.Site
	*Sweeper
	followed []string // the names of which the follower was told
	told     int
}

func newSite(t *testing.T, limit int) *site {
	t.Helper()
	s := &site{Site: testsite.New(t)}
	s.Sweeper = New(Options{
		Live: s.Live, Namespaces: []string{s.Namespace},
		Capacity: capacity.New(capacity.Limits{Incidents: limit, Share: 1}, nil, s.Clock),
		Listener: (*follower)(s), Clock: testsite.APIClock{PassiveClock: s.Clock},
	})
	s.folds = folds{s}
	return s
}

type follower site

func (f *follower) Resolved(incident *v1alpha1.Incident) {
	f.followed = append(f.followed, incident.Name)
}
func (f *follower) Swept() { f.told++ }

// folds delete what they are told to.
type folds struct{ *site }

func (folds) IsDue(context.Context, *v1alpha1.Incident) bool { return false }

func (f folds) Delete(ctx context.Context, _ string, incidents []*v1alpha1.Incident, more func() bool) (deleted int, err error) {
	for _, incident := range incidents {
		if !more() {
			break
		}
		f.Expect(f.Site.Live.Delete(ctx, incident)).To(Succeed())
		f.NoteWritten(incident, nil)
		deleted++
	}
	return deleted, nil
}

// resolve makes Resolved Incidents, one a minute.
func (s *site) resolve(keys ...string) {
	for _, key := range keys {
		incident := &v1alpha1.Incident{Spec: v1alpha1.IncidentSpec{IntegrationName: testsite.Integration, DedupKey: key}}
		incident.Namespace, incident.Name = s.Namespace, s.KeyOf(key).Name
		s.Expect(s.Site.Live.Create(s.Ctx, incident)).To(Succeed())
		incident.Status.State = v1alpha1.IncidentResolved
		incident.Status.Episode = &v1alpha1.Episode{Number: 1, StartTime: v1alpha1.NewTimestamp(s.Clock.Now())}
		incident.Status.ResolvedTime = new(v1alpha1.NewTimestamp(s.Clock.Now()))
		s.Expect(s.Site.Live.Status().Update(s.Ctx, incident)).To(Succeed())
		s.pass(time.Minute)
	}
}

func (s *site) pass(d time.Duration) { s.Clock.SetTime(s.Clock.Now().Add(d)) }

// archiveNewest notes that everything of an Incident is archived.
func (s *site) archiveNewest(key string) {
	incident := s.Incident(key)
	incident.Status.Archive = &v1alpha1.ArchiveStatus{
		State: v1alpha1.ArchiveComplete, Episode: incident.Status.Episode.Number, Digest: incident.Status.Ledger.Digest,
	}
	s.Expect(fold.IsArchived(&incident.Status)).To(BeTrue())
	s.Expect(s.Site.Live.Status().Update(s.Ctx, incident)).To(Succeed())
}

// evictAll sweeps, and evicts where there are too many.
func (s *site) evictAll() {
	_, err := s.sweep(s.Ctx)
	s.Expect(err).NotTo(HaveOccurred())
	for _, namespace := range s.overLimit() {
		_, err := s.evict(s.Ctx, namespace)
		s.Expect(err).NotTo(HaveOccurred())
	}
}

func TestEvictionBeginsWithTheOldest(t *testing.T) {
	s := newSite(t, 1)
	s.resolve("old", "new")
	for range 2 {
		s.evictAll()
		s.Expect(s.IncidentNames()).To(ConsistOf(s.KeyOf("new").Name), "no more than needed")
	}
	s.Expect(s.told).To(Equal(1), "once a term")
}

// Nothing tells that a user has deleted Resolved Incidents: those that are left are counted before one is evicted.
func TestEvictionCountsWhatUsersDeleted(t *testing.T) {
	s := newSite(t, 2)
	s.resolve("a", "b", "c")
	_, err := s.sweep(s.Ctx)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(s.overLimit()).To(ConsistOf(s.Namespace))
	s.Expect(s.Site.Live.Delete(s.Ctx, s.Incident("b"))).To(Succeed())
	_, err = s.evict(s.Ctx, s.Namespace)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(s.IncidentNames()).To(ConsistOf(s.KeyOf("a").Name, s.KeyOf("c").Name))
	s.evictAll()
	s.Expect(s.IncidentNames()).To(HaveLen(2))
}

func TestEvictionSparesWhatIsNotArchived(t *testing.T) {
	s := newSite(t, 1)
	s.options.ArchiveRequired = true
	s.resolve("old", "new")
	s.evictAll()
	s.Expect(s.IncidentNames()).To(HaveLen(2))
	s.Expect(s.IsFull(s.Namespace)).To(BeTrue(), "etcd would fill")
	s.archiveNewest("new")
	s.evictAll()
	s.Expect(s.IncidentNames()).To(ConsistOf(s.KeyOf("old").Name), "the only one that is archived goes, though it is newer")
	s.Expect(s.IsFull(s.Namespace)).To(BeFalse())
}

func TestTheConditionArchived(t *testing.T) {
	s := newSite(t, 10)
	s.options.ArchiveRequired = true
	s.resolve("disk")
	integration := &v1alpha1.WebhookIntegration{}
	integration.Namespace = s.Namespace
	_, known := s.Condition(integration)
	s.Expect(known).To(BeFalse(), "nothing is known before the first sweep")
	reason := func() string {
		s.evictAll()
		condition, known := s.Condition(integration)
		s.Expect(known).To(BeTrue())
		return condition.Reason
	}
	s.Expect(reason()).To(Equal(v1alpha1.ReasonArchiving))
	s.pass(archivePatience + time.Second)
	s.Expect(reason()).To(Equal(v1alpha1.ReasonArchiveBehind))
	behind, err := s.sweep(s.Ctx)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(behind).To(BeTrue(), "so that the next sweep is soon")
	s.archiveNewest("disk")
	s.Expect(reason()).To(Equal(v1alpha1.ReasonArchiving))
}
