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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
)

// manage runs a manager with the controllers for the site's namespace. The returned function stops it.
func (s *site) manage(t *testing.T) (stop func()) {
	t.Helper()
	return s.manageWith(t, Options{})
}

func (s *site) manageWith(t *testing.T, options Options) (stop func()) {
	t.Helper()
	skip := true
	options.Memory = NewEventMemory(systemClock{})
	mgr, err := ctrl.NewManager(controlPlane(t), ctrl.Options{
		Scheme:  testenv.Scheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{s.namespace: {}},
			ByObject: map[client.Object]cache.ByObject{
				&v1alpha1.AlertEvent{}: {Transform: options.Memory.Cached.Condense},
				&v1alpha1.Incident{}:   {Transform: clustercache.Condense, Field: clustercache.Selector()},
			},
		},
		NewCache:   (&clustercache.Informers{}).NewCache,
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	s.Expect(err).NotTo(HaveOccurred())
	options.Namespaces, options.Clock = []string{s.namespace}, systemClock{}
	replica, err := NewReplica(mgr, options)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(replica.Lead(mgr)).To(Succeed())
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

func (s *site) realTime() { s.clock.SetTime(time.Now()) }

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
			alert := s.alert(v1alpha1.AlertFiring, fmt.Sprintf("key-%d", posted%keys))
			if posted%50 == 49 {
				alert.Status = v1alpha1.AlertResolved
			}
			batch = append(batch, alert)
			posted++
		}
		s.realTime()
		events = append(events, s.post(batch...))
	}
	return events
}

func (s *site) expectAllCounted(keys int, events []*v1alpha1.AlertEvent) {
	s.Eventually(s.eventNames, time.Minute, 100*time.Millisecond).Should(BeEmpty())
	for i := range keys {
		s.expectCounted(fmt.Sprintf("key-%d", i), events...)
	}
	s.Expect(s.incidentNames()).To(HaveLen(keys))
}

func TestALoadFoldsExactly(t *testing.T) {
	s := newSite(t)
	s.integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{tokenOf("main", s.namespace)}
	})
	logged := len(testLog.String())
	s.manage(t)
	began := time.Now()
	events := s.postLoad(500, 20)
	posted := time.Since(began)
	s.expectAllCounted(20, events)
	t.Logf("500 alerts posted in %s, folded and released after %s", posted, time.Since(began))
	s.Expect(testLog.String()[logged:]).NotTo(ContainSubstring("ERROR"), "races are no errors")

	s.Eventually(func(g Gomega) {
		status := s.integrationStatus()
		g.Expect(meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())
		g.Expect(status.LastReceivedTime).NotTo(BeNil())
	}, 10*time.Second).Should(Succeed())
	s.Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(s.live.List(s.ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
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
		s.Eventually(func() int { return len(s.incidentNames()) }, 20*time.Second, 20*time.Millisecond).ShouldNot(BeZero())
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
	integration := s.integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Retention = &metav1.Duration{Duration: 0}
	})
	listening := newListening(systemClock{})
	listening.answered(time.Now(), time.Now(), time.Now())
	listening.since = time.Now().Add(-time.Hour)
	s.manageWith(t, Options{Listening: listening})
	s.realTime()
	s.postFiring("disk")
	s.Eventually(s.incidentNames, 10*time.Second).ShouldNot(BeEmpty())
	s.post(s.alert(v1alpha1.AlertResolved, "disk"))
	s.Eventually(s.incidentNames, 10*time.Second).Should(BeEmpty())

	// An alert of long ago: a new policy finds it silent for too long.
	listening.answered(time.Now(), time.Now(), time.Now())
	s.clock.SetTime(time.Now().Add(-time.Hour))
	s.postFiring("cpu")
	s.Eventually(s.eventNames, 10*time.Second).Should(BeEmpty())
	s.Expect(s.incident("cpu").Status.State).To(Equal(v1alpha1.IncidentOpen))
	changed := integration.DeepCopy()
	changed.Spec.Retention = nil
	changed.Spec.AutoResolveAfter = &metav1.Duration{Duration: time.Minute}
	s.Expect(s.live.Patch(s.ctx, changed, client.MergeFrom(integration))).To(Succeed())
	s.Eventually(func() v1alpha1.IncidentState { return s.incident("cpu").Status.State }, 10*time.Second).
		Should(Equal(v1alpha1.IncidentResolved))
}

func TestDowntimeOfTheManagerIsNoSilence(t *testing.T) {
	s := newSite(t)
	s.integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.AutoResolveAfter = &metav1.Duration{Duration: time.Minute}
	})
	s.clock.SetTime(time.Now().Add(-time.Hour))
	s.postFiring("disk")
	s.fold("disk")
	s.release()
	incident := s.incident("disk")
	incident.Status.LastAlertTime = new(v1alpha1.NewTimestamp(s.clock.Now())) // and the manager was away since
	s.Expect(s.live.Status().Update(s.ctx, incident)).To(Succeed())

	s.realTime()
	s.manage(t)
	// What there is at the start is folded before what comes then.
	for _, key := range []string{"cpu", "memory"} {
		s.postFiring(key)
		s.Eventually(s.eventNames, 20*time.Second).Should(BeEmpty())
		s.Expect(s.incident("disk").Status.State).To(Equal(v1alpha1.IncidentOpen))
	}
}

func TestAnEventThatCannotBeReadIsReportedAndKept(t *testing.T) {
	s := newSite(t)
	s.manage(t)
	unreadable := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "by-hand"},
		Spec:       v1alpha1.AlertEventSpec{IntegrationName: integrationName, PackedAlerts: "bm8gZ3ppcA=="},
	}
	s.Expect(s.live.Create(s.ctx, unreadable)).To(Succeed())
	s.realTime()
	s.post(s.alert(v1alpha1.AlertFiring, "disk"), s.alert(v1alpha1.AlertFiring, "cpu"))
	s.Eventually(s.incidentNames, 10*time.Second).Should(HaveLen(2), "the others are folded")
	s.Eventually(s.eventNames, 10*time.Second).Should(ConsistOf("by-hand"))
	s.Eventually(func() []string {
		var list eventsv1.EventList
		s.Expect(s.live.List(s.ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
		var notes []string
		for i := range list.Items {
			if list.Items[i].Reason == "Unreadable" {
				notes = append(notes, list.Items[i].Note)
			}
		}
		return notes
	}, 10*time.Second).Should(ContainElement(ContainSubstring("left unprocessed: packedAlerts: ")))
}

func TestWhatTheCacheHoldsIsMeasured(t *testing.T) {
	s, registry := newSite(t), prometheus.NewPedanticRegistry()
	s.manageWith(t, Options{Metrics: registry})
	s.realTime()
	alert := s.alert(v1alpha1.AlertFiring, "disk")
	alert.Severity = v1alpha1.SeverityCritical
	s.post(alert)
	s.postAs(v1alpha1.KeyedEventName(integrationName, "delivery"), s.alert(v1alpha1.AlertResolved, "cpu"))

	RegisterMetrics(registry)
	s.Eventually(func() error {
		return testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP tocsin_alertevents_pending AlertEvents in the cluster that are not yet released, reported alike by every replica.
# TYPE tocsin_alertevents_pending gauge
tocsin_alertevents_pending 1
# HELP tocsin_incidents Incidents in the cluster, by state. Those that are not Resolved also by severity, reported alike by every replica; the number of the Resolved ones by the leading replica, as its newest sweep and its own writes tell it.
# TYPE tocsin_incidents gauge
tocsin_incidents{severity="",state="Resolved"} 0
tocsin_incidents{severity="critical",state="Open"} 1
tocsin_incidents{severity="error",state="Open"} 0
tocsin_incidents{severity="info",state="Open"} 0
tocsin_incidents{severity="warning",state="Open"} 0
`), "tocsin_alertevents_pending", "tocsin_incidents")
	}, 10*time.Second, 100*time.Millisecond).Should(Succeed())
	s.Expect(testutil.GatherAndCount(registry, "tocsin_alertevents_oldest_age_seconds")).To(Equal(1))
	s.Expect(testutil.ToFloat64(alertsFoldedTotal.WithLabelValues(fold.ResultOpened))).To(BeNumerically(">=", 1))
}
