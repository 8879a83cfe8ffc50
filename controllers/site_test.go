package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/packing"
)

// integrationName is the integration whose alerts a test folds.
const integrationName = "shop"

// site is a namespace with an integration, and one folder that works on it without a manager.
type site struct {
	*gomega.WithT
	ctx       context.Context
	namespace string
	live      client.WithWatch
	clock     *fakeClock

	mappingError error                     // what is wrong with every mapping
	created      map[types.UID]metav1.Time // by the site's clock, of the AlertEvents that it posted
	*folder
}

// folder is one leader, or what was one: everything that lives in the memory of a process.
type folder struct {
	cache        *testCache
	faults       *faults
	memory       *EventMemory
	incidents    *incidentReconciler
	releases     *releaser
	copies       *copyDeleter
	integrations *integrationReconciler
	events       *events.FakeRecorder
	lists        int
}

func newSite(t *testing.T) *site {
	t.Helper()
	live, err := client.NewWithWatch(controlPlane(t), client.Options{Scheme: testenv.Scheme()})
	g := gomega.NewWithT(t)
	g.Expect(err).NotTo(gomega.HaveOccurred())
	s := &site{
		WithT:     g,
		ctx:       t.Context(),
		namespace: testenv.Namespace(t, live),
		live:      live,
		created:   map[types.UID]metav1.Time{},
		clock:     newFakeClock(time.Now().UTC().Truncate(time.Microsecond)),
	}
	s.folder = s.newFolder()
	return s
}

// newFolder is another process at the same site. Making one and dropping the old one is a crash.
func (s *site) newFolder() *folder {
	memory := NewEventMemory(s.clock)
	f := &folder{
		cache: &testCache{
			Reader: s.live, frozen: map[types.NamespacedName]*v1alpha1.Incident{}, hidden: map[types.UID]bool{}, created: s.created,
			memory: memory, shows: map[types.UID]*v1alpha1.AlertEvent{},
		},
		faults: &faults{},
		events: &events.FakeRecorder{Events: make(chan string, 1000)},
		memory: memory,
	}
	live := interceptor.NewClient(s.live, f.faults.funcs())
	f.copies = &copyDeleter{memory, live}
	f.releases = newReleaser(f.cache, live, memory, s.clock)
	gate := newWriteGate(2, func() int { return 0 })
	lists := newQuorumLists(func(namespaces ...string) lister {
		list := listEvents(live, namespaces...)
		return func(ctx context.Context, most int64) (*eventList, error) {
			f.lists++
			return list(ctx, most)
		}
	}, []string{s.namespace})
	deletions := &incidentDeleter{cache: f.cache, live: live, gate: gate, releases: f.releases}
	options := Options{Namespaces: []string{s.namespace}, NamespaceShare: 1, Clock: s.clock}
	counts := newStoreCounts(options.withDefaults())
	deletions.resolved = newResolvedIncidents(live, deletions, lists, counts, options.withDefaults())
	f.incidents = &incidentReconciler{
		cache:     f.cache,
		live:      live,
		lists:     lists,
		memory:    memory,
		loads:     newEventLoads(),
		releases:  f.releases,
		deletions: deletions,
		resolved:  deletions.resolved,
		writes:    newWriteMemory(s.clock),
		recorder:  f.events,
		notices:   flowcontrol.NewFakeAlwaysRateLimiter(),
		gate:      gate,
		clock:     s.clock,
		blocked:   newBlockedIncidents(),
		counts:    counts,

		listening:    always{},
		presetWindow: noPresetWindow,
		foldAlerts:   fold.Decide,
	}
	f.integrations = &integrationReconciler{cache: f.cache, live: live, received: newReceivedTimes(), recorder: f.events, clock: s.clock,
		blocked: f.incidents.blocked, stuck: newStuckEvents(), refusals: func(string) string { return "" },
		checkMapping: func(*v1alpha1.WebhookIntegration) error { return s.mappingError }}
	return f
}

// always listens, and always did.
type always struct{}

func (always) silentFrom(types.NamespacedName, time.Time) (time.Time, bool) { return time.Time{}, true }

// faults are hooks before and after what a folder does to the API server. An error from one is what the
// folder gets instead.
type faults struct {
	mu                                                sync.Mutex
	beforeCreate, beforeStatus, afterStatus, onDelete func() error
	statusWrites                                      int

	refuseStatus             func(*v1alpha1.Incident) error // by what is written
	beforePatch, afterCreate func() error
}

var errCrash = errors.New("the process is killed here")

func (f *faults) call(hook func() error) error {
	if hook == nil {
		return nil
	}
	return hook()
}

func (f *faults) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			if err := f.call(f.beforeCreate); err != nil {
				return err
			}
			if err := c.Create(ctx, object, opts...); err != nil {
				return err
			}
			return f.call(f.afterCreate)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := f.call(f.beforePatch); err != nil {
				return err
			}
			return c.Patch(ctx, object, patch, opts...)
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

// alert is what the webhook server would store of a post with this key.
func (s *site) alert(status v1alpha1.AlertStatus, key string) v1alpha1.Alert {
	return v1alpha1.Alert{
		ID:           uuid.NewString(),
		IncidentName: v1alpha1.IncidentName(integrationName, key),
		DedupKey:     key,
		Status:       status,
	}
}

// post stores alerts as the webhook server would.
func (s *site) post(alerts ...v1alpha1.Alert) *v1alpha1.AlertEvent {
	id, err := uuid.NewV7()
	s.Expect(err).NotTo(gomega.HaveOccurred())
	return s.postAs(id.String(), alerts...)
}

func (s *site) postAs(name string, alerts ...v1alpha1.Alert) *v1alpha1.AlertEvent {
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: integrationName,
			ReceivedTime:    v1alpha1.NewTimestamp(s.clock.Now()),
			Alerts:          alerts,
		},
	}
	if len(alerts) > 1 {
		s.Expect(packing.Pack(&event.Spec)).To(gomega.Succeed())
	}
	s.Expect(s.live.Create(s.ctx, event, client.FieldOwner(v1alpha1.FieldManager))).To(gomega.Succeed())
	s.Expect(packing.Unpack(&event.Spec)).To(gomega.Succeed())
	s.created[event.UID] = metav1.NewTime(s.clock.Now())
	return event
}

// postFiring stores one alert that fires with this key.
func (s *site) postFiring(key string) *v1alpha1.AlertEvent {
	return s.post(s.alert(v1alpha1.AlertFiring, key))
}

func (s *site) integrate(change func(*v1alpha1.WebhookIntegrationSpec)) *v1alpha1.WebhookIntegration {
	integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: integrationName}}
	if change != nil {
		change(&integration.Spec)
	}
	s.Expect(s.live.Create(s.ctx, integration)).To(gomega.Succeed())
	return integration
}

func (s *site) keyOf(dedupKey string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: v1alpha1.IncidentName(integrationName, dedupKey)}
}

// reconcile folds once.
func (s *site) reconcile(dedupKey string) (ctrl.Result, error) {
	return s.incidents.Reconcile(s.ctx, ctrl.Request{NamespacedName: s.keyOf(dedupKey)})
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

// watch has the folder's memory learn what its watch shows.
func (s *site) watch() {
	s.Expect(s.cache.List(s.ctx, &v1alpha1.AlertEventList{}, client.InNamespace(s.namespace))).To(gomega.Succeed())
}

// release deletes what is due, writes the marks that are wanted, and drops the records of what is gone.
func (s *site) release() {
	for _, ref := range s.releases.refs() {
		_, err := s.releases.Reconcile(s.ctx, ref)
		s.Expect(err).NotTo(gomega.HaveOccurred())
	}
	s.watch()
	s.releases.tidy(s.ctx)
	for s.memory.copies.Len() > 0 {
		s.copies.deleteNext(s.ctx)
	}
	s.watch()
}

// deleteByUser deletes an Incident, as a user does and the watch shows.
func (s *site) deleteByUser(dedupKey string) {
	incident := s.incident(dedupKey)
	s.Expect(s.live.Delete(s.ctx, incident)).To(gomega.Succeed())
	if incident.Status.State != v1alpha1.IncidentResolved {
		s.incidents.gone(s.ctx, incident)
	}
	s.release()
}

func (s *site) incident(dedupKey string) *v1alpha1.Incident {
	incident := &v1alpha1.Incident{}
	s.Expect(s.live.Get(s.ctx, s.keyOf(dedupKey), incident)).To(gomega.Succeed())
	return incident
}

func (s *site) incidentNames() []string {
	var list v1alpha1.IncidentList
	s.Expect(s.live.List(s.ctx, &list, client.InNamespace(s.namespace))).To(gomega.Succeed())
	names := []string{}
	for _, incident := range list.Items {
		names = append(names, incident.Name)
	}
	return names
}

func (s *site) eventNames() []string {
	var list v1alpha1.AlertEventList
	s.Expect(s.live.List(s.ctx, &list, client.InNamespace(s.namespace))).To(gomega.Succeed())
	names := []string{}
	for _, event := range list.Items {
		names = append(names, event.Name)
	}
	return names
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
