package incident

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testsite"
)

var incidentResource = schema.GroupResource{Group: "tocsin.dev", Resource: "incidents"}

func forbidden(words string) error {
	return apierrors.NewForbidden(incidentResource, "x", errors.New(words))
}

// denial is the answer of a webhook that chooses code and reason itself.
func denial(code int32, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: `admission webhook "clean" denied the request: a secret is used`,
	}}
}

func TestBlockedCreates(t *testing.T) {
	for sentence, test := range map[string]struct {
		err    error
		reason string
		detail string
	}{
		"a quota": {forbidden("exceeded quota: few, requested: count/incidents.tocsin.dev=1, used: 1, limited: 1"),
			v1alpha1.ReasonQuotaExceeded, "few"},
		"a quota that is not counted yet": {forbidden("status unknown for quota: few, resources: count/incidents.tocsin.dev"),
			v1alpha1.ReasonQuotaExceeded, "few"},
		"a missing permission": {forbidden(`User "tocsin" cannot create resource "incidents" in API group "tocsin.dev" in the namespace "x"`),
			v1alpha1.ReasonForbidden, ""},
		"the limit of Incidents":                             {fmt.Errorf("creating: %w", errIncidentLimit), v1alpha1.ReasonIncidentLimit, ""},
		"a policy that refuses one Incident":                 {forbidden("ValidatingAdmissionPolicy 'x' denied request: used"), v1alpha1.ReasonIncidentRejected, "ValidatingAdmissionPolicy 'x'"},
		"a webhook that refuses one Incident":                {forbidden(`admission webhook "x" denied the request: used`), v1alpha1.ReasonIncidentRejected, `admission webhook "x"`},
		"a webhook that refuses one and says that it failed": {denial(http.StatusInternalServerError, metav1.StatusReasonInternalError), v1alpha1.ReasonIncidentRejected, `admission webhook "clean"`},
		"a webhook that refuses one and says that it exists": {denial(http.StatusConflict, metav1.StatusReasonAlreadyExists), v1alpha1.ReasonIncidentRejected, `admission webhook "clean"`},
		"a webhook that refuses one as unauthorized":         {denial(http.StatusUnauthorized, metav1.StatusReasonUnauthorized), v1alpha1.ReasonIncidentRejected, `admission webhook "clean"`},
		"a webhook that quotes a quota": {forbidden(`admission webhook "x" denied the request: exceeded quota: used`),
			v1alpha1.ReasonIncidentRejected, `admission webhook "x"`},
		"a webhook that quotes a missing permission": {forbidden(`admission webhook "x" denied the request: User "used" cannot create resource`),
			v1alpha1.ReasonIncidentRejected, `admission webhook "x"`},
		"a webhook that is away": {apierrors.NewInternalError(errors.New(`failed calling webhook "x.example.com": failed to call webhook: used`)),
			v1alpha1.ReasonIncidentRejected, `failed calling webhook "x.example.com"`},
		"a webhook that quotes that another one is away": {
			forbidden(`admission webhook "x" denied the request: Internal error occurred: failed calling webhook "y.example.com": used`),
			v1alpha1.ReasonIncidentRejected, `admission webhook "x"`},
		"an API server that gives up while it asks a webhook": {
			apierrors.NewTimeoutError(`failed calling webhook "x.example.com": used`, 0), "", ""},
		"an API server in trouble": {apierrors.NewInternalError(errors.New("x")), "", ""},
		"none":                     {nil, "", ""},
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
	integration := s.Integrate(nil)
	tries := 0
	refusal := forbidden("exceeded quota: few, requested: count/incidents.tocsin.dev=1, used: 1, limited: 1")
	s.PostFiring("known")
	s.fold("known")
	s.faults.beforeCreate = func() error { tries++; return refusal }
	keys := []string{"a", "b", "c", "d"}
	for _, key := range keys {
		s.PostFiring(key)
	}
	logged := len(testsite.Log.Contents())
	for range 20 {
		for _, key := range keys {
			result, err := s.reconcile(key)
			s.Expect(err).NotTo(HaveOccurred(), "it is no error that is logged again and again")
			s.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", maxBlockedRetry)))
		}
	}
	s.Expect(tries).To(Equal(1), "80 reconciliations within one moment")
	s.Expect(string(testsite.Log.Contents()[logged:])).NotTo(ContainSubstring("ERROR"))
	for range 600 {
		s.Clock.SetTime(s.Clock.Now().Add(time.Second))
		for _, key := range keys {
			_, err := s.reconcile(key)
			s.Expect(err).NotTo(HaveOccurred())
		}
	}
	s.Expect(tries).To(BeNumerically("<", 30), "four keys in ten minutes")

	s.Post(s.Alert(v1alpha1.AlertResolved, "known"))
	s.fold("known")
	s.Expect(s.Incident("known").Status.State).To(Equal(v1alpha1.IncidentResolved), "other Incidents go on")
	s.Expect(s.foldedCondition(integration)).To(Equal("False QuotaExceeded"))

	s.faults.beforeCreate = nil
	s.Clock.SetTime(s.Clock.Now().Add(maxBlockedRetry))
	for _, key := range keys {
		s.fold(key)
	}
	s.Expect(s.IncidentNames()).To(HaveLen(5))
	s.Expect(s.foldedCondition(integration)).To(Equal("True Folding"))
}

// A quota lets a few through: those that are woken find out at once that it is full again, so the condition hides no alert.
func TestThoseThatWaitAreWokenAfterASuccess(t *testing.T) {
	for sentence, test := range map[string]struct {
		room, waiting, tries int
		condition            string
	}{
		"there is room for all":   {room: 20, waiting: 20, tries: 20, condition: "True Folding"},
		"there is room for a few": {room: 7, waiting: 20, tries: 8, condition: "False QuotaExceeded"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			integration := s.Integrate(nil)
			tries, room := 0, 0
			s.faults.beforeCreate = func() error {
				if tries++; tries > room {
					return forbidden("exceeded quota: few, requested: count/incidents.tocsin.dev=1, used: 1, limited: 1")
				}
				return nil
			}
			woken := s.collectWoken()
			for n := range test.waiting {
				s.PostFiring(fmt.Sprint(n))
				_, err := s.reconcile(fmt.Sprint(n))
				s.Expect(err).NotTo(HaveOccurred())
			}
			s.Expect(*woken).To(BeEmpty())
			s.pass(maxBlockedRetry)
			tries, room = 0, test.room
			s.fold("0")
			s.foldWoken(woken)
			s.Expect(tries).To(Equal(test.tries))
			s.Expect(s.IncidentNames()).To(HaveLen(test.room))
			s.Expect(s.foldedCondition(integration)).To(Equal(test.condition))
		})
	}
}

// collectWoken collects the Incidents that are woken from now on.
func (s *site) collectWoken() *[]types.NamespacedName {
	var woken []types.NamespacedName
	s.incidents.wake = func(incident types.NamespacedName) { woken = append(woken, incident) }
	return &woken
}

// foldWoken folds the Incidents that were woken, and those that are woken by that.
func (s *site) foldWoken(woken *[]types.NamespacedName) {
	for len(*woken) > 0 {
		next := (*woken)[0]
		*woken = (*woken)[1:]
		_, err := s.incidents.Reconcile(s.Ctx, ctrl.Request{NamespacedName: next})
		s.Expect(err).NotTo(HaveOccurred())
	}
}

func TestAnAttemptThatTellsNothingWakesAnother(t *testing.T) {
	for sentence, answer := range map[string]error{
		"as the Incident exists":                   apierrors.NewAlreadyExists(incidentResource, "x"),
		"as a policy rejects the Incident":         rejections["a policy"],
		"as a webhook for the Incident is away":    apierrors.NewInternalError(errors.New(`failed calling webhook "x": no route`)),
		"as a webhook says that the Incident came": denial(http.StatusConflict, metav1.StatusReasonAlreadyExists),
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			s.Integrate(nil)
			const waiting = 10
			s.faults.beforeCreate = func() error { return forbidden("exceeded quota: few, requested: x") }
			woken := s.collectWoken()
			for n := range waiting {
				s.PostFiring(fmt.Sprint(n))
				_, err := s.reconcile(fmt.Sprint(n))
				s.Expect(err).NotTo(HaveOccurred())
			}
			s.pass(maxBlockedRetry)
			tried := map[string]bool{}
			s.faults.beforeCreate = nil
			s.faults.refuseCreate = func(object client.Object) error {
				if tried[object.GetName()] = true; len(tried) > 1 {
					return answer
				}
				return nil
			}
			s.fold("0")
			s.foldWoken(woken)
			s.Expect(tried).To(HaveLen(waiting))
		})
	}
}

// foldedCondition brings the integration's condition AlertsFolded up to date and returns it.
func (s *site) foldedCondition(integration *v1alpha1.WebhookIntegration) string {
	condition, ok := s.incidents.blocked.Condition(integration)
	if ok {
		condition.Type = v1alpha1.ConditionAlertsFolded
		meta.SetStatusCondition(&integration.Status.Conditions, condition)
	}
	shown := meta.FindStatusCondition(integration.Status.Conditions, v1alpha1.ConditionAlertsFolded)
	s.Expect(shown).NotTo(BeNil())
	return string(shown.Status) + " " + shown.Reason
}

func TestANewLeaderKeepsWhatItsPredecessorFound(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(nil)
	key := s.KeyOf("a")
	s.incidents.blocked.block(key, asBlocked(errIncidentLimit), s.Clock.Now())
	s.Expect(s.foldedCondition(integration)).To(Equal("False IncidentLimit"))
	s.folder = s.newFolder()
	s.Expect(s.foldedCondition(integration)).To(Equal("False IncidentLimit"))
	s.Clock.SetTime(s.Clock.Now().Add(blockedGrace))
	s.Expect(s.foldedCondition(integration)).To(Equal("True Folding"))
	s.incidents.blocked.block(key, asBlocked(errIncidentLimit), s.Clock.Now())
	s.Expect(s.foldedCondition(integration)).To(Equal("False IncidentLimit"))
	s.incidents.blocked.forget(key)
	s.Expect(s.foldedCondition(integration)).To(Equal("True Folding"), "no alert waits any more")
}

func TestGeneratedKeysResolveByThemselves(t *testing.T) {
	key := v1alpha1.GeneratedKey("019b76da-a800-7000-8000-000000000001")
	for sentence, test := range map[string]struct {
		key   string
		after time.Duration // of the integration
		gone  bool          // the integration is deleted
		want  time.Duration // 0: never
	}{
		"after a day":                        {key: key, want: 24 * time.Hour},
		"when the integration says":          {key: key, after: 72 * time.Hour, want: 72 * time.Hour},
		"but not those that the sender gave": {key: "disk"},
		"nor without the integration":        {key: key, gone: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			integration := s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
				if test.after > 0 {
					spec.AutoResolveAfter = &metav1.Duration{Duration: test.after}
				}
			})
			s.PostFiring(test.key)
			s.fold(test.key)
			if test.gone {
				s.Expect(s.Live.Delete(s.Ctx, integration)).To(Succeed())
			}
			result := s.fold(test.key)
			if test.want == 0 {
				s.Expect(result.RequeueAfter).To(BeZero())
				return
			}
			s.Expect(result.RequeueAfter).To(BeNumerically("~", test.want, time.Second))
			s.Clock.SetTime(s.Clock.Now().Add(test.want + time.Second))
			s.fold(test.key)
			s.Expect(s.Incident(test.key).Status.State).To(Equal(v1alpha1.IncidentResolved))
		})
	}
}

func TestDeletionKeepsTheLedgersOfWhatExists(t *testing.T) {
	s := newSite(t)
	s.PostFiring("disk")
	s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.fold("disk")
	remove := func() int {
		deleted, err := s.incidents.Delete(s.Ctx, s.Namespace, []*v1alpha1.Incident{s.Incident("disk")}, func() bool { return true })
		s.Expect(err).NotTo(HaveOccurred())
		return deleted
	}
	s.Expect(remove()).To(BeZero(), "its AlertEvents exist")
	s.release()
	s.Expect(remove()).To(Equal(1))
	s.Expect(s.IncidentNames()).To(BeEmpty())
}

// TestBlockedKnowsWhichIncidentsWait has two Incidents wait for their namespace, and one for itself.
func TestBlockedKnowsWhichIncidentsWait(t *testing.T) {
	g := NewWithT(t)
	clock := clocktesting.NewFakePassiveClock(testEpoch)
	blocked := newBlocked(clock)
	key := func(namespace, dedupKey string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: v1alpha1.IncidentName("shop", dedupKey)}
	}
	block := func(dedupKey string, reason string) (first bool) {
		_, first = blocked.block(key("team", dedupKey), &blockedError{reason: reason, cause: errTerminating}, testEpoch)
		return first
	}
	g.Expect(block("a", v1alpha1.ReasonIncidentLimit)).To(BeTrue())
	g.Expect(block("b", v1alpha1.ReasonIncidentLimit)).To(BeFalse(), "the namespace is known to be full")
	g.Expect(block("b", v1alpha1.ReasonQuotaExceeded)).To(BeTrue(), "there is another reason")
	g.Expect(block("c", v1alpha1.ReasonFoldFailed)).To(BeTrue())
	g.Expect(block("c", v1alpha1.ReasonFoldFailed)).To(BeFalse())
	for _, waits := range []struct {
		namespace, dedupKey string
		has, mayExist       bool
	}{
		{namespace: "team", dedupKey: "a", has: true},
		{namespace: "team", dedupKey: "b", has: true},
		{namespace: "team", dedupKey: "c", has: true, mayExist: true},
		{namespace: "team", dedupKey: "d", mayExist: true},
		{namespace: "other", dedupKey: "a"},
	} {
		g.Expect(blocked.has(key(waits.namespace, waits.dedupKey))).To(Equal(waits.has), "%+v", waits)
		g.Expect(blocked.mayExist(key(waits.namespace, waits.dedupKey))).To(Equal(waits.mayExist), "%+v", waits)
	}
	g.Expect(blocked.unblock(key("team", "a"))).To(ConsistOf(key("team", "b").Name), "not the one that was created")
	blocked.forget(key("team", "c"))
	g.Expect(blocked.obstacles).To(BeEmpty(), "nothing is remembered of those that are written")
}
