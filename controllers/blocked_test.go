package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/fair"
)

var incidentResource = schema.GroupResource{Group: "tocsin.dev", Resource: "incidents"}

func forbidden(words string) error {
	return apierrors.NewForbidden(incidentResource, "x", errors.New(words))
}

func TestBlockedCreates(t *testing.T) {
	for sentence, test := range map[string]struct {
		err    error
		reason string
		detail string
	}{
		"a quota": {forbidden("exceeded quota: few, requested: count/incidents.tocsin.dev=1, used: 1, limited: 1"),
			v1alpha1.ReasonQuotaExceeded, "few"},
		"a missing permission": {forbidden(`User "tocsin" cannot create resource "incidents" in API group "tocsin.dev" in the namespace "x"`),
			v1alpha1.ReasonForbidden, ""},
		"the limit of Incidents":              {fmt.Errorf("creating: %w", errIncidentLimit), v1alpha1.ReasonIncidentLimit, ""},
		"a policy that refuses one Incident":  {forbidden("ValidatingAdmissionPolicy 'x' denied request: used"), v1alpha1.ReasonIncidentRejected, "ValidatingAdmissionPolicy 'x'"},
		"a webhook that refuses one Incident": {forbidden(`admission webhook "x" denied the request: used`), v1alpha1.ReasonIncidentRejected, `admission webhook "x"`},
		"an API server in trouble":            {apierrors.NewInternalError(errors.New("x")), "", ""},
		"none":                                {nil, "", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			blocked := asBlocked(test.err)
			if test.reason == "" {
				g.Expect(blocked).To(BeNil())
				return
			}
			g.Expect(blocked.reason).To(Equal(test.reason))
			g.Expect(blocked.detail).To(Equal(test.detail))
			g.Expect(blocked.message(nil)).NotTo(ContainSubstring("used"), "messages do not change while the reason holds")
		})
	}
}

func TestOneIncidentTriesForItsNamespace(t *testing.T) {
	s := newSite(t)
	integration := s.integrate(nil)
	tries := 0
	refusal := forbidden("exceeded quota: few, requested: count/incidents.tocsin.dev=1, used: 1, limited: 1")
	s.postFiring("known")
	s.fold("known")
	s.faults.beforeCreate = func() error { tries++; return refusal }
	keys := []string{"a", "b", "c", "d"}
	for _, key := range keys {
		s.postFiring(key)
	}
	logged := len(testLog.String())
	for range 20 {
		for _, key := range keys {
			result, err := s.reconcile(key)
			s.Expect(err).NotTo(HaveOccurred(), "it is no error that is logged again and again")
			s.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", maxBlockedRetry)))
		}
	}
	s.Expect(tries).To(Equal(1), "80 reconciliations within one moment")
	s.Expect(testLog.String()[logged:]).NotTo(ContainSubstring("ERROR"))
	for range 600 {
		s.clock.SetTime(s.clock.Now().Add(time.Second))
		for _, key := range keys {
			_, err := s.reconcile(key)
			s.Expect(err).NotTo(HaveOccurred())
		}
	}
	s.Expect(tries).To(BeNumerically("<", 30), "four keys in ten minutes")

	s.post(s.alert(v1alpha1.AlertResolved, "known"))
	s.fold("known")
	s.Expect(s.incident("known").Status.State).To(Equal(v1alpha1.IncidentResolved), "other Incidents go on")
	s.Expect(s.foldedCondition(integration)).To(Equal("False QuotaExceeded"))

	s.faults.beforeCreate = nil
	s.clock.SetTime(s.clock.Now().Add(maxBlockedRetry))
	for _, key := range keys {
		s.fold(key)
	}
	s.Expect(s.incidentNames()).To(HaveLen(5))
	s.Expect(s.foldedCondition(integration)).To(Equal("True Folding"))
}

// foldedCondition brings the integration up to date and returns its condition AlertsFolded.
func (s *site) foldedCondition(integration *v1alpha1.WebhookIntegration) string {
	_, err := s.integrations.Reconcile(s.ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(integration)})
	s.Expect(err).NotTo(HaveOccurred())
	condition := meta.FindStatusCondition(s.integrationStatus().Conditions, v1alpha1.ConditionAlertsFolded)
	s.Expect(condition).NotTo(BeNil())
	return string(condition.Status) + " " + condition.Reason
}

func TestANewLeaderKeepsWhatItsPredecessorFound(t *testing.T) {
	s := newSite(t)
	integration := s.integrate(nil)
	key := s.keyOf("a")
	s.incidents.blocked.block(key, asBlocked(errIncidentLimit), s.clock.Now())
	s.Expect(s.foldedCondition(integration)).To(Equal("False IncidentLimit"))
	s.folder = s.newFolder()
	s.incidents.blocked.begin(s.clock.Now())
	s.Expect(s.foldedCondition(integration)).To(Equal("False IncidentLimit"))
	s.clock.SetTime(s.clock.Now().Add(blockedGrace))
	s.Expect(s.foldedCondition(integration)).To(Equal("True Folding"))
	s.incidents.blocked.block(key, asBlocked(errIncidentLimit), s.clock.Now())
	s.Expect(s.foldedCondition(integration)).To(Equal("False IncidentLimit"))
	s.incidents.blocked.forget(key)
	s.Expect(s.foldedCondition(integration)).To(Equal("True Folding"), "no alert waits any more")
}

func TestTheStuckAreShownOnTheirIntegration(t *testing.T) {
	g := NewWithT(t)
	stuck := newStuckEvents()
	shop := types.NamespacedName{Namespace: "team", Name: "shop"}
	one, two := types.NamespacedName{Namespace: "team", Name: "1"}, types.NamespacedName{Namespace: "team", Name: "2"}
	set := func(name types.NamespacedName, now stuckEvent) bool {
		_, changed := stuck.set(name, now)
		return changed
	}
	terminating, unreadable := stuckEvent{"shop", clustercache.StuckTerminating}, stuckEvent{"shop", clustercache.StuckUnreadable}
	g.Expect(set(one, stuckEvent{"shop", ""})).To(BeFalse())
	g.Expect(set(one, terminating)).To(BeTrue())
	g.Expect(set(one, terminating)).To(BeFalse(), "nothing new")
	g.Expect(set(two, unreadable)).To(BeTrue())
	g.Expect(set(types.NamespacedName{Namespace: "other", Name: "3"}, stuckEvent{"shop", clustercache.StuckUnreadable})).To(BeTrue())
	g.Expect(stuck.reasons(shop)).To(Equal(map[string]bool{clustercache.StuckTerminating: true, clustercache.StuckUnreadable: true}))
	before, changed := stuck.set(one, stuckEvent{})
	g.Expect(changed).To(BeTrue())
	g.Expect(before).To(Equal(terminating))
	g.Expect(set(two, stuckEvent{})).To(BeTrue())
	g.Expect(stuck.reasons(shop)).To(BeEmpty())
}

func TestGeneratedKeysResolveByThemselves(t *testing.T) {
	key := v1alpha1.GeneratedKey("019b76da-a800-7000-8000-000000000001")
	for sentence, test := range map[string]struct {
		key   string
		after time.Duration // of the integration
		want  time.Duration // 0: never
	}{
		"after a day":                        {key: key, want: 24 * time.Hour},
		"when the integration says":          {key: key, after: 72 * time.Hour, want: 72 * time.Hour},
		"but not those that the sender gave": {key: "disk"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			s.integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
				if test.after > 0 {
					spec.AutoResolveAfter = &metav1.Duration{Duration: test.after}
				}
			})
			s.postFiring(test.key)
			s.fold(test.key)
			result := s.fold(test.key)
			if test.want == 0 {
				s.Expect(result.RequeueAfter).To(BeZero())
				return
			}
			s.Expect(result.RequeueAfter).To(BeNumerically("~", test.want, time.Second))
			s.clock.SetTime(s.clock.Now().Add(test.want + time.Second))
			s.fold(test.key)
			s.Expect(s.incident(test.key).Status.State).To(Equal(v1alpha1.IncidentResolved))
		})
	}
}

func TestWhatTheCacheDroppedIsFoldedWhole(t *testing.T) {
	s := newSite(t)
	s.realTime()
	alert := s.alert(v1alpha1.AlertFiring, "disk")
	alert.Title, alert.Description = "Disk full", strings.Repeat("x", 1000)
	event := s.post(alert)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/keep"]}}`))
	s.Expect(s.live.Patch(s.ctx, event, patch)).To(Succeed())
	s.Expect(s.live.Delete(s.ctx, event)).To(Succeed())
	s.manage(t)
	s.Eventually(s.incidentNames, 10*time.Second).ShouldNot(BeEmpty())
	s.Eventually(func() string { return s.incident("disk").Status.Alert.Title }, 10*time.Second).Should(Equal("Disk full"))
	patch = client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	s.Expect(s.live.Patch(s.ctx, event, patch)).To(Succeed())
	s.Eventually(s.eventNames, 10*time.Second).Should(BeEmpty())
	s.Expect(s.incident("disk").Status.AlertCount).To(BeEquivalentTo(1))
}

func TestEvictionKeepsTheLedgersOfWhatExists(t *testing.T) {
	s := newSite(t)
	evict := s.evictor(1)
	for _, key := range []string{"old", "new"} {
		s.postFiring(key)
		s.post(s.alert(v1alpha1.AlertResolved, key))
		s.fold(key)
		s.clock.SetTime(s.clock.Now().Add(time.Minute))
	}
	evict()
	s.Expect(s.incidentNames()).To(HaveLen(2), "their AlertEvents exist")
	s.release()
	evict()
	s.Expect(s.incidentNames()).To(ConsistOf(s.keyOf("new").Name), "the one that was resolved first goes, and no more than needed")
	evict()
	s.Expect(s.incidentNames()).To(HaveLen(1))
}

// Nothing tells that a user has deleted Resolved Incidents: those that are left are counted before one is evicted.
func TestEvictionCountsWhatUsersDeleted(t *testing.T) {
	s := newSite(t)
	evict := s.evictor(2)
	for _, key := range []string{"a", "b", "c"} {
		s.postFiring(key)
		s.post(s.alert(v1alpha1.AlertResolved, key))
		s.fold(key)
		s.clock.SetTime(s.clock.Now().Add(time.Minute))
	}
	s.release()
	resolved := s.incidents.resolved
	_, err := resolved.sweep(s.ctx)
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(resolved.overLimit()).To(ConsistOf(s.namespace))
	s.Expect(s.live.Delete(s.ctx, s.incident("b"))).To(Succeed())
	s.Expect(resolved.evict(s.ctx, s.namespace)).To(Succeed())
	s.Expect(s.incidentNames()).To(ConsistOf(s.keyOf("a").Name, s.keyOf("c").Name))
	evict()
	s.Expect(s.incidentNames()).To(HaveLen(2))
}

// evictor returns a function that evicts Resolved Incidents, of which there may be so many.
func (s *site) evictor(limit int64) (evict func()) {
	resolved := s.incidents.resolved
	resolved.isDue = s.incidents.isDue
	resolved.counts.incidents.Limit = fair.Limit{All: limit, Share: 1}
	resolved.queue, _ = fair.NewQueue(requestNamespace, 1)("", backoff[ctrl.Request]()).(*fair.Queue[ctrl.Request])
	return func() {
		_, err := resolved.sweep(s.ctx)
		s.Expect(err).NotTo(HaveOccurred())
		for _, namespace := range resolved.overLimit() {
			s.Expect(resolved.evict(s.ctx, namespace)).To(Succeed())
		}
	}
}
