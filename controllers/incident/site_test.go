package incident

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	mutes "github.com/tocsin-dev/tocsin/controllers/maintenance"
	"github.com/tocsin-dev/tocsin/controllers/release"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/maintenance"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// site is one with a folder that works on it without a manager.
type site struct {
	*testsite.Site
	*folder
	windows *maintenance.Windows
	caches  []*testCache // of all folders
	created sync.Map     // metav1.Time by the UID of Incidents, by the site's clock
}

// date gives an Incident the time at which it was created by the site's clock. That of the API server is known to the second.
func (s *site) date(object client.Object) {
	if created, ok := s.created.Load(object.GetUID()); ok {
		object.SetCreationTimestamp(created.(metav1.Time))
	}
}

// folder is one leader, or what was one: everything that lives in the memory of a process.
type folder struct {
	cache     *testCache
	faults    *faults
	memory    *queue.Memory
	incidents *reconciler
	releases  *release.Releaser
	live      client.Client
	events    *events.FakeRecorder
	lists     int
	afterList func()
}

func TestMain(m *testing.M) { testsite.Main(m) }

// testEpoch is when the tests begin.
var testEpoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Site: testsite.New(t), windows: maintenance.NewWindows()}
	s.folder = s.newFolder()
	t.Cleanup(func() { // what a cache hands out is everybody's
		for _, cache := range s.caches {
			gomega.NewWithT(t).Expect(cache.modified()).To(gomega.BeEmpty())
		}
	})
	return s
}

// newFolder is another process at the same site. Making one and dropping the old one is a crash.
func (s *site) newFolder() *folder {
	memory := queue.NewMemory(s.Clock)
	f := &folder{
		cache: &testCache{
			Reader: s.Live, frozen: map[types.NamespacedName]*v1alpha1.Incident{}, hidden: map[types.UID]bool{}, created: s.Created,
			memory: memory, shows: map[types.UID]*v1alpha1.AlertEvent{}, date: s.date,
		},
		faults: &faults{site: s},
		events: &events.FakeRecorder{Events: make(chan string, 1000)},
		memory: memory,
	}
	s.caches = append(s.caches, f.cache)
	live := interceptor.NewClient(s.Live, f.faults.funcs())
	f.live = live
	f.releases = release.New(f.cache, live, memory, s.Clock)
	lists := newQuorumLists(func(namespaces ...string) lister {
		list := listEvents(live, allShown, namespaces...)
		return func(ctx context.Context, maxBytes int64) (*eventList, error) {
			f.lists++
			listed, err := list(ctx, maxBytes)
			if f.afterList != nil {
				f.afterList()
			}
			return listed, err
		}
	}, []string{s.Namespace})
	f.incidents = newReconciler(f.cache, live, lists, Options{
		Memory: memory, Health: always{s.Clock}, Ingest: backlogOf(0), Clock: s.Clock,
		Features: []Feature{&mutes.Muting{Windows: s.windows}},
	})
	f.incidents.recorder, f.incidents.notices = f.events, flowcontrol.NewFakeAlwaysRateLimiter()
	f.incidents.counts, f.incidents.releases = &listedCounts{site: s, incidents: math.MaxInt64, bytes: math.MaxInt64}, f.releases
	f.incidents.sweeper = &noResolved{}
	return f
}

// always could alerts be stored.
type always struct{ clock replica.Clock }

func (always) QuietFrom(types.NamespacedName, time.Time) (time.Time, bool) { return time.Time{}, true }

func (a always) APITime() time.Time { return a.clock.Now() }

// noResolved takes no care of Resolved Incidents.
type noResolved struct {
	full      bool
	revisited []string
}

func (*noResolved) NoteWritten(_, _ *v1alpha1.Incident) {}
func (r *noResolved) IsFull(string) bool                { return r.full }

func (r *noResolved) Revisit(namespace string) { r.revisited = append(r.revisited, namespace) }

// listedCounts count the Incidents that exist and are not Resolved, and bound them.
type listedCounts struct {
	*site
	incidents, bytes int64
	hides            string // the namespace whose AlertEvents the cache does not show; empty: none
}

func (c *listedCounts) usage(namespace string) (own capacity.Usage) {
	for _, incident := range c.open(namespace) {
		own = own.Plus(capacity.UsageOf(&incident))
	}
	return own
}

func (c *listedCounts) MayOpen(namespace string) bool {
	return c.incidents == math.MaxInt64 || c.usage(namespace).Incidents < c.incidents
}

func (c *listedCounts) Fits(read *v1alpha1.Incident, status *v1alpha1.IncidentStatus) bool {
	return c.bytes == math.MaxInt64 || status.State == v1alpha1.IncidentResolved || c.usage(read.Namespace).Bytes < c.bytes
}

func (c *listedCounts) Hides(namespace string) bool { return namespace == c.hides }

func (c *listedCounts) OfIntegration(namespace, integration string) (names []string) {
	for _, incident := range c.open(namespace) {
		if incident.Spec.IntegrationName == integration {
			names = append(names, incident.Name)
		}
	}
	return names
}

func (c *listedCounts) open(namespace string) []v1alpha1.Incident {
	var list v1alpha1.IncidentList
	c.Expect(c.Live.List(c.Ctx, &list, client.InNamespace(namespace))).To(gomega.Succeed())
	return slices.DeleteFunc(list.Items, func(incident v1alpha1.Incident) bool {
		return incident.Status.State == v1alpha1.IncidentResolved
	})
}

// faults are hooks before and after what a folder does to the API server. An error from one is what the
// folder gets instead.
type faults struct {
	site                                              *site
	mu                                                sync.Mutex
	beforeCreate, beforeStatus, afterStatus, onDelete func() error
	statusWrites, incidentReads                       int

	beforeRead                           func()                         // from the quorum
	refuseStatus                         func(*v1alpha1.Incident) error // by what is written
	refuseCreate                         func(client.Object) error
	beforePatch, afterPatch, afterCreate func() error
	patches                              int
}

var errCrash = errors.New("the process is killed here")

func (f *faults) call(hook func() error) error {
	if hook == nil {
		return nil
	}
	return hook()
}

func (f *faults) noteRead() {
	if f.beforeRead != nil {
		f.beforeRead()
	}
}

func (f *faults) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			f.noteRead()
			if _, ok := object.(*v1alpha1.Incident); ok {
				f.incidentReads++
			}
			err := c.Get(ctx, key, object, opts...)
			f.site.date(object)
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			f.noteRead()
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			if err := f.call(f.beforeCreate); err != nil {
				return err
			}
			if f.refuseCreate != nil {
				if err := f.refuseCreate(object); err != nil {
					return err
				}
			}
			if err := c.Create(ctx, object, opts...); err != nil {
				return err
			}
			f.site.created.Store(object.GetUID(), metav1.NewTime(f.site.Clock.Now()))
			f.site.date(object)
			return f.call(f.afterCreate)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := f.call(f.beforePatch); err != nil {
				return err
			}
			if err := c.Patch(ctx, object, patch, opts...); err != nil {
				return err
			}
			if _, ok := object.(*v1alpha1.Incident); ok {
				f.patches++
			}
			return f.call(f.afterPatch)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			if err := f.call(f.onDelete); err != nil {
				return err
			}
			return c.Delete(ctx, object, opts...)
		},
		SubResourceUpdate: func(
			ctx context.Context, c client.Client, name string, object client.Object, opts ...client.SubResourceUpdateOption,
		) error {
			if err := f.call(f.beforeStatus); err != nil {
				return err
			}
			if incident, ok := object.(*v1alpha1.Incident); ok && f.refuseStatus != nil {
				if err := f.refuseStatus(incident); err != nil {
					return err
				}
			}
			if err := c.SubResource(name).Update(ctx, object, opts...); err != nil {
				return err
			}
			f.mu.Lock()
			f.statusWrites++
			f.mu.Unlock()
			return f.call(f.afterStatus)
		},
	}
}

// reconcile folds once.
func (s *site) reconcile(dedupKey string) (ctrl.Result, error) {
	return s.incidents.Reconcile(s.Ctx, ctrl.Request{NamespacedName: s.KeyOf(dedupKey)})
}

// fold folds until there is no more to do at once, and returns the last result.
func (s *site) fold(dedupKey string) ctrl.Result {
	for range 10 {
		result, err := s.reconcile(dedupKey)
		s.Expect(err).NotTo(gomega.HaveOccurred())
		if result.RequeueAfter == 0 || result.RequeueAfter > staleRetry {
			return result
		}
	}
	s.Expect(fmt.Errorf("the fold of %q does not come to rest", dedupKey)).NotTo(gomega.HaveOccurred())
	return ctrl.Result{}
}

// watch has the folder's memory learn what its watch shows, and the release what the marks say.
func (s *site) watch() {
	var list v1alpha1.AlertEventList
	s.Expect(s.cache.List(s.Ctx, &list, client.InNamespace(s.Namespace))).To(gomega.Succeed())
	for i := range list.Items {
		s.releases.NoteMark(s.Ctx, &list.Items[i])
	}
}

// release deletes what is due, writes the marks that are wanted, and drops the records of what is gone.
func (s *site) release() {
	for _, ref := range s.releases.Refs() {
		_, err := s.releases.Reconcile(s.Ctx, ref)
		s.Expect(err).NotTo(gomega.HaveOccurred())
	}
	s.watch()
	s.releases.Tidy(s.Ctx)
	s.deleteCopies()
	s.watch()
}

// deleteCopies deletes the second copies that the folder's memory knows.
func (s *site) deleteCopies() {
	var list v1alpha1.AlertEventList
	s.Expect(s.cache.List(s.Ctx, &list, client.InNamespace(s.Namespace))).To(gomega.Succeed())
	for i := range list.Items {
		if isCopy, _, _ := s.memory.CopyState(list.Items[i].UID); isCopy {
			s.Expect(replica.DeleteCopy(s.Ctx, s.live, s.memory, queue.RefOf(&list.Items[i]))).To(gomega.Succeed())
		}
	}
}

// deleteByUser deletes an Incident, as a user does and the watch shows.
func (s *site) deleteByUser(dedupKey string) {
	incident := s.Incident(dedupKey)
	s.Expect(s.Live.Delete(s.Ctx, incident)).To(gomega.Succeed())
	if incident.Status.State != v1alpha1.IncidentResolved {
		s.incidents.noteGone(s.Ctx, incident)
	}
	s.release()
}

// told are the reasons of the Kubernetes Events so far, with their notes.
func (f *folder) told() []string {
	var told []string
	for {
		select {
		case event := <-f.events.Events:
			told = append(told, event)
		default:
			return told
		}
	}
}
