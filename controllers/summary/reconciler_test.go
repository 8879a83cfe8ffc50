package summary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/apiserver"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
)

func TestMain(m *testing.M) { testsite.Main(m) }

// site is one with a leader that keeps the summary of its namespace.
type site struct {
	*testsite.Site
	*reconciler
	written int   // how often it wrote
	failure error // of its writes
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Site: testsite.New(t)}
	s.Clock.SetTime(noon)
	s.lead()
	return s
}

// lead begins a term.
func (s *site) lead() {
	write := func() error {
		s.written++
		return s.failure
	}
	counting := interceptor.NewClient(s.Live, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			if err := write(); err != nil {
				return err
			}
			return c.SubResource(name).Patch(ctx, o, patch, opts...)
		},
	})
	s.reconciler = newReconciler(unresolved{s.Live}, counting, testsite.APIClock{PassiveClock: s.Clock})
}

// unresolved reads what the cache has: Incidents that are not Resolved.
type unresolved struct{ client.Reader }

func (u unresolved) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.IncidentList); ok {
		opts = append(opts, client.MatchingFieldsSelector{Selector: clustercache.Selector()})
	}
	return u.Reader.List(ctx, list, opts...)
}

func (s *site) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: v1alpha1.SummaryName}
}

// count has the leader look at the namespace, and returns after how long it looks again.
func (s *site) count() time.Duration {
	result, err := s.Reconcile(s.Ctx, ctrl.Request{NamespacedName: s.key()})
	s.Expect(err).NotTo(HaveOccurred())
	return result.RequeueAfter
}

// later sets the clock by so much, and has the leader look.
func (s *site) later(d time.Duration) time.Duration {
	s.Clock.SetTime(s.Clock.Now().Add(d))
	return s.count()
}

func (s *site) summary() *v1alpha1.IncidentSummary {
	summary := &v1alpha1.IncidentSummary{}
	s.Expect(s.Live.Get(s.Ctx, s.key(), summary)).To(Succeed())
	return summary
}

func (s *site) expectNoSummary() {
	err := s.Live.Get(s.Ctx, s.key(), &v1alpha1.IncidentSummary{})
	s.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
}

// set writes an Incident, and its status.
func (s *site) set(name string, severity v1alpha1.Severity, change ...func(*v1alpha1.Incident)) {
	wanted := incident(name, severity, 0, change...)
	for i := range wanted.Status.Conditions {
		wanted.Status.Conditions[i].Reason, wanted.Status.Conditions[i].LastTransitionTime = "Test", metav1.NewTime(noon)
	}
	stored := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	stored.Spec = v1alpha1.IncidentSpec{IntegrationName: testsite.Integration, DedupKey: name}
	if err := s.Live.Create(s.Ctx, stored); !apierrors.IsAlreadyExists(err) {
		s.Expect(err).NotTo(HaveOccurred())
	}
	s.Expect(s.Live.Get(s.Ctx, client.ObjectKeyFromObject(stored), stored)).To(Succeed())
	stored.Status = wanted.Status
	s.Expect(s.Live.Status().Update(s.Ctx, stored)).To(Succeed())
}

func (s *site) delete(object client.Object, name string) {
	object.SetNamespace(s.Namespace)
	object.SetName(name)
	s.Expect(s.Live.Delete(s.Ctx, object)).To(Succeed())
}

func TestASummaryFollowsItsNamespace(t *testing.T) {
	s := newSite(t)
	s.count()
	s.expectNoSummary()
	s.Integrate(nil)
	s.later(countInterval)
	s.Expect(told(s.summary())).To(HavePrefix("Clear True NoSevereIncident: No Incident is Open."))
	s.Expect(s.summary().Status.ObservedGeneration).To(Equal(s.summary().Generation))

	s.set("a", v1alpha1.SeverityWarning)
	s.later(countInterval)
	s.Expect(told(s.summary())).To(HavePrefix("Clear True NoSevereIncident: Open: 1 warning."))
	s.set("a", v1alpha1.SeverityCritical)
	s.later(countInterval)
	s.Expect(told(s.summary())).To(HavePrefix("Clear False SevereIncidentOpen: Open: 1 critical."))
	s.Expect(s.summary().Status.NewestCritical.Title).To(Equal("Title of a"))
	s.set("a", v1alpha1.SeverityCritical, acknowledged)
	s.set("b", v1alpha1.SeverityError)
	s.later(countInterval)
	s.Expect(told(s.summary())).To(ContainSubstring("open {1 1 0 0 2}, unacknowledged {0 1 0 0 1}, newest a"))
	s.set("a", v1alpha1.SeverityCritical, resolved)
	s.later(countInterval)
	s.Expect(told(s.summary())).To(HaveSuffix("Open: 1 error. open {0 1 0 0 1}, unacknowledged {0 1 0 0 1}, newest none"))

	s.delete(&v1alpha1.WebhookIntegration{}, testsite.Integration)
	s.later(countInterval)
	s.Expect(told(s.summary())).To(ContainSubstring("Open: 1 error."), "an Incident is open, though its integration is gone")
	s.delete(&v1alpha1.Incident{}, "b")
	s.later(countInterval)
	s.expectNoSummary()
	s.later(countInterval)
	_, remembered := s.due.Load(s.Namespace)
	s.Expect(remembered).To(BeFalse(), "nothing is remembered of a namespace without a summary")
}

// TestASummaryOfSomebodyElseStays has a rollout create the summary before the integration, for which it waits.
func TestASummaryOfSomebodyElseStays(t *testing.T) {
	s := newSite(t)
	own := &v1alpha1.IncidentSummary{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: v1alpha1.SummaryName}}
	s.Expect(s.Live.Create(s.Ctx, own)).To(Succeed())
	s.count()
	s.Expect(told(s.summary())).To(HavePrefix("Clear True NoSevereIncident: No Incident is Open."))
	s.Expect(s.summary().UID).To(Equal(own.UID))
	s.set("a", v1alpha1.SeverityCritical)
	s.later(countInterval)
	s.Expect(told(s.summary())).To(HavePrefix("Clear False"))
	s.delete(&v1alpha1.Incident{}, "a")
	s.later(countInterval)
	s.Expect(told(s.summary())).To(HavePrefix("Clear True"), "it is counted on")
}

// TestAlertsThatAreNotFoldedCloseTheGate has alerts of which no Incident can tell.
func TestAlertsThatAreNotFoldedCloseTheGate(t *testing.T) {
	s := newSite(t)
	s.Integrate(nil)
	s.count()
	s.Expect(told(s.summary())).To(HavePrefix("Clear True"))
	fold := func(status metav1.ConditionStatus, reason string) {
		var integration v1alpha1.WebhookIntegration
		key := client.ObjectKey{Namespace: s.Namespace, Name: testsite.Integration}
		s.Expect(s.Live.Get(s.Ctx, key, &integration)).To(Succeed())
		meta.SetStatusCondition(&integration.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionAlertsFolded, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(noon),
		})
		s.Expect(s.Live.Status().Update(s.Ctx, &integration)).To(Succeed())
	}
	fold(metav1.ConditionFalse, v1alpha1.ReasonIncidentRejected)
	s.later(countInterval)
	s.Expect(told(s.summary())).To(HavePrefix("Clear Unknown AlertsNotFolded: No Incident is Open. Alerts for " +
		testsite.Integration + " (IncidentRejected) do not become Incidents."))
	fold(metav1.ConditionTrue, v1alpha1.ReasonFolding)
	s.later(countInterval)
	s.Expect(told(s.summary())).To(HavePrefix("Clear True NoSevereIncident"))
}

func TestChangesWithinTheIntervalAreOneWrite(t *testing.T) {
	s := newSite(t)
	s.Integrate(nil)
	s.Expect(s.count()).To(BeZero())
	s.Expect(s.written).To(Equal(2), "the object and its status")
	s.Clock.SetTime(noon.Add(time.Minute))
	s.set("a", v1alpha1.SeverityCritical)
	s.Expect(s.count()).To(BeZero())
	s.Expect(s.written).To(Equal(3), "the first change is written at once")
	for _, name := range []string{"b", "c", "d"} {
		s.set(name, v1alpha1.SeverityCritical)
		s.Expect(s.later(500 * time.Millisecond)).To(BeNumerically(">", 0))
	}
	s.Expect(s.written).To(Equal(3))
	s.Expect(told(s.summary())).To(ContainSubstring("Open: 1 critical."))
	s.Expect(s.later(500 * time.Millisecond)).To(BeZero())
	s.Expect(s.written).To(Equal(4))
	s.Expect(told(s.summary())).To(ContainSubstring("Open: 4 critical."))
	s.Expect(s.later(time.Minute)).To(BeZero())
	s.Expect(s.written).To(Equal(4), "nothing has changed")
}

func TestAClockThatIsSetBackDelaysNothing(t *testing.T) {
	s := newSite(t)
	s.Integrate(nil)
	s.count()
	s.set("a", v1alpha1.SeverityCritical)
	s.Expect(s.later(-time.Hour)).To(BeZero())
	s.Expect(told(s.summary())).To(ContainSubstring("Open: 1 critical."))
	s.Expect(s.count()).To(Equal(countInterval))
}

func TestASummaryThatSomebodyDeletesOrChangesComesBack(t *testing.T) {
	s := newSite(t)
	s.set("a", v1alpha1.SeverityCritical)
	s.count()
	s.delete(&v1alpha1.IncidentSummary{}, v1alpha1.SummaryName)
	s.later(countInterval)
	s.Expect(told(s.summary())).To(ContainSubstring("Open: 1 critical."))

	forged := s.summary()
	describe(forged, &contents{}, noon)
	s.Expect(s.Live.Status().Update(s.Ctx, forged)).To(Succeed())
	s.later(countInterval)
	s.Expect(told(s.summary())).To(ContainSubstring("Open: 1 critical."))
}

func TestANewLeaderCountsAnew(t *testing.T) {
	s := newSite(t)
	s.set("a", v1alpha1.SeverityCritical)
	s.count()
	s.set("a", v1alpha1.SeverityWarning) // while nobody leads
	s.lead()
	s.Expect(s.count()).To(BeZero(), "it waits for no interval of another one")
	s.Expect(told(s.summary())).To(ContainSubstring("Open: 1 warning."))
}

// earlier shows the summary as it was before.
type earlier struct {
	client.Reader
	summary *v1alpha1.IncidentSummary
}

func (e earlier) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if summary, ok := object.(*v1alpha1.IncidentSummary); ok {
		e.summary.DeepCopyInto(summary)
		return nil
	}
	return e.Reader.Get(ctx, key, object, opts...)
}

func TestALeaderWithAnOldCacheOverwritesNothing(t *testing.T) {
	s := newSite(t)
	s.set("a", v1alpha1.SeverityCritical)
	s.count()
	old := s.summary()
	s.set("a", v1alpha1.SeverityError)
	s.later(countInterval)
	fresh := s.cache
	s.cache = earlier{fresh, old}
	s.set("a", v1alpha1.SeverityInfo)
	s.Expect(s.later(countInterval)).To(Equal(countInterval), "it looks again")
	s.Expect(told(s.summary())).To(ContainSubstring("Open: 1 error."))
	s.delete(&v1alpha1.Incident{}, "a")
	s.Expect(s.later(countInterval)).To(Equal(countInterval))
	s.Expect(told(s.summary())).To(ContainSubstring("Open: 1 error."), "it is not deleted either")

	s.cache = earlier{fresh, &v1alpha1.IncidentSummary{}} // or one that does not show it
	s.set("b", v1alpha1.SeverityInfo)
	s.Expect(s.later(countInterval)).To(Equal(countInterval))
	s.cache = fresh
	s.later(countInterval)
	s.Expect(told(s.summary())).To(ContainSubstring("Open: 1 info."))
}

func TestAWriteThatFailsIsTriedLater(t *testing.T) {
	s := newSite(t)
	s.set("a", v1alpha1.SeverityCritical)
	s.failure = errors.New("the store is full")
	_, err := s.Reconcile(s.Ctx, ctrl.Request{NamespacedName: s.key()})
	s.Expect(err).To(MatchError(ContainSubstring("creating the IncidentSummary: the store is full")))
	s.failure = nil
	for range 3 { // whatever changes meanwhile
		s.Expect(s.later(3 * time.Second)).To(BeNumerically(">", 0))
	}
	s.Expect(s.written).To(Equal(1))
	s.Expect(s.later(time.Second)).To(BeZero())
	s.Expect(told(s.summary())).To(ContainSubstring("Open: 1 critical."))
}

func TestANamespaceThatIsDeletedIsLeftAlone(t *testing.T) {
	s := newSite(t)
	s.set("a", v1alpha1.SeverityCritical)
	s.failure = &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
	}}
	s.Expect(s.count()).To(BeZero())
	s.Expect(s.written).To(Equal(1))
}

func TestWhichChangesAreCounted(t *testing.T) {
	s := newSite(t)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	versioned := func(version string, severity v1alpha1.Severity) *v1alpha1.Incident {
		i := incident("a", severity, 0)
		i.Namespace, i.ResourceVersion = s.Namespace, version
		return &i
	}
	integration := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "i", ResourceVersion: "1"}}
	received := integration.DeepCopy()
	received.ResourceVersion, received.Status.LastReceivedTime = "2", new(v1alpha1.NewTimestamp(noon))
	notFolded := integration.DeepCopy()
	notFolded.ResourceVersion, notFolded.Status.Conditions = "3", []metav1.Condition{
		{Type: v1alpha1.ConditionAlertsFolded, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFoldFailed},
	}
	incidents := watch(differs)
	integrations := watch(differsInFolding)
	incidents.Update(s.Ctx, event.UpdateEvent{ObjectOld: versioned("1", "error"), ObjectNew: versioned("2", "error")}, queue)
	integrations.Update(s.Ctx, event.UpdateEvent{ObjectOld: integration, ObjectNew: received}, queue)
	s.Expect(queue.Len()).To(BeZero())
	for what, change := range map[string]func(){
		"an Incident at the start": func() {
			incidents.Create(s.Ctx, event.CreateEvent{Object: versioned("1", "error"), IsInInitialList: true}, queue)
		},
		"a rise of the severity": func() {
			incidents.Update(s.Ctx, event.UpdateEvent{ObjectOld: versioned("1", "info"), ObjectNew: versioned("2", "error")}, queue)
		},
		"an Incident that is gone": func() { incidents.Delete(s.Ctx, event.DeleteEvent{Object: versioned("1", "error")}, queue) },
		"an integration whose alerts do not become Incidents": func() {
			integrations.Update(s.Ctx, event.UpdateEvent{ObjectOld: received, ObjectNew: notFolded}, queue)
		},
		"an integration":   func() { integrations.Create(s.Ctx, event.CreateEvent{Object: integration}, queue) },
		"one that is gone": func() { integrations.Delete(s.Ctx, event.DeleteEvent{Object: integration}, queue) },
	} {
		change()
		s.Expect(queue.Len()).To(Equal(1), what)
		request, _ := queue.Get()
		s.Expect(request.NamespacedName).To(Equal(s.key()))
		queue.Done(request)
	}
}

// TestAllNamespacesShareTheWrites has all namespaces change at once, twice. However many they are, an interval of a second has no
// more writes than the rate, and one.
func TestAllNamespacesShareTheWrites(t *testing.T) {
	definitions, err := apiserver.ReadDefinitions(os.DirFS(filepath.Join(testenv.Root(), "config", "crd", "bases")))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	synctest.Test(t, func(t *testing.T) {
		const namespaces = 100
		g := NewWithT(t)
		server, err := apiserver.New(apiserver.Options{Definitions: definitions})
		g.Expect(err).NotTo(HaveOccurred())
		mapper, err := clustercache.RESTMapper(nil, nil)
		g.Expect(err).NotTo(HaveOccurred())
		live, err := client.New(server.Config("test", nil), client.Options{Scheme: testenv.Scheme(), Mapper: mapper})
		g.Expect(err).NotTo(HaveOccurred())
		var written []time.Time
		server.OnCommit(func(c apiserver.Commit) {
			if c.Resource == "incidentsummaries.tocsin.dev" {
				written = append(written, time.Now())
			}
		})
		r := newReconciler(unresolved{live}, live, testsite.APIClock{PassiveClock: clock.RealClock{}})
		for round := range 2 {
			for i := range namespaces {
				name := fmt.Sprint("team-", i)
				if round == 0 {
					server.CreateNamespaces(name)
				}
				stored := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: fmt.Sprint("i", round)}}
				stored.Spec = v1alpha1.IncidentSpec{IntegrationName: "shop", DedupKey: stored.Name}
				g.Expect(live.Create(t.Context(), stored)).To(Succeed())
				stored.Status.State, stored.Status.Alert.Severity = v1alpha1.IncidentOpen, v1alpha1.SeverityCritical
				g.Expect(live.Status().Update(t.Context(), stored)).To(Succeed())
			}
			time.Sleep(countInterval)
			began := time.Now()
			for i := range namespaces {
				key := types.NamespacedName{Namespace: fmt.Sprint("team-", i), Name: v1alpha1.SummaryName}
				_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
				g.Expect(err).NotTo(HaveOccurred())
				var summary v1alpha1.IncidentSummary
				g.Expect(live.Get(t.Context(), key, &summary)).To(Succeed())
				g.Expect(summary.Status.Open.Critical).To(BeEquivalentTo(round + 1))
			}
			t.Logf("%d namespaces in %s", namespaces, time.Since(began))
		}
		g.Expect(written).To(HaveLen(3 * namespaces))
		for i := range len(written) - writeRate {
			g.Expect(written[i+writeRate].Sub(written[i])).To(BeNumerically(">=", time.Second-time.Millisecond))
		}
	})
}
