package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/archive/records"
)

var noon = time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)

// server is what the API server stores.
type server struct {
	client.Reader
	incidents map[types.NamespacedName]*v1alpha1.Incident
	reads     int
	onRead    func()
	down      bool
	broken    string // name of an Incident that cannot be read
}

func (s *server) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.reads++
	if s.onRead != nil {
		defer s.onRead()
	}
	incident, isIncident := into.(*v1alpha1.Incident)
	switch stored := s.incidents[key]; {
	case s.down || !isIncident || key.Name == s.broken:
		return errors.New("down")
	case stored == nil:
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	default:
		stored.DeepCopyInto(incident)
		return nil
	}
}

// rig is an API server, a store that can be down, and terms of leaders.
type rig struct {
	*WithT
	*server
	ctx    context.Context
	bucket *blob.Bucket
	down   atomic.Bool
	now    time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{
		WithT: NewWithT(t), ctx: t.Context(), server: &server{incidents: map[types.NamespacedName]*v1alpha1.Incident{}}, now: noon,
	}
	r.bucket = memblob.OpenBucket(nil)
	return r
}

// lead begins the term of another leader, which sees all Incidents.
func (r *rig) lead() (*Archiver, *term) {
	a := New(func(context.Context) (*blob.Bucket, error) {
		if r.down.Load() {
			return nil, errors.New("the store is down")
		}
		return r.bucket, nil
	}, func() (time.Time, bool) { return r.now, true }, logr.Discard())
	t := newTerm(a, r.server)
	t.synced = func() bool { return true }
	for _, incident := range r.incidents {
		t.changed(incident.DeepCopy(), true)
	}
	a.term.Store(t)
	return a, t
}

// resolved stores a Resolved Incident.
func (r *rig) resolved(name string, alerts int64) *v1alpha1.Incident {
	at := v1alpha1.NewTimestamp(noon)
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "payments", Name: name, UID: types.UID("uid-" + name), ResourceVersion: fmt.Sprint(100 + alerts),
		},
		Spec: v1alpha1.IncidentSpec{IntegrationName: "prometheus", DedupKey: name},
		Status: v1alpha1.IncidentStatus{
			State: v1alpha1.IncidentResolved, AlertCount: alerts, OpenedTime: &at, ResolvedTime: &at,
			Episode: &v1alpha1.Episode{Number: 1, StartTime: at, AlertCount: alerts},
			Alert:   v1alpha1.AlertContent{Title: name},
			Ledger:  v1alpha1.Ledger{Digest: fmt.Sprintf("%032d", alerts)},
		},
	}
	r.incidents[client.ObjectKeyFromObject(incident)] = incident
	return incident
}

func (r *rig) step(t *term) {
	_, err := t.step(r.ctx)
	r.Expect(err).NotTo(HaveOccurred())
}

func (r *rig) isArchived(a *Archiver, incident *v1alpha1.Incident) bool {
	return a.Archived(incident.UID, incident.Status.Episode.Number, incident.Status.Ledger.Digest)
}

// archived returns the alert counts of all records by Incident.
func (r *rig) archived() map[string]int64 {
	counts := map[string]int64{}
	for record, err := range records.All(r.ctx, r.bucket, records.Query{}) {
		r.Expect(err).NotTo(HaveOccurred())
		_, twice := counts[record.Incident]
		r.Expect(twice).To(BeFalse(), record.Incident)
		counts[record.Incident] = record.AlertCount
	}
	return counts
}

func (r *rig) objects() (keys []string) {
	list := r.bucket.List(nil)
	for {
		object, err := list.Next(r.ctx)
		if errors.Is(err, io.EOF) {
			return keys
		}
		r.Expect(err).NotTo(HaveOccurred())
		keys = append(keys, object.Key)
	}
}

func TestEpisodesAreArchivedInAllTheirVersions(t *testing.T) {
	r := newRig(t)
	a, term := r.lead()
	incident := r.resolved("disk", 2)
	term.changed(incident, false)
	r.Expect(r.isArchived(a, incident)).To(BeFalse())
	r.step(term)
	r.Expect(r.isArchived(a, incident)).To(BeTrue())
	r.Expect(r.archived()).To(Equal(map[string]int64{"disk": 2}))
	r.step(term)
	r.Expect(r.reads).To(Equal(1), "nothing else to do")

	incident = r.resolved("disk", 3) // an alert after the resolve
	term.changed(incident, false)
	r.Expect(r.isArchived(a, incident)).To(BeFalse())
	r.step(term)
	r.Expect(r.archived()).To(Equal(map[string]int64{"disk": 3}))
	r.Expect(r.isArchived(a, incident)).To(BeTrue())

	delete(r.incidents, client.ObjectKeyFromObject(incident))
	a.Deleted(incident)
	r.Expect(term.book.versions).To(BeEmpty(), "memory does not grow with what was archived")
	r.Expect(r.archived()).To(HaveLen(1))
}

func TestANewLeaderArchivesOnlyWhatTheArchiveLacks(t *testing.T) {
	r := newRig(t)
	for i := range 20 {
		r.resolved(fmt.Sprint("disk-", i), 2)
	}
	_, first := r.lead()
	r.step(first)
	r.Expect(r.archived()).To(HaveLen(20))
	objects, reads := r.objects(), r.reads
	changed := r.resolved("disk-7", 9) // while there is no leader
	added := r.resolved("memory", 1)

	a, second := r.lead()
	r.step(second)
	r.Expect(r.reads-reads).To(Equal(2), "the others are found in the archive")
	r.Expect(r.objects()).To(HaveLen(len(objects) + 1))
	for _, incident := range r.incidents {
		r.Expect(r.isArchived(a, incident)).To(BeTrue())
	}
	r.Expect(r.archived()).To(And(HaveLen(21), HaveKeyWithValue(changed.Name, int64(9)), HaveKeyWithValue(added.Name, int64(1))))
}

func TestALeaderThatLostTheLeaseDoesNoHarm(t *testing.T) {
	r := newRig(t)
	incident := r.resolved("disk", 2)
	_, zombie := r.lead()
	b := newBatch()
	zombie.bucket = r.bucket
	r.Expect(zombie.read(r.ctx, task{name: client.ObjectKeyFromObject(incident)}, b)).To(Succeed())

	incident = r.resolved("disk", 3)
	a, leader := r.lead()
	r.step(leader)
	r.Expect(r.isArchived(a, incident)).To(BeTrue())

	r.Expect(zombie.write(r.ctx, b)).To(Succeed()) // its outdated view, at last
	r.Expect(r.archived()).To(Equal(map[string]int64{"disk": 3}))
	r.now = noon.AddDate(0, 0, 2)
	for _, t := range []*term{zombie, leader} {
		t.combined = time.Time{}
		t.combine(r.ctx)
	}
	r.Expect(r.objects()).To(HaveLen(1))
	r.Expect(r.archived()).To(Equal(map[string]int64{"disk": 3}))
}

func TestAnIncidentThatChangesWhileItIsArchivedIsArchivedAgain(t *testing.T) {
	r := newRig(t)
	a, term := r.lead()
	term.changed(r.resolved("disk", 2), false)
	var latest *v1alpha1.Incident
	r.onRead = func() { // just after it was read
		r.onRead = nil
		latest = r.resolved("disk", 3)
		term.changed(latest, false)
	}
	term.bucket = r.bucket
	_, _, err := term.flush(r.ctx)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.isArchived(a, latest)).To(BeFalse())
	r.step(term)
	r.Expect(r.isArchived(a, latest)).To(BeTrue())
}

func TestManyIncidentsAreWrittenInBatches(t *testing.T) {
	r := newRig(t)
	_, term := r.lead()
	term.limiter = unlimited{}
	for i := range 2500 {
		term.changed(r.resolved(fmt.Sprint("disk-", i), 1), false)
	}
	r.step(term)
	r.Expect(r.objects()).To(HaveLen(3), "of 1,000 records at most")
	r.Expect(r.archived()).To(HaveLen(2500))
	waiting, _ := term.book.load(time.Now())
	r.Expect(waiting).To(BeZero())
}

type unlimited struct{}

func (unlimited) TryAccept() bool            { return true }
func (unlimited) Accept()                    {}
func (unlimited) Stop()                      {}
func (unlimited) QPS() float32               { return 0 }
func (unlimited) Wait(context.Context) error { return nil }

func TestAnOutageOfTheAPIServerLosesNothing(t *testing.T) {
	r := newRig(t)
	a, term := r.lead()
	incident := r.resolved("disk", 1)
	term.changed(incident, false)
	r.server.down = true
	operation, err := term.step(r.ctx)
	r.Expect(err).To(HaveOccurred())
	r.Expect(operation).To(Equal(operationIncident))
	r.server.down = false
	r.step(term)
	r.Expect(r.isArchived(a, incident)).To(BeTrue())
}

func TestAnIncidentThatCannotBeReadBlocksNoOther(t *testing.T) {
	r := newRig(t)
	a, term := r.lead()
	broken := r.resolved("broken", 1)
	r.broken = broken.Name
	term.changed(broken, false)
	other := r.resolved("disk", 1)
	term.changed(other, false)
	for range 2 {
		_, err := term.step(r.ctx)
		r.Expect(err).To(MatchError(ContainSubstring("broken")))
	}
	r.Expect(r.isArchived(a, other)).To(BeTrue())
	r.Expect(r.isArchived(a, broken)).To(BeFalse())
}

// A namespace with very many ended episodes, each in a day of its own, as its users can forge it.
func TestNamespacesTakeTurns(t *testing.T) {
	r := newRig(t)
	a, term := r.lead()
	term.limiter = unlimited{}
	for i := range batchRecords + 100 {
		flood := r.resolved(fmt.Sprint("flood-", i), 1)
		at := v1alpha1.NewTimestamp(noon.AddDate(0, 0, -i))
		flood.Status.ResolvedTime = &at
		term.changed(flood, false)
	}
	var others []*v1alpha1.Incident
	for i := range 20 {
		other := r.resolved(fmt.Sprint("disk-", i), 1)
		delete(r.incidents, client.ObjectKeyFromObject(other))
		other.Namespace = "shop"
		r.incidents[client.ObjectKeyFromObject(other)] = other
		term.changed(other, false)
		others = append(others, other)
	}
	term.bucket = r.bucket
	_, _, err := term.flush(r.ctx)
	r.Expect(err).NotTo(HaveOccurred())
	for _, other := range others {
		r.Expect(r.isArchived(a, other)).To(BeTrue(), "in the first batch")
	}
	r.Expect(len(r.objects())).To(BeNumerically("<=", daysPerNamespace+1))
	r.step(term)
	r.Expect(r.archived()).To(HaveLen(batchRecords + 120))

	_, next := r.lead() // looks up the days
	days := next.book.uncheckedDays()
	r.Expect(days).To(HaveLen(batchRecords + 100))
	r.Expect(days[:2]).To(ConsistOf("2026-11-22", "2026-11-21"))
	old := r.resolved("old", 1)
	at := v1alpha1.NewTimestamp(noon.AddDate(-1, 0, 0))
	old.Namespace, old.Status.ResolvedTime = "shop", &at
	next.changed(old, true)
	r.Expect(next.book.uncheckedDays()[:3]).To(ContainElement("2025-11-22"), "the second newest day of its namespace")
}

func TestAnUnreadableEpisodeBlocksNothing(t *testing.T) {
	r := newRig(t)
	a, term := r.lead()
	incident := r.resolved("disk", 1)
	incident.Status.UnarchivedEpisodes = []v1alpha1.UnarchivedEpisode{{Number: 7, Digest: "d", Packed: "junk"}}
	term.changed(incident, false)
	r.step(term)
	r.Expect(r.isArchived(a, incident)).To(BeTrue())
	r.Expect(a.Archived(incident.UID, 7, "d")).To(BeTrue(), "or the Incident would never be deleted")
}

func TestAnOutageOfTheStoreIsShownAndSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		folder := t.TempDir() + "/archive"
		var err error
		r.bucket, err = fileblob.OpenBucket(folder, &fileblob.Options{CreateDir: true, NoTempDir: true})
		r.Expect(err).NotTo(HaveOccurred())
		r.down.Store(true)
		incident := r.resolved("disk", 1)
		a, term := r.lead()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- term.Start(ctx) }()
		integration := &v1alpha1.WebhookIntegration{}

		time.Sleep(30 * time.Second)
		_, ok := a.Condition(integration)
		r.Expect(ok).To(BeFalse(), "nothing is known yet")
		time.Sleep(time.Minute)
		condition, ok := a.Condition(integration)
		r.Expect(ok).To(BeTrue())
		r.Expect(condition).To(And(HaveField("Status", metav1.ConditionFalse),
			HaveField("Reason", v1alpha1.ReasonArchiveUnavailable)))
		r.Expect(r.isArchived(a, incident)).To(BeFalse())

		r.down.Store(false)
		time.Sleep(maxRetry)
		synctest.Wait()
		r.Expect(r.isArchived(a, incident)).To(BeTrue(), "within a minute after the outage")
		condition, ok = a.Condition(integration)
		r.Expect(ok).To(BeTrue())
		r.Expect(condition.Status).To(Equal(metav1.ConditionTrue))

		r.Expect(os.Rename(folder, folder+"-away")).To(Succeed())
		r.Expect(os.WriteFile(folder, nil, 0o600)).To(Succeed())
		waits := r.resolved("memory", 1)
		term.changed(waits, false)
		time.Sleep(2 * time.Minute)
		condition, ok = a.Condition(integration)
		r.Expect(ok).To(BeTrue())
		r.Expect(condition.Status).To(Equal(metav1.ConditionFalse))
		a.Deleted(waits) // by a user: nothing waits any more
		r.Expect(os.Remove(folder)).To(Succeed())
		r.Expect(os.Rename(folder+"-away", folder)).To(Succeed())
		time.Sleep(maxRetry)
		synctest.Wait()
		condition, ok = a.Condition(integration)
		r.Expect(ok).To(BeTrue())
		r.Expect(condition.Status).To(Equal(metav1.ConditionTrue), "the store answers")
		stop()
		r.Expect(<-ended).To(Succeed())
	})
}
