package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/records"
)

// definitions are those of the CustomResourceDefinitions.
var definitions = sync.OnceValues(func() (*apiserver.Definitions, error) {
	return apiserver.ReadDefinitions(os.DirFS(filepath.Join(testenv.Root(), "config", "crd", "bases")))
})

// Two namespaces that the API server begins with.
const payments, shop = metav1.NamespaceDefault, metav1.NamespacePublic

// rig is an API server and a store.
type rig struct {
	apiserver.NoFaults
	*WithT
	t      *testing.T
	ctx    context.Context
	server *apiserver.Server
	users  client.Client
	bucket *blob.Bucket

	mu     sync.Mutex
	down   bool                       // the store
	reads  int                        // of Incidents by archivers
	arrive func(call *apiserver.Call) // with the calls of archivers; may be nil
	refuse func(call *apiserver.Call) bool
}

// Arrive implements apiserver.Faults.
func (r *rig) Arrive(_ context.Context, call *apiserver.Call) (*metav1.Status, error) {
	r.mu.Lock()
	arrive, refuse := r.arrive, r.refuse
	if call.Verb == "get" && call.Resource == "incidents.tocsin.dev" {
		r.reads++
	}
	r.mu.Unlock()
	if refuse != nil && refuse(call) {
		return nil, errors.New("refused")
	}
	if arrive != nil {
		arrive(call)
	}
	return nil, nil
}

// onRig runs a test in a bubble.
func onRig(t *testing.T, test func(r *rig)) {
	t.Helper()
	if _, err := definitions(); err != nil { // outside the bubble
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		compiled, _ := definitions()
		r := &rig{WithT: NewWithT(t), t: t, ctx: t.Context(), bucket: memblob.OpenBucket(nil)}
		var err error
		r.server, err = apiserver.New(apiserver.Options{Definitions: compiled})
		r.Expect(err).NotTo(HaveOccurred())
		r.users = r.client(r.server.Config("users", apiserver.NoFaults{}))
		test(r)
	})
}

func (r *rig) client(config *rest.Config) client.Client {
	mapper, err := clustercache.RESTMapper(nil, nil)
	r.Expect(err).NotTo(HaveOccurred())
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme(), Mapper: mapper})
	r.Expect(err).NotTo(HaveOccurred())
	return c
}

// archiver returns another archiver, whose cache has synced.
func (r *rig) archiver() *archiver {
	config := r.server.Config("archiver", r)
	mapper, err := clustercache.RESTMapper(nil, nil)
	r.Expect(err).NotTo(HaveOccurred())
	names, err := (&clustercache.Informers{}).NewCache(config, cache.Options{
		Scheme: testenv.Scheme(), Mapper: mapper, ByObject: Cached(),
	})
	r.Expect(err).NotTo(HaveOccurred())
	ctx, stop := context.WithCancel(r.ctx)
	ended := make(chan struct{})
	go func() {
		_ = names.Start(ctx)
		close(ended)
	}()
	r.t.Cleanup(func() {
		stop()
		<-ended
	})
	r.Expect(names.WaitForCacheSync(ctx)).To(BeTrue())
	a := newArchiver(r.open, names, r.client(config), logr.Discard())
	_, err = a.waiting(r.ctx)
	r.Expect(err).NotTo(HaveOccurred())
	return a
}

func (r *rig) open(context.Context) (*blob.Bucket, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, errors.New("the store is down")
	}
	return r.bucket, nil
}

// resolve writes the status of an Incident whose only episode ended at a time, after so many alerts.
func (r *rig) resolve(namespace, name string, alerts int64, at time.Time) *v1alpha1.Incident {
	ended := v1alpha1.NewTimestamp(at)
	return r.write(namespace, name, func(status *v1alpha1.IncidentStatus) {
		noted := status.Archive
		*status = v1alpha1.IncidentStatus{
			State: v1alpha1.IncidentResolved, AlertCount: alerts, OpenedTime: &ended, ResolvedTime: &ended,
			Episode: &v1alpha1.Episode{Number: 1, StartTime: ended, AlertCount: alerts},
			Alert:   v1alpha1.AlertContent{Title: name},
			Ledger:  v1alpha1.Ledger{Digest: fmt.Sprintf("%032d", alerts)},
			Archive: &v1alpha1.ArchiveStatus{State: v1alpha1.ArchiveWaiting},
		}
		if noted != nil {
			status.Archive.Episode, status.Archive.Digest = noted.Episode, noted.Digest
		}
	})
}

// write changes the status of an Incident, which it creates if there is none.
func (r *rig) write(namespace, name string, change func(*v1alpha1.IncidentStatus)) *v1alpha1.Incident {
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "prometheus", DedupKey: name},
	}
	if r.users.Get(r.ctx, client.ObjectKeyFromObject(incident), incident) != nil {
		r.Expect(r.users.Create(r.ctx, incident)).To(Succeed())
	}
	change(&incident.Status)
	r.Expect(r.users.Status().Update(r.ctx, incident)).To(Succeed())
	return incident
}

// noted returns what is noted in an Incident, such as "1 of 3 alerts" or "waits".
func (r *rig) noted(incident *v1alpha1.Incident) string {
	var now v1alpha1.Incident
	r.Expect(r.users.Get(r.ctx, client.ObjectKeyFromObject(incident), &now)).To(Succeed())
	noted, text := now.Status.Archive, ""
	if noted.Episode > 0 {
		var alerts int
		_, _ = fmt.Sscanf(noted.Digest, "%d", &alerts)
		text = fmt.Sprintf("%d of %d alerts", noted.Episode, alerts)
	}
	if noted.State == v1alpha1.ArchiveWaiting {
		text += " waits"
	}
	return text
}

func (r *rig) round(a *archiver) {
	synctest.Wait() // for the cache
	_, err := a.round(r.ctx)
	r.Expect(err).NotTo(HaveOccurred())
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

var noon = time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)

func TestEpisodesAreArchivedInAllTheirVersions(t *testing.T) {
	onRig(t, func(r *rig) {
		a := r.archiver()
		incident := r.resolve(payments, "disk", 2, noon)
		r.Expect(r.noted(incident)).To(Equal(" waits"))
		r.round(a)
		r.Expect(r.archived()).To(Equal(map[string]int64{"disk": 2}))
		r.Expect(r.noted(incident)).To(Equal("1 of 2 alerts"))
		reads := r.reads
		r.round(a)
		r.Expect(r.reads).To(Equal(reads), "nothing waits")

		r.resolve(payments, "disk", 3, noon) // an alert after the resolve
		r.round(a)
		r.Expect(r.archived()).To(Equal(map[string]int64{"disk": 3}))
		r.Expect(r.noted(incident)).To(Equal("1 of 3 alerts"))
	})
}

func TestANewArchiverBeginsWhereTheLastOneEnded(t *testing.T) {
	onRig(t, func(r *rig) {
		for i := range 20 {
			r.resolve(payments, fmt.Sprint("disk-", i), 2, noon)
		}
		r.round(r.archiver())
		r.Expect(r.archived()).To(HaveLen(20))
		objects, reads := r.objects(), r.reads
		r.resolve(payments, "disk-7", 9, noon) // while there is none
		r.resolve(payments, "memory", 1, noon)
		r.round(r.archiver())
		r.Expect(r.reads-reads).To(Equal(2), "the others do not wait")
		r.Expect(r.objects()).To(HaveLen(len(objects) + 1))
		r.Expect(r.archived()).To(And(HaveLen(21), HaveKeyWithValue("disk-7", int64(9)), HaveKeyWithValue("memory", int64(1))))
	})
}

func TestAnArchiverThatLostTheLeaseDoesNoHarm(t *testing.T) {
	onRig(t, func(r *rig) {
		incident := r.resolve(payments, "disk", 2, noon)
		zombie, b := r.archiver(), newBatch()
		_, err := zombie.read(r.ctx, client.ObjectKeyFromObject(incident), b)
		r.Expect(err).NotTo(HaveOccurred())

		r.resolve(payments, "disk", 3, noon)
		a := r.archiver()
		r.round(a)
		r.Expect(r.noted(incident)).To(Equal("1 of 3 alerts"))

		r.Expect(zombie.write(r.ctx, r.bucket, b)).To(Succeed()) // its outdated view, at last
		r.Expect(zombie.noteAll(r.ctx, b.notes)).To(Succeed())
		r.Expect(r.archived()).To(Equal(map[string]int64{"disk": 3}))
		r.Expect(r.noted(incident)).To(Equal("1 of 2 alerts waits"), "which is not what it has counted: it is not deleted")
		r.round(a)
		r.Expect(r.noted(incident)).To(Equal("1 of 3 alerts"))
		r.Expect(records.Combine(r.ctx, r.bucket, records.Day(noon), true)).To(Succeed())
		r.Expect(r.objects()).To(HaveLen(1))
		r.Expect(r.archived()).To(Equal(map[string]int64{"disk": 3}))
	})
}

func TestAnIncidentThatChangesWhileItIsArchivedWaitsFurther(t *testing.T) {
	onRig(t, func(r *rig) {
		a := r.archiver()
		incident := r.resolve(payments, "disk", 2, noon)
		r.arrive = func(call *apiserver.Call) {
			if call.Verb == "patch" { // the note
				r.mu.Lock()
				r.arrive = nil
				r.mu.Unlock()
				r.resolve(payments, "disk", 3, noon)
			}
		}
		r.round(a)
		r.Expect(r.noted(incident)).To(Equal("1 of 2 alerts waits"))
		r.round(a)
		r.Expect(r.noted(incident)).To(Equal("1 of 3 alerts"))
		r.Expect(r.archived()).To(Equal(map[string]int64{"disk": 3}))
	})
}

func TestANoteIsForOneIncident(t *testing.T) {
	onRig(t, func(r *rig) {
		a := r.archiver()
		incident := r.resolve(payments, "disk", 2, noon)
		r.arrive = func(call *apiserver.Call) {
			if call.Verb == "patch" { // a user deletes it, and the alert fires again
				r.mu.Lock()
				r.arrive = nil
				r.mu.Unlock()
				r.Expect(r.users.Delete(r.ctx, incident)).To(Succeed())
				r.resolve(payments, "disk", 2, noon)
			}
		}
		r.round(a)
		r.Expect(r.noted(incident)).To(Equal(" waits"), "it has the same name, episode and digest")
		r.round(a)
		r.Expect(r.noted(incident)).To(Equal("1 of 2 alerts"))
	})
}

func TestAReopenedIncidentIsReleasedOfWhatIsArchived(t *testing.T) {
	onRig(t, func(r *rig) {
		incident := r.write(payments, "disk", func(status *v1alpha1.IncidentStatus) {
			ended := v1alpha1.NewTimestamp(noon)
			*status = v1alpha1.IncidentStatus{
				State: v1alpha1.IncidentOpen, OpenedTime: &ended,
				Episode: &v1alpha1.Episode{Number: 8, StartTime: ended, AlertCount: 1},
				UnarchivedEpisodes: []v1alpha1.UnarchivedEpisode{
					{Number: 7, ResolvedTime: ended, Digest: "07", Packed: "junk"}, // by hand: it is not worth keeping
				},
				Archive: &v1alpha1.ArchiveStatus{State: v1alpha1.ArchiveWaiting},
			}
		})
		r.round(r.archiver())
		r.Expect(r.noted(incident)).To(Equal("7 of 7 alerts"))
		r.Expect(r.users.Get(r.ctx, client.ObjectKeyFromObject(incident), incident)).To(Succeed())
		r.Expect(incident.Status.UnarchivedEpisodes).To(BeEmpty())
		r.Expect(incident.Status.State).To(Equal(v1alpha1.IncidentOpen))
	})
}

func TestManyIncidentsAreWrittenInBatches(t *testing.T) {
	onRig(t, func(r *rig) {
		for i := range 2500 {
			r.resolve(payments, fmt.Sprint("disk-", i), 1, noon)
		}
		r.round(r.archiver())
		r.Expect(r.objects()).To(HaveLen(3), "of 1,000 records at most")
		r.Expect(r.archived()).To(HaveLen(2500))
	})
}

func TestEpisodesThatEndWithoutPauseMakeFewObjects(t *testing.T) {
	onRig(t, func(r *rig) {
		a := r.archiver()
		ctx, stop := context.WithCancel(r.ctx)
		ended := make(chan error)
		go func() { ended <- a.Start(ctx) }()
		began := time.Now()
		for i := range 1000 {
			r.resolve(payments, fmt.Sprint("disk-", i), 1, noon)
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(began)
		time.Sleep(2 * roundInterval)
		r.Expect(r.archived()).To(HaveLen(1000))
		r.Expect(len(r.objects())).To(BeNumerically("<=", int(took/roundInterval)+3))
		stop()
		r.Expect(<-ended).To(Succeed())
	})
}

func TestAnOutageOfTheAPIServerLosesNothing(t *testing.T) {
	onRig(t, func(r *rig) {
		a := r.archiver()
		for i := range 10 {
			r.resolve(payments, fmt.Sprint("disk-", i), 1, noon)
		}
		synctest.Wait()
		for _, verb := range []string{"get", "patch"} {
			r.refuse = func(call *apiserver.Call) bool { return call.Verb == verb }
			reads := r.reads
			operation, err := a.round(r.ctx)
			r.Expect(err).To(MatchError(ContainSubstring("refused")))
			r.Expect(operation).To(Equal(operationIncident))
			if verb == "get" {
				r.Expect(r.reads-reads).To(BeNumerically("<=", readFailures), "the others would fail as well")
			}
		}
		r.refuse = nil
		r.round(a)
		r.Expect(r.archived()).To(HaveLen(10))
		synctest.Wait()
		r.Expect(a.waiting(r.ctx)).To(BeEmpty())
	})
}

func TestAnIncidentThatCannotBeReadBlocksNoOther(t *testing.T) {
	onRig(t, func(r *rig) {
		a := r.archiver()
		for i := range 2 * readFailures {
			r.resolve(payments, fmt.Sprint("broken-", i), 1, noon)
		}
		other := r.resolve(payments, "disk", 1, noon)
		r.refuse = func(call *apiserver.Call) bool { return call.Verb == "get" && call.Name != "disk" }
		synctest.Wait()
		for range 3 {
			_, err := a.round(r.ctx)
			r.Expect(err).To(MatchError(ContainSubstring("broken")))
		}
		r.Expect(r.noted(other)).To(Equal("1 of 1 alerts"))
	})
}

// A namespace with very many ended episodes, each in a day of its own, as its users can forge it.
func TestNamespacesTakeTurns(t *testing.T) {
	onRig(t, func(r *rig) {
		const flood, perDay = batchRecords + 100, 10
		for i := range flood {
			r.resolve(payments, fmt.Sprint("flood-", i), 1, noon.AddDate(0, 0, -i/perDay))
		}
		var others []*v1alpha1.Incident
		for i := range 20 {
			others = append(others, r.resolve(shop, fmt.Sprint("disk-", i), 1, noon))
		}
		a := r.archiver()
		synctest.Wait()
		waiting, err := a.waiting(r.ctx)
		r.Expect(err).NotTo(HaveOccurred())
		b := newBatch()
		var first []client.ObjectKey
		for _, turn := range waiting {
			first = append(first, turn.ObjectKey)
			_, err := a.read(r.ctx, turn.ObjectKey, b)
			r.Expect(err).NotTo(HaveOccurred())
		}
		r.Expect(len(b.records)).To(BeNumerically("<=", daysPerNamespace+1))
		r.Expect(b.count).To(Equal(daysPerNamespace*perDay+len(others)), "those of one day come together")
		r.Expect(r.reads).To(BeNumerically("<", b.count+5), "what has no place is not read")
		r.Expect(first[:2*len(others)]).To(ContainElement(client.ObjectKeyFromObject(others[19])))

		for len(r.archived()) < flood+len(others) {
			r.round(a)
		}
	})
}

// Whoever wrote the objects, and however old their day is.
func TestSmallObjectsOfEachDayAreCombinedOnceAnHour(t *testing.T) {
	onRig(t, func(r *rig) {
		a := r.archiver()
		long := time.Now().AddDate(0, 0, -100)
		for i := range 4 {
			r.resolve(payments, fmt.Sprint("disk-", i), 1, long)
			r.round(a)
			a.combine(r.ctx)
		}
		r.Expect(r.objects()).To(HaveLen(4))
		time.Sleep(combineInterval)
		a.combine(r.ctx)
		r.Expect(r.objects()).To(HaveLen(1))
		r.Expect(r.archived()).To(HaveLen(4))
	})
}

func TestAnOutageOfTheStoreIsSurvived(t *testing.T) {
	folder := t.TempDir() + "/archive"
	onRig(t, func(r *rig) {
		var err error
		r.bucket, err = fileblob.OpenBucket(folder, &fileblob.Options{CreateDir: true, NoTempDir: true})
		r.Expect(err).NotTo(HaveOccurred())
		r.down = true
		incident := r.resolve(payments, "disk", 1, noon)
		a := r.archiver()
		ctx, stop := context.WithCancel(r.ctx)
		ended := make(chan error)
		go func() { ended <- a.Start(ctx) }()
		time.Sleep(5 * time.Minute)
		r.Expect(r.noted(incident)).To(Equal(" waits"))

		r.mu.Lock()
		r.down = false
		r.mu.Unlock()
		time.Sleep(maxRetry)
		synctest.Wait()
		r.Expect(r.noted(incident)).To(Equal("1 of 1 alerts"), "within a minute after the outage")

		r.Expect(os.Rename(folder, folder+"-away")).To(Succeed())
		r.Expect(os.WriteFile(folder, nil, 0o600)).To(Succeed())
		waits := r.resolve(payments, "memory", 1, noon)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		r.Expect(r.noted(waits)).To(Equal(" waits"))
		r.Expect(os.Remove(folder)).To(Succeed())
		r.Expect(os.Rename(folder+"-away", folder)).To(Succeed())
		time.Sleep(maxRetry)
		synctest.Wait()
		r.Expect(r.noted(waits)).To(Equal("1 of 1 alerts"))
		stop()
		r.Expect(<-ended).To(Succeed())
	})
}
