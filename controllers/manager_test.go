package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/incident"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/queue"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

func TestMain(m *testing.M) { testsite.Main(m) }

// site is one whose manager runs the controllers.
type site struct{ *testsite.Site }

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{testsite.NewReal(t)} // with everything that a real API server does
}

// manage runs a manager with the controllers for the site's namespace. The returned function stops it.
func (s *site) manage(t *testing.T) (stop func()) {
	t.Helper()
	return s.manageWith(t, Options{})
}

func (s *site) manageWith(t *testing.T, options Options) (stop func()) {
	t.Helper()
	skip := true
	memory := queue.NewMemory(clock.RealClock{})
	mgr, err := ctrl.NewManager(s.Config, ctrl.Options{
		MapperProvider: clustercache.RESTMapper,
		Scheme:         testenv.Scheme(),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{s.Namespace: {}},
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.AlertEvent{}: {Transform: memory.Cached.Condense},
				&v1alpha1.Incident{}:   {Transform: clustercache.Condense, Field: clustercache.Selector()},
			},
		},
		NewCache:   (&clustercache.Informers{}).NewCache,
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	s.Expect(err).NotTo(HaveOccurred())
	options.Folds.Memory, options.Folds.Namespaces, options.Folds.Clock = memory, []string{s.Namespace}, clock.RealClock{}
	if options.Capacity == nil {
		options.Capacity = capacity.New(capacity.Limits{Share: 1}, memory.Cached, clock.RealClock{})
	}
	s.Expect(options.Capacity.Follow(mgr.GetCache())).To(Succeed())
	options.Mappings, options.Folds.Ingest = validMappings{}, idleIngest{}
	if options.Folds.Health == nil {
		health := replica.NewIngestHealth(clock.RealClock{})
		canary, err := replica.NewCanary(s.Config, replica.CanaryOptions{
			Namespace: s.Namespace, Health: health, Memory: memory, Schemas: newSchemas{}, Watches: noWatches{},
		})
		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(mgr.Add(canary)).To(Succeed())
		options.Folds.Health = health
	}
	process, err := NewReplica(mgr, options)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(process.Lead(mgr)).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the manager ended with: %v", err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

// validMappings are mappings that compile.
type validMappings struct{}

func (validMappings) Check(*v1alpha1.WebhookIntegration) error { return nil }

// idleIngest has no backlog.
type idleIngest struct{}

func (idleIngest) IngestBacklog() int { return 0 }

// newSchemas have all fields.
type newSchemas struct{}

func (newSchemas) Verdict() error { return nil }

// noWatches are not begun again.
type noWatches struct{}

func (noWatches) RestartWatches(client.Object, bool) {}

// postLoad stores alerts over the keys, every tenth event with five alerts, and returns the events.
func (s *site) postLoad(alerts, keys int) []*v1alpha1.AlertEvent {
	var events []*v1alpha1.AlertEvent
	for posted := 0; posted < alerts; {
		size := 1
		if len(events)%10 == 9 {
			size = min(5, alerts-posted)
		}
		var batch []v1alpha1.Alert
		for range size {
			alert := s.Alert(v1alpha1.AlertFiring, fmt.Sprintf("key-%d", posted%keys))
			if posted%50 == 49 {
				alert.Status = v1alpha1.AlertResolved
			}
			batch = append(batch, alert)
			posted++
		}
		s.RealTime()
		events = append(events, s.Post(batch...))
	}
	return events
}

func (s *site) expectAllCounted(keys int, events []*v1alpha1.AlertEvent) {
	s.Eventually(s.EventNames, time.Minute, 100*time.Millisecond).Should(BeEmpty())
	for i := range keys {
		s.ExpectCounted(fmt.Sprintf("key-%d", i), events...)
	}
	s.Expect(s.IncidentNames()).To(HaveLen(keys))
}

func TestALoadFoldsExactly(t *testing.T) {
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{{Name: "main", SHA256: tokens.Hash(s.Namespace)}}
	})
	logged := len(testsite.Log.Contents())
	s.manage(t)
	began := time.Now()
	events := s.postLoad(500, 20)
	posted := time.Since(began)
	s.expectAllCounted(20, events)
	t.Logf("500 alerts posted in %s, folded and released after %s", posted, time.Since(began))
	s.Expect(string(testsite.Log.Contents()[logged:])).NotTo(ContainSubstring("ERROR"), "races are no errors")

	s.Eventually(func(g Gomega) {
		status := s.IntegrationStatus()
		g.Expect(meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())
		g.Expect(status.LastReceivedTime).NotTo(BeNil())
	}, 10*time.Second).Should(Succeed())
	s.Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(s.Live.List(s.Ctx, &list, client.InNamespace(s.Namespace))).To(Succeed())
		opened := 0
		for _, event := range list.Items {
			if event.Reason == string(v1alpha1.TransitionOpened) && event.Regarding.Kind == "Incident" {
				opened++
			}
		}
		g.Expect(opened).To(Equal(20))
	}, 10*time.Second).Should(Succeed())
}

func TestABacklogFoldsExactlyOverRestarts(t *testing.T) {
	s := newSite(t)
	events := s.postLoad(1000, 20)
	began := time.Now()
	for range 3 {
		stop := s.manage(t)
		s.Eventually(func() int { return len(s.IncidentNames()) }, 20*time.Second, 20*time.Millisecond).ShouldNot(BeZero())
		stop()
	}
	s.manage(t)
	s.expectAllCounted(20, events)
	t.Logf("a backlog of 1000 alerts folded and released in %s, over three restarts", time.Since(began))
}

func TestTwoManagersAtOnceFoldExactly(t *testing.T) {
	s := newSite(t)
	s.manage(t)
	s.manage(t)
	events := s.postLoad(300, 10)
	s.expectAllCounted(10, events)
}

func TestTimePassesByItself(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Retention, spec.LateFiringWindow = &metav1.Duration{Duration: 0}, &metav1.Duration{Duration: 0}
	})
	health := replica.NewIngestHealth(clock.RealClock{})
	answer := func(at time.Time) { health.Answered(at, at, at.Add(time.Hour)) } // so that a new Incident is an hour old
	for at := time.Now().Add(-time.Hour); at.Before(time.Now()); at = at.Add(10 * time.Second) {
		answer(at)
	}
	s.manageWith(t, Options{Folds: incident.Options{Health: health}})
	s.RealTime()
	s.PostFiring("disk")
	s.Eventually(s.IncidentNames, 10*time.Second).ShouldNot(BeEmpty())
	s.RealTime()
	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.Eventually(s.IncidentNames, 10*time.Second).Should(BeEmpty())

	// An Incident that is an hour old, as is its last alert: a new policy finds it quiet for too long.
	answer(time.Now())
	s.RealTime() // an alert that is stored late may be a second copy, and waits
	s.PostFiring("cpu")
	s.Eventually(s.EventNames, 10*time.Second).Should(BeEmpty())
	cpu := s.Incident("cpu")
	s.Expect(cpu.Status.State).To(Equal(v1alpha1.IncidentOpen))
	cpu.Status.LastAlertTime = new(v1alpha1.NewTimestamp(time.Now().Add(-time.Hour)))
	s.Expect(s.Live.Status().Update(s.Ctx, cpu)).To(Succeed())
	changed := integration.DeepCopy()
	changed.Spec.Retention = nil
	changed.Spec.AutoResolveAfter = &metav1.Duration{Duration: time.Minute}
	s.Expect(s.Live.Patch(s.Ctx, changed, client.MergeFrom(integration))).To(Succeed())
	s.Eventually(func() v1alpha1.IncidentState { return s.Incident("cpu").Status.State }, 10*time.Second).
		Should(Equal(v1alpha1.IncidentResolved))
}

func TestDowntimeOfTheManagerIsNoSilence(t *testing.T) {
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.AutoResolveAfter = &metav1.Duration{Duration: time.Minute}
	})
	s.Clock.SetTime(time.Now().Add(-time.Hour))
	s.PostAs("by-hand", s.Alert(v1alpha1.AlertFiring, "disk"))
	stop := s.manage(t)
	s.Eventually(s.IncidentNames, 20*time.Second).ShouldNot(BeEmpty())
	s.Eventually(s.EventNames, 20*time.Second).Should(BeEmpty())
	stop()
	incident := s.Incident("disk")
	incident.Status.LastAlertTime = new(v1alpha1.NewTimestamp(s.Clock.Now())) // and the manager was away since
	s.Expect(s.Live.Status().Update(s.Ctx, incident)).To(Succeed())

	s.RealTime()
	s.manage(t)
	// What there is at the start is folded before what comes then.
	for _, key := range []string{"cpu", "memory"} {
		s.PostFiring(key)
		s.Eventually(s.EventNames, 20*time.Second).Should(BeEmpty())
		s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
	}
}

func TestAnEventThatCannotBeReadIsReportedAndKept(t *testing.T) {
	s := newSite(t)
	s.manage(t)
	unreadable := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "by-hand"},
		Spec:       v1alpha1.AlertEventSpec{IntegrationName: testsite.Integration, Alerts: "bm8gZ3ppcA==", Encoding: v1alpha1.AlertsGzip},
	}
	s.Expect(s.Live.Create(s.Ctx, unreadable)).To(Succeed())
	s.RealTime()
	s.Post(s.Alert(v1alpha1.AlertFiring, "disk"), s.Alert(v1alpha1.AlertFiring, "cpu"))
	s.Eventually(s.IncidentNames, 10*time.Second).Should(HaveLen(2), "the others are folded")
	s.Eventually(s.EventNames, 10*time.Second).Should(ConsistOf("by-hand"))
	s.Eventually(func() []string {
		var list eventsv1.EventList
		s.Expect(s.Live.List(s.Ctx, &list, client.InNamespace(s.Namespace))).To(Succeed())
		var notes []string
		for i := range list.Items {
			if list.Items[i].Reason == "Unreadable" {
				notes = append(notes, list.Items[i].Note)
			}
		}
		return notes
	}, 10*time.Second).Should(ContainElement(ContainSubstring("left unprocessed: alerts: ")))
}

func TestWhatTheCacheHoldsIsMeasured(t *testing.T) {
	s, registry := newSite(t), prometheus.NewPedanticRegistry()
	counts := capacity.New(capacity.Limits{}, nil, clock.RealClock{})
	registry.MustRegister(counts)
	s.manageWith(t, Options{Capacity: counts})
	s.RealTime()
	alert := s.Alert(v1alpha1.AlertFiring, "disk")
	alert.Severity = v1alpha1.SeverityCritical
	s.Post(alert)
	s.PostAs(v1alpha1.KeyedEventName(testsite.Integration, "delivery"), s.Alert(v1alpha1.AlertResolved, "cpu"))

	RegisterMetrics(registry)
	s.Eventually(func() error {
		return testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP tocsin_alertevents_pending AlertEvents that are not yet released, without canaries.
# TYPE tocsin_alertevents_pending gauge
tocsin_alertevents_pending 1
# HELP tocsin_incidents Incidents by state, those that are not Resolved also by severity. The leader reports the number of the Resolved ones, as its newest sweep and its own writes tell it.
# TYPE tocsin_incidents gauge
tocsin_incidents{severity="",state="Resolved"} 0
tocsin_incidents{severity="critical",state="Open"} 1
tocsin_incidents{severity="error",state="Open"} 0
tocsin_incidents{severity="info",state="Open"} 0
tocsin_incidents{severity="warning",state="Open"} 0
`), "tocsin_alertevents_pending", "tocsin_incidents")
	}, 10*time.Second, 100*time.Millisecond).Should(Succeed())
	s.Expect(testutil.GatherAndCount(registry, "tocsin_alertevents_oldest_age_seconds")).To(Equal(1))
	s.Expect(testutil.GatherAndCount(registry, "tocsin_alerts_folded_total")).To(BeNumerically(">=", 1))
}

func TestASummaryIsKept(t *testing.T) {
	s := newSite(t)
	told := func() string {
		summary := &v1alpha1.IncidentSummary{}
		err := s.Live.Get(s.Ctx, types.NamespacedName{Namespace: s.Namespace, Name: v1alpha1.SummaryName}, summary)
		condition := meta.FindStatusCondition(summary.Status.Conditions, v1alpha1.ConditionClear)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return err.Error()
		case err != nil:
			return "none"
		case condition == nil:
			return "no condition"
		}
		return fmt.Sprint(condition.Status, ": ", condition.Message)
	}
	expect := func(want string) {
		t.Helper()
		s.Eventually(told, 20*time.Second, 50*time.Millisecond).Should(Equal(want))
	}
	raise := func(severity v1alpha1.Severity) {
		s.RealTime()
		alert := s.Alert(v1alpha1.AlertFiring, "disk")
		alert.Severity = severity
		s.Post(alert)
	}
	s.Integrate(nil)
	stop := s.manage(t)
	expect("True: No Incident is Open.")
	raise(v1alpha1.SeverityWarning)
	expect("True: Open: 1 warning.")
	raise(v1alpha1.SeverityCritical)
	expect("False: Open: 1 critical.")
	s.Expect(s.Live.DeleteAllOf(s.Ctx, &v1alpha1.IncidentSummary{}, client.InNamespace(s.Namespace))).To(Succeed())
	expect("False: Open: 1 critical.")
	stop()
	s.Expect(s.Live.Delete(s.Ctx, s.Incident("disk"))).To(Succeed())
	s.Expect(told()).To(Equal("False: Open: 1 critical."), "nobody leads")
	stop = s.manage(t)
	expect("True: No Incident is Open.")
	stop()
	s.Expect(s.Live.DeleteAllOf(s.Ctx, &v1alpha1.WebhookIntegration{}, client.InNamespace(s.Namespace))).To(Succeed())
	s.manage(t)
	expect("none")
}

func TestWhatTheCacheDroppedIsFoldedWhole(t *testing.T) {
	s := newSite(t)
	s.RealTime()
	alert := s.Alert(v1alpha1.AlertFiring, "disk")
	alert.Title, alert.Description = "Disk full", strings.Repeat("x", 1000)
	event := s.Post(alert)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/keep"]}}`))
	s.Expect(s.Live.Patch(s.Ctx, event, patch)).To(Succeed())
	s.Expect(s.Live.Delete(s.Ctx, event)).To(Succeed())
	s.manage(t)
	s.Eventually(s.IncidentNames, 10*time.Second).ShouldNot(BeEmpty())
	s.Eventually(func() string { return s.Incident("disk").Status.Alert.Title }, 10*time.Second).Should(Equal("Disk full"))
	patch = client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	s.Expect(s.Live.Patch(s.Ctx, event, patch)).To(Succeed())
	s.Eventually(s.EventNames, 10*time.Second).Should(BeEmpty())
	s.Expect(s.Incident("disk").Status.AlertCount).To(BeEquivalentTo(1))
}
