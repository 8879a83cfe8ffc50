package controllers

import (
	"errors"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/integrations"
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

func (s *site) reconcileIntegration() ctrl.Result {
	result, err := s.integrations.Reconcile(s.ctx, ctrl.Request{NamespacedName: s.integrationKey()})
	s.Expect(err).NotTo(HaveOccurred())
	return result
}

func (s *site) integrationKey() types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: integrationName}
}

func (s *site) integrationStatus() v1alpha1.WebhookIntegrationStatus {
	var integration v1alpha1.WebhookIntegration
	s.Expect(s.live.Get(s.ctx, s.integrationKey(), &integration)).To(Succeed())
	return integration.Status
}

func TestAnIntegrationBecomesReadyAndItsTokenExpires(t *testing.T) {
	s := newSite(t)
	s.integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{expiring(tokenOf("main", s.namespace), s.clock.Now().Add(time.Hour))}
	})
	s.Expect(s.reconcileIntegration().RequeueAfter).To(Equal(time.Hour))
	status := s.integrationStatus()
	s.Expect(status.ObservedGeneration).To(Equal(int64(1)))
	s.Expect(meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())

	s.clock.SetTime(s.clock.Now().Add(time.Hour))
	s.Expect(s.reconcileIntegration().RequeueAfter).To(BeZero())
	ready := meta.FindStatusCondition(s.integrationStatus().Conditions, v1alpha1.ConditionReady)
	s.Expect(ready.Reason).To(Equal(v1alpha1.ReasonNoValidToken))
	s.Expect(ready.LastTransitionTime.Time).To(BeTemporally("==", s.clock.Now().Truncate(time.Second)))
}

func TestLastReceivedTimeIsWrittenOnceAMinute(t *testing.T) {
	s := newSite(t)
	s.integrate(nil)
	key := s.integrationKey()
	receive := func(after time.Duration) (v1alpha1.Timestamp, bool) {
		s.clock.SetTime(s.clock.Now().Add(after))
		now := v1alpha1.NewTimestamp(s.clock.Now())
		return now, s.integrations.received.note(key, now.Time)
	}
	stored := func() v1alpha1.Timestamp { return *s.integrationStatus().LastReceivedTime }

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

	s.clock.SetTime(s.clock.Now().Add(30 * time.Second))
	s.Expect(s.reconcileIntegration().RequeueAfter).To(BeZero())
	s.Expect(stored()).To(Equal(third), "the last of a minute is not forgotten")

	// A new leader keeps the minute of the old one, and does not go back in time.
	s.folder = s.newFolder()
	s.integrations.received.note(key, first.Time)
	s.Expect(s.reconcileIntegration().RequeueAfter).To(BeZero())
	s.Expect(stored()).To(Equal(third))
	fourth, _ := receive(5 * time.Second)
	s.Expect(s.reconcileIntegration().RequeueAfter).To(Equal(time.Minute - fourth.Sub(third.Time)))
}

func TestTheStatusLeavesTheLastRejectionAlone(t *testing.T) {
	s := newSite(t)
	integration := s.integrate(nil)
	stale := integration.DeepCopy()
	rejected := integration.DeepCopy()
	rejected.Status.LastRejection = &v1alpha1.Rejection{Reason: "Suspended", Time: v1alpha1.NewTimestamp(s.clock.Now())}
	s.Expect(s.live.Status().Patch(s.ctx, rejected, client.MergeFrom(integration))).To(Succeed())

	updated := stale.DeepCopy()
	updated.Status.ObservedGeneration = 1
	s.Expect(s.integrations.patch(s.ctx, stale, updated)).To(Succeed())
	status := s.integrationStatus()
	s.Expect(status.ObservedGeneration).To(Equal(int64(1)))
	s.Expect(status.LastRejection).NotTo(BeNil())
}

func TestAnIntegrationThatIsGoneIsForgotten(t *testing.T) {
	s := newSite(t)
	s.integrations.received.note(s.integrationKey(), s.clock.Now())
	s.reconcileIntegration()
	s.Expect(s.integrations.received.entries).To(BeEmpty())
}

func TestNobodyReceivesInTheFuture(t *testing.T) {
	g := NewWithT(t)
	event := &v1alpha1.AlertEvent{}
	event.Spec.ReceivedTime = v1alpha1.NewTimestamp(testEpoch.AddDate(100, 0, 0))
	g.Expect(receivedBy(event, testEpoch)).To(Equal(testEpoch))
}

func TestAMappingThatDoesNotCompileShows(t *testing.T) {
	s := newSite(t)
	s.mappingError = errors.New("spec.mapping.fields.title: line 1, column 3: no such function")
	s.integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{tokenOf("main", s.namespace)}
	})
	for range 2 { // the second time there is nothing new to tell
		s.reconcileIntegration()
	}
	conditions := s.integrationStatus().Conditions
	s.Expect(meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady)).To(BeTrue(), "posts are accepted all the same")
	valid := meta.FindStatusCondition(conditions, v1alpha1.ConditionMappingValid)
	s.Expect(valid.Status).To(Equal(metav1.ConditionFalse))
	s.Expect(valid.Reason).To(Equal(v1alpha1.ReasonInvalidMapping))
	s.Expect(valid.Message).To(ContainSubstring("line 1, column 3"))
	s.Expect(s.told()).To(ConsistOf(ContainSubstring("Warning InvalidMapping")))

	s.mappingError = nil
	s.reconcileIntegration()
	valid = meta.FindStatusCondition(s.integrationStatus().Conditions, v1alpha1.ConditionMappingValid)
	s.Expect(valid.Status).To(Equal(metav1.ConditionTrue))
	s.Expect(valid.Reason).To(Equal(v1alpha1.ReasonMappingValid))
}

// TestAMappingThatFailsShows writes status.lastMappingFailure as a replica does that sees an expression fail.
func TestAMappingThatFailsShows(t *testing.T) {
	s := newSite(t)
	integration := s.integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{tokenOf("main", s.namespace)}
		spec.Mapping = &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{DedupKey: "alert.id"}}
	})
	valid := func() *metav1.Condition {
		return meta.FindStatusCondition(s.integrationStatus().Conditions, v1alpha1.ConditionMappingValid)
	}
	s.reconcileIntegration()
	s.Expect(valid().Status).To(Equal(metav1.ConditionTrue))

	fail := func(generation int64) {
		var read v1alpha1.WebhookIntegration
		s.Expect(s.live.Get(s.ctx, client.ObjectKeyFromObject(integration), &read)).To(Succeed())
		failed := read.DeepCopy()
		failed.Status.LastMappingFailure = &v1alpha1.MappingFailure{Field: "dedupKey", Expression: "alert.id", Message: "no such key: id",
			Count: 3, Time: v1alpha1.NewTimestamp(s.clock.Now()), ObservedGeneration: generation}
		s.Expect(s.live.Status().Patch(s.ctx, failed, client.MergeFrom(&read))).To(Succeed())
	}
	fail(integration.Generation)
	for range 2 { // the second time there is nothing new to tell
		s.reconcileIntegration()
	}
	s.Expect(valid().Status).To(Equal(metav1.ConditionFalse))
	s.Expect(valid().Reason).To(Equal(v1alpha1.ReasonEvaluationFailed))
	s.Expect(valid().Message).To(And(ContainSubstring("dedupKey"), ContainSubstring("alert.id")))
	s.Expect(meta.IsStatusConditionTrue(s.integrationStatus().Conditions, v1alpha1.ConditionReady)).To(BeTrue())
	s.Expect(s.told()).To(ConsistOf(ContainSubstring("Warning EvaluationFailed")))
	s.Expect(s.integrationStatus().LastMappingFailure.Count).To(BeEquivalentTo(3))

	t.Log("an hour without a failure")
	s.clock.SetTime(s.clock.Now().Add(integrations.MappingFailureMemory))
	s.reconcileIntegration()
	s.Expect(valid().Status).To(Equal(metav1.ConditionTrue))

	t.Log("a failure of another generation, and one of a wrong clock")
	fail(integration.Generation - 1)
	s.reconcileIntegration()
	s.Expect(valid().Status).To(Equal(metav1.ConditionTrue))
	s.clock.SetTime(s.clock.Now().Add(10 * 24 * time.Hour))
	fail(integration.Generation)
	s.clock.SetTime(s.clock.Now().Add(-9 * 24 * time.Hour))
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
