package heartbeat

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/alerttext"
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
	s.lead(s.Live)
	integration := s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Heartbeats = []v1alpha1.Heartbeat{{
			Name: "beat", Interval: &metav1.Duration{Duration: 5 * time.Minute}, Title: "The backup is missing", Severity: v1alpha1.SeverityError,
		}}
	})
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
	integration := &v1alpha1.WebhookIntegration{}
	if err := s.Live.Get(s.Ctx, s.IntegrationKey(), integration); err == nil {
		s.specified(integration, s.health.now.Add(-relearn))
	}
}

// look has the leader look at the heartbeats after a while, and returns how many AlertEvents there are.
func (s *site) look(after time.Duration) int {
	s.pass(after)
	_, err := s.Reconcile(s.Ctx, ctrl.Request{NamespacedName: s.IntegrationKey()})
	s.Expect(err).NotTo(HaveOccurred())
	return len(s.EventNames())
}

func (s *site) pass(d time.Duration) {
	s.health.now = s.health.now.Add(d)
	s.Clock.SetTime(s.health.now)
}

func (s *site) hear() {
	integration := &v1alpha1.WebhookIntegration{}
	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
	integration.Status.Heartbeats[0].LastSignalTime = new(v1alpha1.NewTimestamp(s.health.now))
	s.Expect(s.Live.Status().Update(s.Ctx, integration)).To(Succeed())
}

func (s *site) heartbeat() v1alpha1.HeartbeatStatus { return s.IntegrationStatus().Heartbeats[0] }

func TestTheLeaderStoresWhatItFinds(t *testing.T) {
	s := newSite(t)
	s.Expect(s.look(0)).To(BeZero())
	s.Expect(s.heartbeat().ObservedTime).NotTo(BeNil())
	s.hear()
	s.Expect(s.look(6*time.Minute - time.Second)).To(BeZero())
	s.Expect(s.look(time.Second)).To(Equal(1))
	s.Expect(s.heartbeat().MissedTime.Time).To(BeTemporally("~", s.health.now, time.Microsecond))
	s.Expect(s.events.Events).To(Receive(ContainSubstring("Warning HeartbeatMissed Not heard in time: beat")))
	event := &v1alpha1.AlertEvent{}
	s.Expect(s.Live.Get(s.Ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.EventNames()[0]}, event)).To(Succeed())
	s.Expect(alerttext.Decode(event)).To(Succeed())
	alert := event.Alerts[0]
	s.Expect(alert.Title).To(Equal("The backup is missing"))
	s.Expect(alert.Severity).To(Equal(v1alpha1.SeverityError))
	s.Expect(event.IncidentNameFor(&alert)).To(Equal(v1alpha1.IncidentName(testsite.Integration, "heartbeat/beat")))
	s.Expect(s.look(time.Hour)).To(Equal(1), "once")
	s.Expect(s.heartbeat().AlertStatus).To(Equal(v1alpha1.AlertFiring))
	s.hear()
	s.Expect(s.look(0)).To(Equal(2))
	s.Expect(s.heartbeat().MissedTime).To(BeNil())
	s.Expect(s.heartbeat().AlertStatus).To(Equal(v1alpha1.AlertResolved))
	s.Expect(s.look(time.Minute)).To(Equal(2))
}

// TestTheHeartbeatsOfAStubStayAsTheyAre has a leader whose cache has no place for the integration: it knows no heartbeat.
func TestTheHeartbeatsOfAStubStayAsTheyAre(t *testing.T) {
	for sentence, silence := range map[string]time.Duration{"that is heard": time.Minute, "that is missed": time.Hour} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			s.look(0)
			s.hear()
			stored, before := s.look(silence), s.heartbeat()
			s.cache = testsite.Stubs{Reader: s.Live}
			s.Expect(s.look(time.Hour)).To(Equal(stored), "neither missed nor removed")
			s.Expect(s.heartbeat()).To(Equal(before))
			s.cache = s.Live
			s.look(0)
			s.Expect(s.look(relearn)).To(Equal(1), "when there is a place again, it goes on")
		})
	}
}

func TestTheLeaderReportsHeartbeats(t *testing.T) {
	s := newSite(t)
	s.look(0)
	s.look(6 * time.Minute)
	s.hear()
	shown, expected := &collector{}, strings.NewReader("# HELP tocsin_heartbeat_missed "+
		"1 while a heartbeat is missed, else 0. The leading replica reports it, for up to 10,000 heartbeats, 2,000 of a namespace.\n"+
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
			_, err := s.Reconcile(s.Ctx, ctrl.Request{NamespacedName: s.IntegrationKey()})
			s.Expect(err).To(MatchError(ContainSubstring("the leader has ended")))
			s.Expect(s.EventNames()).To(HaveLen(written))
			s.lead(s.Live)
			s.Expect(s.look(time.Second)).To(Equal(1), "one alert of both")
			s.Expect(s.heartbeat().MissedTime).NotTo(BeNil())
			s.Expect(s.look(time.Minute)).To(Equal(1))
		})
	}
}

// A quota denies the alerts of a heartbeat for an hour.
func TestADeniedAlertIsStoredLaterAndBlocksNoOther(t *testing.T) {
	s := newSite(t)
	integration := &v1alpha1.WebhookIntegration{}
	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
	other := *integration.Spec.Heartbeats[0].DeepCopy()
	other.Name, other.Required, integration.Spec.Heartbeats[0].Required = "other", true, true
	integration.Spec.Heartbeats = append(integration.Spec.Heartbeats, other)
	s.Expect(s.Live.Update(s.Ctx, integration)).To(Succeed())
	s.lead(interceptor.NewClient(s.Live, interceptor.Funcs{Create: func(
		ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption,
	) error {
		if alert := object.(*v1alpha1.AlertEvent).Alerts[0]; alert.DedupKey == v1alpha1.HeartbeatKey("beat") {
			return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("exceeded quota"))
		}
		return c.Create(ctx, object, options...)
	}}))
	s.look(0)
	s.Expect(s.look(6*time.Minute)).To(Equal(1), "the other one")
	s.Expect(s.heartbeat().MissedTime).NotTo(BeNil())
	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
	s.Expect(fold.MissesHeartbeat(integration)).To(BeTrue(), "nothing ends for want of alerts")
	result, err := s.Reconcile(s.Ctx, ctrl.Request{NamespacedName: s.IntegrationKey()})
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
			s.Expect(s.heartbeat().MissedTime).To(BeNil())
		})
	}
}

// The heartbeat is defined again while the leader notes that its resolve is stored.
func TestAHeartbeatThatIsRemovedAndDefinedAgainIsMissedAgain(t *testing.T) {
	s := newSite(t)
	define := func(heartbeats []v1alpha1.Heartbeat) (before []v1alpha1.Heartbeat) {
		integration := &v1alpha1.WebhookIntegration{}
		s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
		before = integration.Spec.Heartbeats
		integration.Spec.Heartbeats = heartbeats
		s.Expect(s.Live.Update(s.Ctx, integration)).To(Succeed())
		return before
	}
	s.look(0)
	s.hear()
	s.Expect(s.look(6 * time.Minute)).To(Equal(1))
	s.pass(alertPause)
	heartbeats := define(nil)
	s.lead(patches(s.Live, func(n int) error {
		if n == 1 {
			define(heartbeats)
		}
		return nil
	}))
	s.Expect(s.look(0)).To(Equal(2), "the resolve of the removal, once")
	s.Expect(s.heartbeat().MissedTime).To(BeNil(), "nothing is missed whose Incident is resolved")
	s.Expect(s.look(relearn)).To(Equal(3))
	s.Expect(s.heartbeat().MissedTime).NotTo(BeNil())
}
