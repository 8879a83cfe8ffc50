package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/heartbeats"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

func TestMain(m *testing.M) { testsite.Main(m) }

// fixedHealth is one that a test sets.
type fixedHealth struct {
	replica.Health

	now, from time.Time
	broken    bool
}

func (h *fixedHealth) QuietFrom(_ types.NamespacedName, unavailable time.Time) (time.Time, bool) {
	if unavailable.After(h.from) {
		return unavailable, !h.broken
	}
	return h.from, !h.broken
}

func (h *fixedHealth) APITime() time.Time { return h.now }

// site is one with a leader that works on the API server without a manager.
type site struct {
	*testsite.Site
	*reconciler
	health *fixedHealth
	events *events.FakeRecorder
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Site: testsite.New(t), health: &fixedHealth{}, events: &events.FakeRecorder{Events: make(chan string, 100)}}
	s.health.now, s.health.from = s.Clock.Now(), s.Clock.Now().Add(-time.Hour)
	s.create("beat", v1alpha1.HeartbeatSpec{Incident: &v1alpha1.HeartbeatIncident{
		Title: "The backup is missing", Severity: v1alpha1.SeverityError,
	}})
	s.lead(s.Live)
	integration := s.Integrate(func(*v1alpha1.WebhookIntegrationSpec) {})
	integration.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepting,
		LastTransitionTime: metav1.NewTime(s.Clock.Now().Add(-2 * time.Hour)),
	}}
	s.Expect(s.Live.Status().Update(s.Ctx, integration)).To(Succeed())
	return s
}

// lead begins the term of a leader with this client, who knows the heartbeats already.
func (s *site) lead(live client.Client) {
	s.reconciler = &reconciler{
		cache: s.Live, live: live, health: s.health, recorder: s.events,
	}
	for _, name := range []string{"beat", "other"} {
		h := &v1alpha1.Heartbeat{}
		if err := s.Live.Get(s.Ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, h); err == nil {
			s.specified(h, s.health.now.Add(-relearn))
		}
	}
}

// create creates a heartbeat of five minutes.
func (s *site) create(name string, spec v1alpha1.HeartbeatSpec) {
	spec.IntegrationName, spec.Every = testsite.Integration, every(5*time.Minute)
	spec.Match = &v1alpha1.HeartbeatMatch{AnyRequest: true}
	h := &v1alpha1.Heartbeat{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Spec: spec}
	s.Expect(s.Live.Create(s.Ctx, h)).To(Succeed())
}

func request(namespace, name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// look has the leader look at the heartbeats and their Incidents after a while, and returns how many AlertEvents there are.
func (s *site) look(after time.Duration) int {
	s.pass(after)
	for _, name := range []string{"beat", "other"} {
		_, err := s.Reconcile(s.Ctx, request(s.Namespace, name))
		s.Expect(err).NotTo(HaveOccurred())
		incident := v1alpha1.IncidentName(testsite.Integration, v1alpha1.HeartbeatKey(name))
		_, err = orphans{s.reconciler}.Reconcile(s.Ctx, request(s.Namespace, incident))
		s.Expect(err).NotTo(HaveOccurred())
	}
	return len(s.EventNames())
}

func (s *site) pass(d time.Duration) {
	s.health.now = s.health.now.Add(d)
	s.Clock.SetTime(s.health.now)
}

func (s *site) hear() {
	h := s.heartbeat()
	h.Status.LastSignalTime = new(v1alpha1.NewTimestamp(s.health.now))
	s.Expect(s.Live.Status().Update(s.Ctx, h)).To(Succeed())
}

func (s *site) heartbeat() *v1alpha1.Heartbeat {
	h := &v1alpha1.Heartbeat{}
	s.Expect(s.Live.Get(s.Ctx, client.ObjectKey{Namespace: s.Namespace, Name: "beat"}, h)).To(Succeed())
	return h
}

func (s *site) status() *v1alpha1.HeartbeatStatus { return &s.heartbeat().Status }

// TestADefinitionIsKnownSinceNoTimeOfTheFuture sets the API server's clock back: otherwise a heartbeat would be missed only when it
// shows the same time again.
func TestADefinitionIsKnownSinceNoTimeOfTheFuture(t *testing.T) {
	g, r, h := NewWithT(t), &reconciler{}, &v1alpha1.Heartbeat{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "beat"}}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		passed time.Duration // by the API server's clock
		every  time.Duration // of the heartbeat
		known  time.Duration // for how long the leader knows the definition
	}{
		{0, time.Minute, 0}, {time.Hour, time.Minute, time.Hour}, {-2 * time.Hour, time.Minute, 0}, {time.Minute, time.Minute, time.Minute},
		{time.Minute, time.Hour, 0}, {-time.Second, time.Hour, 0}, {time.Minute, time.Hour, time.Minute},
	} {
		now = now.Add(step.passed)
		h.Spec.Every = every(step.every)
		g.Expect(now.Sub(r.specified(h, now))).To(Equal(step.known), "%v", step)
	}
}

func TestTheLeaderStoresWhatItFinds(t *testing.T) {
	s := newSite(t)
	s.Expect(s.look(0)).To(BeZero())
	s.Expect(s.status().ObservedTime).NotTo(BeNil())
	s.hear()
	s.Expect(s.look(6*time.Minute - time.Second)).To(BeZero())
	s.Expect(s.look(time.Second)).To(Equal(1))
	s.Expect(s.status().MissedTime.Time).To(BeTemporally("~", s.health.now, time.Microsecond))
	s.Expect(s.events.Events).To(Receive(ContainSubstring("Warning HeartbeatMissed No signal has come in time")))
	event := &v1alpha1.AlertEvent{}
	s.Expect(s.Live.Get(s.Ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.EventNames()[0]}, event)).To(Succeed())
	s.Expect(queue.Decode(event)).To(Succeed())
	alert := event.Alerts[0]
	s.Expect(alert.Title).To(Equal("The backup is missing"))
	s.Expect(alert.Severity).To(Equal(v1alpha1.SeverityError))
	s.Expect(event.IncidentNameFor(&alert)).To(Equal(v1alpha1.IncidentName(testsite.Integration, "heartbeat/beat")))
	s.Expect(s.look(time.Hour)).To(Equal(1), "once")
	s.Expect(s.status().AlertStatus).To(Equal(v1alpha1.AlertFiring))
	s.hear()
	s.Expect(s.look(0)).To(Equal(2))
	s.Expect(s.status().MissedTime).To(BeNil())
	s.Expect(s.status().AlertStatus).To(Equal(v1alpha1.AlertResolved))
	s.Expect(s.look(time.Minute)).To(Equal(2))
}

// TestAClockThatIsSetForwardDelaysNoMiss has a timer show less time than the API server's clock.
func TestAClockThatIsSetForwardDelaysNoMiss(t *testing.T) {
	s := newSite(t)
	s.look(0)
	s.hear()
	again := func() time.Duration {
		result, err := s.Reconcile(s.Ctx, request(s.Namespace, "beat"))
		s.Expect(err).NotTo(HaveOccurred())
		return result.RequeueAfter
	}
	s.Expect(again()).To(Equal(maxPause))
	before := s.heartbeat().ResourceVersion
	s.pass(maxPause)
	s.Expect(again()).To(Equal(maxPause))
	s.Expect(s.heartbeat().ResourceVersion).To(Equal(before), "a look that finds nothing new writes nothing")
	s.pass(5*time.Minute - maxPause/2)
	s.Expect(again()).To(BeNumerically("~", maxPause/2, time.Second), "when it is due")
	s.pass(maxPause / 2)
	s.Expect(s.look(0)).To(Equal(1))
}

func TestTheLeaderReportsHeartbeats(t *testing.T) {
	s := newSite(t)
	s.look(0)
	s.look(6 * time.Minute)
	s.hear()
	shown, expected := &collector{}, strings.NewReader("# HELP tocsin_heartbeat_missed "+
		"1 while a heartbeat is missed, else 0; reported by the leader for the heartbeats that count.\n"+
		"# TYPE tocsin_heartbeat_missed gauge\n"+
		fmt.Sprintf("tocsin_heartbeat_missed{heartbeat=%q,integration=%q,namespace=%q} 0\n", "beat", testsite.Integration, s.Namespace))
	s.Expect(testutil.CollectAndCount(shown)).To(BeZero(), "before its term")
	ctx, end := context.WithCancel(s.Ctx)
	shown.report(ctx, client.NewNamespacedClient(s.Live, s.Namespace))
	s.Expect(testutil.CollectAndCompare(shown, expected, "tocsin_heartbeat_missed")).To(Succeed())
	s.Expect(testutil.CollectAndCount(shown, "tocsin_heartbeat_last_signal_timestamp_seconds")).To(Equal(1))
	end()
	s.Eventually(func() int { return testutil.CollectAndCount(shown) }).Should(BeZero(), "after its term")
}

func TestAnotherReplicaRefusedASignal(t *testing.T) {
	s := newSite(t)
	s.look(0)
	s.hear()
	s.pass(6 * time.Minute)
	integration := &v1alpha1.WebhookIntegration{}
	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
	integration.Status.LastUnavailableTime = new(v1alpha1.NewTimestamp(s.health.now.Add(-time.Minute)))
	s.Expect(s.Live.Status().Update(s.Ctx, integration)).To(Succeed())
	s.Expect(s.look(0)).To(BeZero())
	s.Expect(s.look(5 * time.Minute)).To(Equal(1))
}

func TestNothingIsMissedWhileTheLeaderCannotTell(t *testing.T) {
	s := newSite(t)
	s.look(0)
	s.hear()
	s.health.broken = true
	s.Expect(s.look(time.Hour)).To(BeZero())
	s.health.broken = false
	s.Expect(s.look(0)).To(Equal(1))
}

// patches returns a client that calls before ahead of each patch of a status, with the number of those before.
func patches(c client.Client, before func(n int) error) client.Client {
	n := 0
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{SubResourcePatch: func(
		ctx context.Context, c client.Client, kind string, object client.Object, patch client.Patch,
		options ...client.SubResourcePatchOption,
	) error {
		err := before(n)
		if n++; err != nil {
			return err
		}
		return c.SubResource(kind).Patch(ctx, object, patch, options...)
	}})
}

func TestALeaderThatEndsIsFollowed(t *testing.T) {
	for ended, written := range map[string]int{
		"before the status says that it is missed": 0, "after the alert is stored, before the status says so": 1,
	} {
		t.Run(ended, func(t *testing.T) {
			s := newSite(t)
			s.look(0)
			s.hear()
			s.pass(6 * time.Minute)
			s.lead(patches(s.Live, func(n int) error {
				if n >= written {
					return errors.New("the leader has ended")
				}
				return nil
			}))
			_, err := s.Reconcile(s.Ctx, request(s.Namespace, "beat"))
			s.Expect(err).To(MatchError(ContainSubstring("the leader has ended")))
			s.Expect(s.EventNames()).To(HaveLen(written))
			s.lead(s.Live)
			s.Expect(s.look(time.Second)).To(Equal(1), "one alert of both")
			s.Expect(s.status().MissedTime).NotTo(BeNil())
			s.Expect(s.look(time.Minute)).To(Equal(1))
		})
	}
}

// A quota or a webhook denies the alerts of a heartbeat for an hour.
func TestADeniedAlertIsStoredLaterAndBlocksNoOther(t *testing.T) {
	for sentence, denial := range map[string]error{
		"a quota is full": apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("exceeded quota")),
		"a webhook says that it exists": &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists,
			Message: `admission webhook "x" denied the request: no`,
		}},
	} {
		t.Run(sentence, func(t *testing.T) { checkDeniedAlert(newSite(t), denial) })
	}
}

func checkDeniedAlert(s *site, denial error) {
	h := s.heartbeat()
	h.Spec.Required = true
	s.Expect(s.Live.Update(s.Ctx, h)).To(Succeed())
	s.create("other", v1alpha1.HeartbeatSpec{Required: true})
	s.lead(interceptor.NewClient(s.Live, interceptor.Funcs{Create: func(
		ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption,
	) error {
		if alert := object.(*v1alpha1.AlertEvent).Alerts[0]; alert.DedupKey == v1alpha1.HeartbeatKey("beat") {
			return denial
		}
		return c.Create(ctx, object, options...)
	}}))
	s.look(0)
	s.Expect(s.look(6*time.Minute)).To(Equal(1), "the other one")
	s.Expect(s.status().MissedTime).NotTo(BeNil())
	result, err := s.Reconcile(s.Ctx, request(s.Namespace, "beat"))
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.RequeueAfter).To(Equal(retryPause))
	s.lead(s.Live)
	s.Expect(s.look(time.Hour)).To(Equal(2))
	s.Expect(s.look(time.Minute)).To(Equal(2))
}

func TestASignalComesMeanwhile(t *testing.T) {
	for sentence, test := range map[string]struct{ patch, stored int }{
		"before the status says that it is missed: nothing is":       {0, 0},
		"while the alert is stored: the Incident opens and resolves": {1, 2},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			s.look(0)
			s.hear()
			s.pass(6 * time.Minute)
			s.lead(patches(s.Live, func(n int) error {
				if n == test.patch {
					s.hear()
				}
				return nil
			}))
			s.look(0)
			s.Expect(s.look(alertPause)).To(Equal(test.stored))
			s.Expect(s.status().MissedTime).To(BeNil())
		})
	}
}

// Of a heartbeat that is deleted, only its Incident is left, also if another integration has one of its name then. A sender may have
// an Incident under such a key, which is not ours.
func TestTheIncidentOfADeletedHeartbeatIsResolved(t *testing.T) {
	s := newSite(t)
	open := func(key, kind string) {
		incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: v1alpha1.IncidentName(testsite.Integration, key),
		}, Spec: v1alpha1.IncidentSpec{IntegrationName: testsite.Integration, DedupKey: key}}
		s.Expect(s.Live.Create(s.Ctx, incident)).To(Succeed())
		incident.Status.State, incident.Status.Alert.Type = v1alpha1.IncidentOpen, kind
		s.Expect(s.Live.Status().Update(s.Ctx, incident)).To(Succeed())
	}
	open("heartbeat/beat", AlertType)
	open("heartbeat/other", "mine")
	s.Expect(s.look(0)).To(BeZero())
	s.cache = interceptor.NewClient(s.Live, interceptor.Funcs{Get: func(
		ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
	) error {
		if _, ok := object.(*v1alpha1.Heartbeat); ok {
			return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
		}
		return c.Get(ctx, key, object, options...)
	}})
	s.Expect(s.look(0)).To(BeZero(), "it exists, and the cache does not show it")
	s.Expect(s.Live.Delete(s.Ctx, s.heartbeat())).To(Succeed())
	elsewhere := &v1alpha1.Heartbeat{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "beat"}}
	elsewhere.Spec = v1alpha1.HeartbeatSpec{IntegrationName: "elsewhere", Every: every(time.Minute)}
	s.Expect(s.Live.Create(s.Ctx, elsewhere)).To(Succeed())
	for range 2 {
		s.Expect(s.look(time.Second)).To(Equal(1))
	}
	event := &v1alpha1.AlertEvent{}
	s.Expect(s.Live.Get(s.Ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.EventNames()[0]}, event)).To(Succeed())
	s.Expect(queue.Decode(event)).To(Succeed())
	s.Expect(event.Alerts[0].Status).To(Equal(v1alpha1.AlertResolved))
	s.Expect(event.Alerts[0].DedupKey).To(Equal("heartbeat/beat"))
}

func TestNamesOfLinks(t *testing.T) {
	g := NewWithT(t)
	g.Expect(linkNames("leaf")).To(Equal([]string{"leaf", "leaf-link"}))
	long := strings.Repeat("a", 57) + ".cluster"
	g.Expect(linkNames(long)[1]).To(Equal(strings.Repeat("a", 57)+"-link"), "a name has no dot before its end")
}

func TestAFederatedIntegrationHasTheHeartbeatOfItsLink(t *testing.T) {
	s := newSite(t)
	l := &links{s.reconciler, time.Hour}
	reconcile := func() []*v1alpha1.Heartbeat {
		_, err := l.Reconcile(s.Ctx, ctrl.Request{NamespacedName: s.IntegrationKey()})
		s.Expect(err).NotTo(HaveOccurred())
		var list v1alpha1.HeartbeatList
		s.Expect(s.Live.List(s.Ctx, &list, client.InNamespace(s.Namespace), client.HasLabels{v1alpha1.LinkLabel})).To(Succeed())
		var made []*v1alpha1.Heartbeat
		for i := range list.Items {
			made = append(made, &list.Items[i])
		}
		return made
	}
	federate := func(value bool) {
		integration := &v1alpha1.WebhookIntegration{}
		s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
		integration.Spec.Federate = value
		s.Expect(s.Live.Update(s.Ctx, integration)).To(Succeed())
	}
	s.Expect(reconcile()).To(BeEmpty())
	federate(true)
	s.create(testsite.Integration, v1alpha1.HeartbeatSpec{}) // which is too slow for a link
	for range 2 {
		made := reconcile()
		s.Expect(made).To(HaveLen(1))
		s.Expect(made[0].Name).To(Equal(testsite.Integration + "-link"))
		s.Expect(made[0].Spec.Required).To(BeTrue())
		s.Expect(made[0].OwnerReferences).To(HaveLen(1))
		s.Expect(heartbeats.WatchesLink(made[0])).To(BeTrue())
	}
	l.cache = interceptor.NewClient(s.Live, interceptor.Funcs{List: func(
		context.Context, client.WithWatch, client.ObjectList, ...client.ListOption,
	) error {
		return nil
	}})
	s.Expect(reconcile()).To(HaveLen(1), "the cache does not show it yet")
	l.patience = 0
	_, err := l.Reconcile(s.Ctx, ctrl.Request{NamespacedName: s.IntegrationKey()})
	s.Expect(err).To(MatchError(ContainSubstring("too many Heartbeats")))
	s.Expect(s.events.Events).To(Receive(ContainSubstring("LinkUnwatched")))
	l.cache = s.Live
	s.Expect(s.Live.Delete(s.Ctx, reconcile()[0])).To(Succeed())
	s.create(testsite.Integration+"-link", v1alpha1.HeartbeatSpec{}) // of a user
	_, err = l.Reconcile(s.Ctx, ctrl.Request{NamespacedName: s.IntegrationKey()})
	s.Expect(err).To(MatchError(ContainSubstring("both of its names are taken")))
	s.Expect(s.events.Events).To(Receive(ContainSubstring("LinkUnwatched No Heartbeat watches the link")))
	own := &v1alpha1.Heartbeat{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "own"}}
	own.Spec = v1alpha1.HeartbeatSpec{
		IntegrationName: testsite.Integration, Every: every(time.Minute), Match: &v1alpha1.HeartbeatMatch{AnyRequest: true},
	}
	taken := &v1alpha1.Heartbeat{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: testsite.Integration + "-link"}}
	s.Expect(s.Live.Delete(s.Ctx, taken)).To(Succeed())
	s.Expect(reconcile()).To(HaveLen(1))
	s.Expect(s.Live.Create(s.Ctx, own)).To(Succeed())
	s.Expect(reconcile()).To(BeEmpty(), "a user has written one")
	s.Expect(s.Live.Delete(s.Ctx, own)).To(Succeed())
	s.Expect(reconcile()).To(HaveLen(1))
	federate(false)
	s.Expect(reconcile()).To(BeEmpty())
}
