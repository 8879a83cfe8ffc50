package integration

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/requests"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
	"github.com/tocsin-dev/tocsin/internal/capacity"
	"github.com/tocsin-dev/tocsin/internal/integrations"
	"github.com/tocsin-dev/tocsin/internal/queue"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

func tokenOf(name, secret string) v1alpha1.Token {
	return v1alpha1.Token{Name: name, SHA256: tokens.Hash(secret)}
}

func expiring(token v1alpha1.Token, at time.Time) v1alpha1.Token {
	expires := v1alpha1.NewTimestamp(at)
	token.ExpirationTime = &expires
	return token
}

func TestReadiness(t *testing.T) {
	now := testEpoch
	integration := func(namespace, name string, age int, tokens ...v1alpha1.Token) v1alpha1.WebhookIntegration {
		return v1alpha1.WebhookIntegration{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(age) * time.Hour)),
			},
			Spec: v1alpha1.WebhookIntegrationSpec{Tokens: tokens},
		}
	}
	suspended := integration("team", "shop", 5, tokenOf("main", "secret"))
	suspended.Spec.Suspend = true
	for sentence, test := range map[string]struct {
		integration v1alpha1.WebhookIntegration
		reason      string
		message     string
		next        time.Time
	}{
		"a token that works": {
			integration: integration("team", "shop", 5, tokenOf("main", "secret")),
			reason:      v1alpha1.ReasonAccepting, message: "Alerts are accepted with: main.",
		},
		"two tokens, in a stable order": {
			integration: integration("team", "shop", 5, tokenOf("new", "b"), tokenOf("main", "a")),
			reason:      v1alpha1.ReasonAccepting, message: "Alerts are accepted with: main, new.",
		},
		"suspended": {
			integration: suspended,
			reason:      v1alpha1.ReasonSuspended, message: "spec.suspend is true: every post is answered with 403.",
		},
		"a public key that cannot be used": {
			integration: verifying(integration("team", "shop", 5, tokenOf("main", "secret")), "whpk_AAAA"),
			reason:      v1alpha1.ReasonInvalidPublicKey,
			message:     `The public key "0" of spec.verify cannot be used: it is not whpk_ and 32 bytes in base64.`,
		},
		"public keys that can be used": {
			integration: verifying(integration("team", "shop", 5, tokenOf("main", "secret")),
				"whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="),
			reason: v1alpha1.ReasonAccepting, message: "Alerts are accepted with: main.",
		},
		"no token": {
			integration: integration("team", "shop", 5),
			reason:      v1alpha1.ReasonNoValidToken, message: "No token is listed, or all have expired.",
		},
		"expired at this very moment": {
			integration: integration("team", "shop", 5, expiring(tokenOf("main", "secret"), now)),
			reason:      v1alpha1.ReasonNoValidToken, message: "No token is listed, or all have expired.",
		},
		"expiring tokens tell when to look again": {
			integration: integration("team", "shop", 5,
				expiring(tokenOf("late", "a"), now.Add(2*time.Hour)), expiring(tokenOf("soon", "b"), now.Add(time.Hour)),
				expiring(tokenOf("past", "c"), now.Add(-time.Hour))),
			reason: v1alpha1.ReasonAccepting, message: "Alerts are accepted with: late, soon.", next: now.Add(time.Hour),
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			ready, next := readiness(&test.integration, now)
			g.Expect(ready.Reason).To(Equal(test.reason))
			g.Expect(ready.Message).To(Equal(test.message))
			g.Expect(ready.Status == metav1.ConditionTrue).To(Equal(test.reason == v1alpha1.ReasonAccepting))
			g.Expect(next).To(BeTemporally("==", test.next))
		})
	}
}

func TestMain(m *testing.M) { testsite.Main(m) }

// testEpoch is when the tests begin.
var testEpoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// site is one with a reconciler that works on it without a manager.
type site struct {
	*testsite.Site
	*reconciler
	events       *events.FakeRecorder
	mappingError error // what is wrong with every mapping
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Site: testsite.New(t), events: &events.FakeRecorder{Events: make(chan string, 1000)}}
	s.restart()
	return s
}

// restart drops everything that lives in the memory of a process.
func (s *site) restart() {
	s.reconciler = newReconciler(s.Live, s.Live, s.events, Options{
		Mappings: mappingsOf(func(*v1alpha1.WebhookIntegration) error { return s.mappingError }),
		Capacity: capacity.New(capacity.Limits{}, nil, s.Clock),
		Folded:   &fixedCondition{v1alpha1.ConditionAlertsFolded, metav1.ConditionTrue, v1alpha1.ReasonFolding, true},
		Clock:    s.Clock,
		Health:   testsite.APIClock{PassiveClock: s.Clock},
	})
}

// mappingsOf are Mappings that are checked by a function.
type mappingsOf func(*v1alpha1.WebhookIntegration) error

func (f mappingsOf) Check(integration *v1alpha1.WebhookIntegration) error { return f(integration) }

// fixedCondition decides a condition as a test says.
type fixedCondition struct {
	kind   string
	status metav1.ConditionStatus
	reason string
	known  bool
}

func (s *fixedCondition) Condition(integration *v1alpha1.WebhookIntegration) (metav1.Condition, bool) {
	return metav1.Condition{
		Type: s.kind, Status: s.status, Reason: s.reason, Message: s.reason, ObservedGeneration: integration.Generation,
	}, s.known
}

func (s *site) reconcileIntegration() ctrl.Result {
	result, err := s.Reconcile(s.Ctx, ctrl.Request{NamespacedName: s.IntegrationKey()})
	s.Expect(err).NotTo(HaveOccurred())
	return result
}

// shown brings the integration up to date and returns the status and reason of a condition, empty if it has none.
func (s *site) shown(kind string) string {
	s.reconcileIntegration()
	condition := meta.FindStatusCondition(s.IntegrationStatus().Conditions, kind)
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason
}

func TestAnIntegrationBecomesReadyAndItsTokenExpires(t *testing.T) {
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{expiring(tokenOf("main", s.Namespace), s.Clock.Now().Add(time.Hour))}
	})
	s.Expect(s.reconcileIntegration().RequeueAfter).To(Equal(time.Hour))
	status := s.IntegrationStatus()
	s.Expect(status.ObservedGeneration).To(Equal(int64(1)))
	s.Expect(meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())

	s.Clock.SetTime(s.Clock.Now().Add(time.Hour))
	s.Expect(s.reconcileIntegration().RequeueAfter).To(BeZero())
	ready := meta.FindStatusCondition(s.IntegrationStatus().Conditions, v1alpha1.ConditionReady)
	s.Expect(ready.Reason).To(Equal(v1alpha1.ReasonNoValidToken))
	s.Expect(ready.LastTransitionTime.Time).To(BeTemporally("==", s.Clock.Now().Truncate(time.Second)))
}

// A leader whose clock is an hour ahead may be followed by one whose clock is right, which measures silence from these times.
func TestConditionsChangeByTheTimeOfTheAPIServer(t *testing.T) {
	s := newSite(t)
	s.options.Health = testsite.APIClock{PassiveClock: s.Clock, Behind: time.Hour}
	s.Integrate(nil)
	s.reconcileIntegration()
	conditions := s.IntegrationStatus().Conditions
	s.Expect(conditions).To(HaveLen(3))
	s.Expect(conditions).To(HaveEach(HaveField("LastTransitionTime.Time", BeTemporally("==", s.options.Health.APITime().Truncate(time.Second)))))
}

// unknownTime is a clock of an API server that has not answered.
type unknownTime struct{ testsite.APIClock }

func (unknownTime) QuietFrom(types.NamespacedName, time.Time) (time.Time, bool) {
	return time.Time{}, false
}

// TestNoTimeOfAnIntegrationIsOfTheFuture sets the API server's clock back by an hour. Otherwise nothing of the integration would be
// quiet for an hour.
func TestNoTimeOfAnIntegrationIsOfTheFuture(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(nil)
	s.reconcileIntegration()
	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
	integration.Status.LastUnavailableTime = new(v1alpha1.NewTimestamp(s.Clock.Now()))
	s.Expect(s.Live.Status().Update(s.Ctx, integration)).To(Succeed())
	s.Expect(s.isOutdated(integration)).To(BeFalse())

	right := testsite.APIClock{PassiveClock: s.Clock, Behind: time.Minute}
	s.options.Health = right
	s.Expect(s.isOutdated(integration)).To(BeFalse(), "clocks differ by as much")
	right.Behind = time.Hour
	s.options.Health = unknownTime{right}
	s.Expect(s.isOutdated(integration)).To(BeFalse(), "nobody knows which clock is right")
	s.options.Health = right
	before := integration.DeepCopy()
	s.Expect(s.isOutdated(integration)).To(BeTrue())
	s.Expect(integration).To(Equal(before), "it is the cache's")
	s.reconcileIntegration()
	status := s.IntegrationStatus()
	s.Expect(status.Conditions).To(HaveEach(HaveField("LastTransitionTime.Time", BeTemporally("==", right.APITime().Truncate(time.Second)))))
	s.Expect(status.LastUnavailableTime.Time).To(BeTemporally("~", right.APITime(), time.Millisecond))
}

// TestConditionsOfOthersAreWrittenAtARate has Alertmanager come and go, which changes all integrations at once.
func TestConditionsOfOthersAreWrittenAtARate(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(nil)
	forwarding := &fixedCondition{v1alpha1.ConditionForwarded, metav1.ConditionTrue, v1alpha1.ReasonForwarding, true}
	s.options.Conditions = []Condition{{v1alpha1.ConditionForwarded, forwarding}}
	s.Expect(s.shown(v1alpha1.ConditionForwarded)).To(HavePrefix("True"))

	s.outside = flowcontrol.NewFakeNeverRateLimiter()
	forwarding.status = metav1.ConditionFalse
	s.Expect(s.shown(v1alpha1.ConditionForwarded)).To(HavePrefix("True"), "too many others are written")
	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
	s.Expect(s.isOutdated(integration)).To(BeTrue(), "it is written at a later check")
	integration.Spec.Suspend = true
	s.Expect(s.Live.Update(s.Ctx, integration)).To(Succeed())
	s.Expect(s.shown(v1alpha1.ConditionReady)).To(HavePrefix("False"), "what a person changes does not wait")
	s.Expect(s.shown(v1alpha1.ConditionForwarded)).To(HavePrefix("False"), "it is written with what is written anyway")

	forwarding.status = metav1.ConditionTrue
	s.Expect(s.shown(v1alpha1.ConditionForwarded)).To(HavePrefix("False"))
	s.outside = flowcontrol.NewFakeAlwaysRateLimiter()
	s.Expect(s.shown(v1alpha1.ConditionForwarded)).To(HavePrefix("True"))
}

func TestTokensExpireByTheTimeOfTheAPIServer(t *testing.T) {
	s := newSite(t)
	s.options.Health = testsite.APIClock{PassiveClock: s.Clock, Behind: time.Hour}
	expires := s.options.Health.APITime().Add(10 * time.Minute).Truncate(time.Second)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{expiring(tokenOf("main", s.Namespace), expires)}
	})
	result := s.reconcileIntegration()
	s.Expect(meta.IsStatusConditionTrue(s.IntegrationStatus().Conditions, v1alpha1.ConditionReady)).To(BeTrue())
	s.Expect(result.RequeueAfter).To(Equal(expires.Sub(s.options.Health.APITime())))
}

func TestLastReceivedTimeIsWrittenOnceAMinute(t *testing.T) {
	s := newSite(t)
	s.Integrate(nil)
	key := s.IntegrationKey()
	receive := func(after time.Duration) (v1alpha1.Timestamp, bool) {
		s.Clock.SetTime(s.Clock.Now().Add(after))
		now := v1alpha1.NewTimestamp(s.Clock.Now())
		return now, s.received.note(key, now.Time, false)
	}
	stored := func() v1alpha1.Timestamp { return *s.IntegrationStatus().LastReceivedTime }

	first, queued := receive(0)
	s.Expect(queued).To(BeTrue())
	s.Expect(s.reconcileIntegration().RequeueAfter).To(BeZero())
	s.Expect(stored()).To(Equal(first))

	_, queued = receive(10 * time.Second)
	s.Expect(queued).To(BeTrue())
	s.Expect(s.reconcileIntegration().RequeueAfter).To(Equal(50 * time.Second))
	s.Expect(stored()).To(Equal(first))
	third, queued := receive(20 * time.Second)
	s.Expect(queued).To(BeFalse(), "one look at it is enough")
	s.Expect(s.reconcileIntegration().RequeueAfter).To(Equal(30 * time.Second))

	s.Clock.SetTime(s.Clock.Now().Add(30 * time.Second))
	s.Expect(s.reconcileIntegration().RequeueAfter).To(BeZero())
	s.Expect(stored()).To(Equal(third), "the last of a minute is not forgotten")

	// A new leader keeps the minute of the old one, and does not go back in time.
	s.restart()
	s.received.note(key, first.Time, false)
	s.Expect(s.reconcileIntegration().RequeueAfter).To(BeZero())
	s.Expect(stored()).To(Equal(third))
	fourth, _ := receive(5 * time.Second)
	s.Expect(s.reconcileIntegration().RequeueAfter).To(Equal(time.Minute - fourth.Sub(third.Time)))
}

func TestAlertsWithoutAKeyShow(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(nil)
	s.reconcileIntegration()
	valid := func() *metav1.Condition {
		return meta.FindStatusCondition(s.IntegrationStatus().Conditions, v1alpha1.ConditionMappingValid)
	}
	receive := func(after time.Duration) v1alpha1.Timestamp {
		s.Clock.SetTime(s.Clock.Now().Add(after))
		s.received.note(s.IntegrationKey(), s.Clock.Now(), true)
		s.reconcileIntegration()
		return v1alpha1.NewTimestamp(s.Clock.Now())
	}
	s.Expect(valid().Reason).To(Equal(v1alpha1.ReasonMappingValid))

	first := receive(time.Minute)
	s.Expect(valid().Reason).To(Equal(v1alpha1.ReasonKeylessAlerts))
	s.Expect(valid().Status).To(Equal(metav1.ConditionTrue), "alerts are read as they should be")
	receive(59 * time.Minute)
	s.Expect(*s.IntegrationStatus().LastKeylessTime).To(Equal(first), "one write an hour")
	last := receive(time.Minute)
	s.Expect(*s.IntegrationStatus().LastKeylessTime).To(Equal(last))

	s.restart()
	s.Clock.SetTime(last.Add(keylessMemory - time.Second))
	s.Expect(s.reconcileIntegration().RequeueAfter).To(Equal(time.Second))
	s.Clock.SetTime(last.Add(keylessMemory))
	s.reconcileIntegration()
	s.Expect(valid().Reason).To(Equal(v1alpha1.ReasonMappingValid), "for a day there was none")

	receive(time.Minute)
	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), integration)).To(Succeed())
	integration.Status.ObservedGeneration-- // as after a change of the spec
	s.Expect(s.Live.Status().Update(s.Ctx, integration)).To(Succeed())
	s.reconcileIntegration()
	s.Expect(valid().Reason).To(Equal(v1alpha1.ReasonMappingValid), "the spec has changed")
	s.Expect(s.IntegrationStatus().LastKeylessTime).To(BeNil())
}

// TestAHandshakeShowsUntilAnAlertComes has a tool ask for something that only a person can do.
func TestAHandshakeShowsUntilAnAlertComes(t *testing.T) {
	s := newSite(t)
	s.Integrate(nil)
	s.reconcileIntegration()
	asked := s.Clock.Now()
	integration := s.IntegrationStatus()
	valid := func() *metav1.Condition {
		return meta.FindStatusCondition(s.IntegrationStatus().Conditions, v1alpha1.ConditionMappingValid)
	}
	whole := &v1alpha1.WebhookIntegration{}
	s.Expect(s.Live.Get(s.Ctx, s.IntegrationKey(), whole)).To(Succeed())
	whole.Status = integration
	whole.Status.LastHandshake = &v1alpha1.Handshake{Message: "open https://example.com/", Time: v1alpha1.NewTimestamp(asked)}
	s.Expect(s.Live.Status().Update(s.Ctx, whole)).To(Succeed())
	s.reconcileIntegration()
	s.Expect(valid().Reason).To(Equal(v1alpha1.ReasonHandshake))
	s.Expect(valid().Status).To(Equal(metav1.ConditionTrue))
	s.Expect(valid().Message).To(Equal("open https://example.com/"))

	receive := func(after time.Duration) {
		s.Clock.SetTime(asked.Add(after))
		s.received.note(s.IntegrationKey(), s.Clock.Now(), false)
		s.reconcileIntegration()
	}
	receive(time.Second)
	s.Expect(valid().Reason).To(Equal(v1alpha1.ReasonHandshake), "the question itself is an alert")
	receive(handshakeSlack)
	s.Expect(valid().Reason).To(Equal(v1alpha1.ReasonMappingValid))
}

func TestWhichAlertsLackAKey(t *testing.T) {
	const id, other = "0192f3c4-7d5e-7a10-8c3b-6d1f2a3b4c5d", "0192f3c4-7d5e-7a10-8c3b-000000000000"
	generated := v1alpha1.GeneratedKey(id)
	for _, test := range []struct {
		status  v1alpha1.AlertStatus
		key, id string
		keyless bool
	}{
		{v1alpha1.AlertFiring, generated, id, true},
		{v1alpha1.AlertFiring, "disk", id, false},
		{v1alpha1.AlertResolved, generated, other, false}, // the key of the answer to what fired
		{v1alpha1.AlertResolved, generated, id, true},
	} {
		event := &v1alpha1.AlertEvent{}
		event.Alerts = make([]v1alpha1.Alert, 2)
		event.Alerts[1].Status, event.Alerts[1].DedupKey, event.Alerts[1].ID = test.status, test.key, test.id
		NewWithT(t).Expect(hasKeyless(event)).To(Equal(test.keyless), "%v", test)
	}
}

func TestTheStatusLeavesTheLastRejectionAlone(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(nil)
	stale := integration.DeepCopy()
	rejected := integration.DeepCopy()
	rejected.Status.LastRejection = &v1alpha1.Rejection{Reason: "Suspended", Time: v1alpha1.NewTimestamp(s.Clock.Now())}
	s.Expect(s.Live.Status().Patch(s.Ctx, rejected, client.MergeFrom(integration))).To(Succeed())

	updated := stale.DeepCopy()
	updated.Status.ObservedGeneration = 1
	s.Expect(requests.PatchStatus(s.Ctx, s.live, stale, updated)).To(Succeed())
	status := s.IntegrationStatus()
	s.Expect(status.ObservedGeneration).To(Equal(int64(1)))
	s.Expect(status.LastRejection).NotTo(BeNil())
}

func TestAnIntegrationThatIsGoneIsForgotten(t *testing.T) {
	s := newSite(t)
	s.received.note(s.IntegrationKey(), s.Clock.Now(), false)
	s.reconcileIntegration()
	s.Expect(s.received.entries).To(BeEmpty())
}

func TestNobodyReceivesInTheFuture(t *testing.T) {
	s := newSite(t)
	stored := &v1alpha1.AlertEvent{}
	stored.Namespace, stored.Spec.IntegrationName = s.Namespace, testsite.Integration
	stored.Spec.ReceivedTime = v1alpha1.NewTimestamp(testEpoch.AddDate(100, 0, 0))
	queue := workqueue.NewTypedRateLimitingQueue(requests.Backoff[ctrl.Request]())
	s.watchReceived().Create(s.Ctx, event.CreateEvent{Object: stored}, queue)
	s.Expect(queue.Len()).To(Equal(1))
	s.Expect(s.received.entries[s.IntegrationKey()].newest).To(Equal(s.Clock.Now()))
}

func TestAMappingThatDoesNotCompileShows(t *testing.T) {
	s := newSite(t)
	s.mappingError = errors.New("spec.mapping.fields.title: line 1, column 3: no such function")
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{tokenOf("main", s.Namespace)}
	})
	for range 2 { // the second time there is nothing new to tell
		s.reconcileIntegration()
	}
	conditions := s.IntegrationStatus().Conditions
	s.Expect(meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady)).To(BeTrue(), "posts are accepted all the same")
	valid := meta.FindStatusCondition(conditions, v1alpha1.ConditionMappingValid)
	s.Expect(valid.Status).To(Equal(metav1.ConditionFalse))
	s.Expect(valid.Reason).To(Equal(v1alpha1.ReasonInvalidMapping))
	s.Expect(valid.Message).To(ContainSubstring("line 1, column 3"))
	s.Expect(s.events.Events).To(Receive(ContainSubstring("Warning InvalidMapping")))

	s.mappingError = nil
	s.reconcileIntegration()
	valid = meta.FindStatusCondition(s.IntegrationStatus().Conditions, v1alpha1.ConditionMappingValid)
	s.Expect(valid.Status).To(Equal(metav1.ConditionTrue))
	s.Expect(valid.Reason).To(Equal(v1alpha1.ReasonMappingValid))
}

// TestAMappingThatFailsShows writes status.lastMappingFailure as a replica does that sees an expression fail.
func TestAMappingThatFailsShows(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{tokenOf("main", s.Namespace)}
		spec.Mapping = &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{DedupKey: "alert.id"}}
	})
	valid := func() *metav1.Condition {
		return meta.FindStatusCondition(s.IntegrationStatus().Conditions, v1alpha1.ConditionMappingValid)
	}
	s.reconcileIntegration()
	s.Expect(valid().Status).To(Equal(metav1.ConditionTrue))

	fail := func(generation int64) {
		var read v1alpha1.WebhookIntegration
		s.Expect(s.Live.Get(s.Ctx, client.ObjectKeyFromObject(integration), &read)).To(Succeed())
		failed := read.DeepCopy()
		failed.Status.LastMappingFailure = &v1alpha1.MappingFailure{Field: "dedupKey", Expression: "alert.id", Message: "no such key: id",
			Count: 3, Time: v1alpha1.NewTimestamp(s.Clock.Now()), ObservedGeneration: generation}
		s.Expect(s.Live.Status().Patch(s.Ctx, failed, client.MergeFrom(&read))).To(Succeed())
	}
	fail(integration.Generation)
	for range 2 { // the second time there is nothing new to tell
		s.reconcileIntegration()
	}
	s.Expect(valid().Status).To(Equal(metav1.ConditionFalse))
	s.Expect(valid().Reason).To(Equal(v1alpha1.ReasonEvaluationFailed))
	s.Expect(valid().Message).To(And(ContainSubstring("dedupKey"), ContainSubstring("alert.id")))
	s.Expect(meta.IsStatusConditionTrue(s.IntegrationStatus().Conditions, v1alpha1.ConditionReady)).To(BeTrue())
	s.Expect(s.events.Events).To(Receive(ContainSubstring("Warning EvaluationFailed")))
	s.Expect(s.IntegrationStatus().LastMappingFailure.Count).To(BeEquivalentTo(3))

	t.Log("an hour without a failure")
	s.Clock.SetTime(s.Clock.Now().Add(integrations.MappingFailureMemory))
	s.reconcileIntegration()
	s.Expect(valid().Status).To(Equal(metav1.ConditionTrue))

	t.Log("a failure of another generation, and one of a wrong clock")
	fail(integration.Generation - 1)
	s.reconcileIntegration()
	s.Expect(valid().Status).To(Equal(metav1.ConditionTrue))
	s.Clock.SetTime(s.Clock.Now().Add(10 * 24 * time.Hour))
	fail(integration.Generation)
	s.Clock.SetTime(s.Clock.Now().Add(-9 * 24 * time.Hour))
	s.reconcileIntegration()
	s.Expect(valid().Status).To(Equal(metav1.ConditionTrue))
}

// verifying requires signatures for public keys.
func verifying(integration v1alpha1.WebhookIntegration, keys ...string) v1alpha1.WebhookIntegration {
	integration.Spec.Verify = &v1alpha1.Verification{}
	for i, key := range keys {
		integration.Spec.Verify.PublicKeys = append(integration.Spec.Verify.PublicKeys,
			v1alpha1.PublicKey{Name: strconv.Itoa(i), Key: key})
	}
	return integration
}

// TestAStubSaysWhatToDo has a cache that has no place for the integration.
func TestAStubSaysWhatToDo(t *testing.T) {
	s := newSite(t)
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{tokenOf("main", s.Namespace)}
		spec.Mapping = &v1alpha1.Mapping{Drop: "oops"}
	})
	s.mappingError = errors.New("oops")
	s.Expect(s.shown(v1alpha1.ConditionReady)).To(Equal("True Accepting"))
	before := s.shown(v1alpha1.ConditionMappingValid)
	s.Expect(before).NotTo(BeEmpty())
	s.cache, s.mappingError = testsite.Stubs{Reader: s.Live}, nil
	s.Expect(s.shown(v1alpha1.ConditionReady)).To(Equal("False IntegrationsTooLarge"))
	s.Expect(s.shown(v1alpha1.ConditionAlertsFolded)).To(Equal("False IntegrationsTooLarge"), "no gate is clear")
	stub := &v1alpha1.WebhookIntegration{Status: s.IntegrationStatus()}
	s.Expect(integrations.Blocked(stub)).To(BeEmpty(), "stored alerts are folded")
	s.Expect(s.shown(v1alpha1.ConditionMappingValid)).To(Equal(before), "what it says of the whole spec stays")
	s.Expect(meta.FindStatusCondition(s.IntegrationStatus().Conditions, v1alpha1.ConditionReady).Message).To(
		ContainSubstring("Make them smaller or delete some"))
	s.cache = s.Live
	s.Expect(s.shown(v1alpha1.ConditionReady)).To(Equal("True Accepting"))
	s.Expect(s.shown(v1alpha1.ConditionAlertsFolded)).To(Equal("True Folding"))
}

func TestTheConditionsOfOthersShow(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{tokenOf("main", s.Namespace)}
	})
	archived := &fixedCondition{v1alpha1.ConditionArchived, metav1.ConditionTrue, v1alpha1.ReasonArchiving, false}
	s.options.Conditions = []Condition{{v1alpha1.ConditionArchived, archived}}
	s.Expect(s.shown(v1alpha1.ConditionArchived)).To(BeEmpty(), "nothing is known yet")
	archived.known = true
	integration.Status = s.IntegrationStatus()
	s.Expect(s.isOutdated(integration)).To(BeTrue())
	s.Expect(s.shown(v1alpha1.ConditionArchived)).To(Equal("True Archiving"))
	archived.status, archived.reason = metav1.ConditionFalse, v1alpha1.ReasonArchiveBehind
	s.Expect(s.shown(v1alpha1.ConditionArchived)).To(Equal("False ArchiveBehind"))
	archived.status = "" // the flag was removed
	s.Expect(s.shown(v1alpha1.ConditionArchived)).To(BeEmpty())
	archived.status = metav1.ConditionTrue
	s.Expect(s.shown(v1alpha1.ConditionArchived)).NotTo(BeEmpty())
	s.options.Conditions[0].Source = nil
	s.Expect(s.shown(v1alpha1.ConditionArchived)).To(BeEmpty())

	s.Expect(s.shown(v1alpha1.ConditionAlertsFolded)).To(Equal("True Folding"))
	unreadable := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "unreadable"}}
	unreadable.Spec.IntegrationName = testsite.Integration
	s.options.Capacity.SetEvent(unreadable, false)
	s.Expect(s.shown(v1alpha1.ConditionAlertsFolded)).To(Equal("False " + queue.StuckUnreadable))
	s.options.Folded = &fixedCondition{v1alpha1.ConditionAlertsFolded, metav1.ConditionFalse, v1alpha1.ReasonQuotaExceeded, true}
	s.Expect(s.shown(v1alpha1.ConditionAlertsFolded)).To(Equal("False QuotaExceeded"))
	s.Expect(s.shown(v1alpha1.ConditionReady)).To(Equal("True Accepting"), "capacity is no part of it")
	s.options.Folded = &fixedCondition{known: false}
	s.Expect(s.shown(v1alpha1.ConditionAlertsFolded)).To(Equal("False QuotaExceeded"), "it stays as it is")
}

// hiddenObjects are hidden AlertEvents and WebhookIntegrations of every namespace.
type hiddenObjects [2]int

func (h *hiddenObjects) In(string) (events, integrations int) { return h[0], h[1] }

func (*hiddenObjects) Each(func(kind, namespace string, objects int)) {}

func TestHiddenObjectsOfANamespaceShow(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{tokenOf("main", s.Namespace)}
	})
	hidden := &hiddenObjects{290_123, 7}
	s.options.Capacity.Hidden = hidden
	s.Expect(s.options.Capacity.Full(s.Namespace)).To(Equal(v1alpha1.ReasonQueueFull), "posts get 503")
	s.Expect(s.shown(v1alpha1.ConditionAlertsFolded)).To(Equal("False " + queue.StuckNotCached))
	folded := meta.FindStatusCondition(s.IntegrationStatus().Conditions, v1alpha1.ConditionAlertsFolded)
	s.Expect(folded.Message).To(ContainSubstring("by about 200000 AlertEvents and 7 WebhookIntegrations"))
	integration.Status = s.IntegrationStatus()
	hidden[0] = 280_000
	s.Expect(s.isOutdated(integration)).To(BeFalse(), "it does not change with every object")
	*hidden = hiddenObjects{}
	s.Expect(s.isOutdated(integration)).To(BeTrue())
	s.Expect(s.shown(v1alpha1.ConditionAlertsFolded)).To(HavePrefix("True"))
}

func TestAFullNamespaceShowsInAlertsFoldedUntilAMinuteLater(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{tokenOf("main", s.Namespace)}
		spec.Suspend = true
	})
	s.Expect(s.shown(v1alpha1.ConditionReady)).To(Equal("False Suspended"))
	s.options.Capacity = capacity.New(capacity.Limits{Events: 1, Incidents: 1, Share: 1}, nil, s.Clock)
	s.options.Capacity.SetIncident(&v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "one"}}, false)
	s.Expect(s.shown(v1alpha1.ConditionAlertsFolded)).To(Equal("False IncidentsFull"))
	integration.Status = s.IntegrationStatus()
	s.Expect(integrations.Blocked(integration)).To(BeEmpty(), "stored alerts that need no new Incident are folded")

	s.Clock.SetTime(s.Clock.Now().Add(time.Hour))
	resumed := s.Clock.Now()
	changed := integration.DeepCopy()
	changed.Spec.Suspend = false
	s.Expect(s.Live.Patch(s.Ctx, changed, client.MergeFrom(integration))).To(Succeed())
	s.Expect(s.shown(v1alpha1.ConditionReady)).To(Equal("True Accepting"), "alerts of the Incidents that exist are accepted")
	ready := meta.FindStatusCondition(s.IntegrationStatus().Conditions, v1alpha1.ConditionReady)
	s.Expect(ready.LastTransitionTime.Time).To(BeTemporally("~", resumed, time.Second))

	s.options.Capacity.RemoveIncident(&v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "one"}})
	waiting := &v1alpha1.AlertEvent{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "two"}}
	waiting.Spec.IntegrationName, waiting.Alerts = testsite.Integration, make([]v1alpha1.Alert, 1)
	for range 10 { // near the limit, the queue is full every other second
		s.options.Capacity.SetEvent(waiting, false)
		s.Expect(s.shown(v1alpha1.ConditionAlertsFolded)).To(Equal("False QueueFull"))
		s.Clock.SetTime(s.Clock.Now().Add(time.Second))
		s.options.Capacity.RemoveEvent(waiting)
		s.Expect(s.shown(v1alpha1.ConditionAlertsFolded)).To(Equal("False QueueFull"))
		s.Clock.SetTime(s.Clock.Now().Add(time.Second))
	}
	s.Clock.SetTime(s.Clock.Now().Add(fullMemory))
	integration.Status = s.IntegrationStatus()
	s.Expect(s.isOutdated(integration)).To(BeTrue(), "the leader looks by itself")
	s.Expect(s.shown(v1alpha1.ConditionAlertsFolded)).To(Equal("True Folding"))
	s.Expect(s.shown(v1alpha1.ConditionReady)).To(Equal("True Accepting"))
}

func TestAnIntegrationThatIsBeingDeletedIsNotReady(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{tokenOf("main", s.Namespace)}
	})
	kept := integration.DeepCopy()
	kept.Finalizers = []string{"example.com/keep"}
	s.Expect(s.Live.Patch(s.Ctx, kept, client.MergeFrom(integration))).To(Succeed())
	t.Cleanup(func() {
		_ = s.Live.Patch(context.Background(), kept, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	})
	s.Expect(s.shown(v1alpha1.ConditionReady)).To(Equal("True Accepting"))
	s.Expect(s.Live.Delete(s.Ctx, kept)).To(Succeed())
	s.Expect(s.shown(v1alpha1.ConditionReady)).To(Equal("False Terminating"), "its token gets 401")
}
