package incident

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
)

// rejections are the ways in which an API server rejects a status.
var rejections = map[string]error{
	"invalid":   apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Incident").GroupKind(), "x", nil),
	"a policy":  forbidden("ValidatingAdmissionPolicy 'clean' with binding 'all' denied request: a secret"),
	"too large": apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
	"a webhook": apierrors.NewBadRequest(`admission webhook "clean" denied the request: a secret`),

	"a webhook that says that it has changed":  denial(http.StatusConflict, metav1.StatusReasonConflict),
	"a webhook that says that it is missing":   denial(http.StatusNotFound, metav1.StatusReasonNotFound),
	"a webhook that says that it has failed":   denial(http.StatusInternalServerError, metav1.StatusReasonInternalError),
	"a webhook that says that it is too early": denial(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests),
	"a policy that says unauthorized":          denial(http.StatusUnauthorized, metav1.StatusReasonUnauthorized),
}

// rejectSecrets has the API server reject every status that has the word secret in its content or timeline.
func (s *site) rejectSecrets(rejection error) {
	s.faults.refuseStatus = func(incident *v1alpha1.Incident) error {
		texts := incident.Status.Alert.Title + incident.Status.Alert.Description
		for _, entry := range incident.Status.Timeline {
			texts += entry.Message + entry.Comment
		}
		if strings.Contains(texts, "secret") {
			return rejection
		}
		return nil
	}
}

func (s *site) titled(title string) v1alpha1.Alert {
	alert := s.Alert(v1alpha1.AlertFiring, "disk")
	alert.Title, alert.Severity = title, v1alpha1.SeverityCritical
	return alert
}

func TestARejectedStatusIsWrittenWithoutContent(t *testing.T) {
	for sentence, rejection := range rejections {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			s.rejectSecrets(rejection)
			events := []*v1alpha1.AlertEvent{s.Post(s.titled("a secret"))}
			s.fold("disk")
			s.release()
			s.ExpectCounted("disk", events...)
			s.Expect(s.EventNames()).To(BeEmpty())
			status := s.Incident("disk").Status
			s.Expect(status.State).To(Equal(v1alpha1.IncidentOpen))
			s.Expect(status.Alert.Severity).To(Equal(v1alpha1.SeverityCritical))
			s.Expect(status.Alert.Title).NotTo(BeEmpty())
			s.Expect(status.Timeline).To(HaveLen(2))
			s.Expect(status.Timeline[0].Severity).To(Equal(v1alpha1.SeverityCritical))
			s.Expect(status.Timeline[1].Type).To(Equal(v1alpha1.TransitionContentRejected))

			s.pass(2 * time.Second)
			events = append(events, s.Post(s.titled("another secret")))
			s.fold("disk")
			s.Expect(s.Incident("disk").Status.Timeline).To(HaveLen(2), "it is said once")
			s.pass(2 * time.Second)
			events = append(events, s.Post(s.titled("Disk full")))
			s.fold("disk")
			s.Expect(s.Incident("disk").Status.Alert.Title).To(Equal("Disk full"))
			s.pass(2 * time.Second)
			events = append(events, s.Post(s.titled("a secret")), s.Post(s.Alert(v1alpha1.AlertResolved, "disk")))
			s.fold("disk")
			s.ExpectCounted("disk", events...)
			s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved))
			s.Expect(s.Incident("disk").Status.Alert.Title).To(Equal("Disk full"), "the content of the episode stays")
		})
	}
}

func TestWithoutItsContentAnIncidentKeepsTheTypesOfTocsinsOwn(t *testing.T) {
	for kind, kept := range map[string]string{"heartbeat": "heartbeat", "another": "webhook"} {
		t.Run(kind, func(t *testing.T) {
			s := newSite(t)
			s.incidents.KeptTypes = []string{"heartbeat"}
			s.rejectSecrets(rejections["a policy"])
			alert := s.titled("a secret")
			alert.Type = kind
			s.Post(alert)
			s.fold("disk")
			s.Expect(s.Incident("disk").Status.Alert.Type).To(Equal(kept))
		})
	}
}

func TestARejectedIncidentWaitsAlone(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(nil)
	rejection := rejections["a policy"]
	bad := s.KeyOf("disk").Name
	s.faults.refuseStatus = func(incident *v1alpha1.Incident) error {
		if incident.Name == bad {
			return rejection
		}
		return nil
	}
	firing := s.Post(s.Alert(v1alpha1.AlertFiring, "disk"), s.Alert(v1alpha1.AlertFiring, "cpu"))
	_, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.fold("cpu")
	s.ExpectCounted("cpu", firing)
	s.Expect(s.foldedCondition(integration)).To(Equal("False IncidentRejected"))
	message := s.foldedMessage(integration)
	s.Expect(message).To(And(ContainSubstring(bad), ContainSubstring("ValidatingAdmissionPolicy 'clean'"), Not(ContainSubstring("secret"))))
	for range 20 {
		s.pass(maxBlockedRetry)
		result, err := s.reconcile("disk")
		s.Expect(err).NotTo(HaveOccurred())
		s.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", maxBlockedRetry)))
	}
	s.foldedCondition(integration)
	s.Expect(s.foldedMessage(integration)).To(Equal(message))

	s.faults.refuseStatus = nil
	resolve := s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))
	s.pass(maxBlockedRetry)
	s.fold("disk")
	s.release()
	s.ExpectCounted("disk", firing, resolve)
	s.Expect(s.Incident("disk").Status.State).To(Equal(v1alpha1.IncidentResolved), "the resolve has not overtaken the firing")
	s.Expect(s.foldedCondition(integration)).To(Equal("True Folding"))
	s.Expect(s.EventNames()).To(BeEmpty())
}

// A webhook that denies the creation may say that the Incident exists.
func TestADeniedCreationIsToldWhateverItsCode(t *testing.T) {
	for sentence, rejection := range map[string]error{
		"as if it existed":     denial(http.StatusConflict, metav1.StatusReasonAlreadyExists),
		"as if it had changed": denial(http.StatusConflict, metav1.StatusReasonConflict),
		"as if it had failed":  denial(http.StatusInternalServerError, metav1.StatusReasonInternalError),
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSite(t)
			integration := s.Integrate(nil)
			s.faults.beforeCreate = func() error { return rejection }
			firing := s.PostFiring("disk")
			result, err := s.reconcile("disk")
			s.Expect(err).NotTo(HaveOccurred())
			s.Expect(result.RequeueAfter).To(Equal(minBlockedRetry))
			s.Expect(s.foldedCondition(integration)).To(Equal("False IncidentRejected"))
			s.Expect(s.foldedMessage(integration)).To(And(ContainSubstring(`admission webhook "clean"`), Not(ContainSubstring("secret"))))

			s.faults.beforeCreate = nil
			s.pass(minBlockedRetry)
			s.fold("disk")
			s.ExpectCounted("disk", firing)
		})
	}
}

func TestAWebhookThatIsAwayIsToldAndKeepsTheContent(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(nil)
	s.faults.refuseStatus = func(*v1alpha1.Incident) error {
		return apierrors.NewInternalError(errors.New(`failed calling webhook "x.example.com": connect: connection refused`))
	}
	firing := s.Post(s.titled("Disk full"))
	_, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(s.foldedCondition(integration)).To(Equal("False IncidentRejected"))
	s.Expect(s.foldedMessage(integration)).To(ContainSubstring(`failed calling webhook "x.example.com"`))

	s.faults.refuseStatus = nil
	s.pass(maxBlockedRetry)
	s.fold("disk")
	s.ExpectCounted("disk", firing)
	s.Expect(s.Incident("disk").Status.Alert.Title).To(Equal("Disk full"))
	s.Expect(s.foldedCondition(integration)).To(Equal("True Folding"))
}

// foldedMessage is the message of the condition AlertsFolded.
func (s *site) foldedMessage(integration *v1alpha1.WebhookIntegration) string {
	condition, _ := s.incidents.blocked.Condition(integration)
	return condition.Message
}

func TestARejectionThatPassesDelaysAnAlertByASecond(t *testing.T) {
	s := newSite(t)
	s.faults.refuseStatus = func(*v1alpha1.Incident) error { return rejections["invalid"] }
	firing := s.PostFiring("disk")
	result, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.RequeueAfter).To(Equal(minBlockedRetry))
	s.faults.refuseStatus = nil
	s.pass(minBlockedRetry)
	s.fold("disk")
	s.ExpectCounted("disk", firing)
}

func TestAFoldThatPanicsWaitsVisibly(t *testing.T) {
	s := newSite(t)
	integration := s.Integrate(nil)
	events := []*v1alpha1.AlertEvent{s.PostFiring("disk"), s.Post(s.Alert(v1alpha1.AlertResolved, "disk"))}
	s.fold("disk")
	s.release()
	s.pass(time.Hour)
	events = append(events, s.PostFiring("disk"))
	s.incidents.decideFold = func(fold.Input) fold.Plan { panic(errors.New("a mistake")) }
	result, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.Expect(result.RequeueAfter).To(Equal(minBlockedRetry))
	s.Expect(s.foldedCondition(integration)).To(Equal("False FoldFailed"))
	s.incidents.decideFold = fold.Decide
	s.pass(minBlockedRetry)
	s.fold("disk")
	s.ExpectCounted("disk", events...)
	s.Expect(s.foldedCondition(integration)).To(Equal("True Folding"))
}

func TestMissingPermissionsCostNoContent(t *testing.T) {
	s := newSite(t)
	writes := 0
	s.faults.refuseStatus = func(*v1alpha1.Incident) error {
		if writes++; writes == 1 { // an API server that has not read its roles yet
			return forbidden(`User "tocsin" cannot update resource "incidents/status" in API group "tocsin.dev" in the namespace "x"`)
		}
		return nil
	}
	s.Post(s.titled("Disk full"))
	_, err := s.reconcile("disk")
	s.Expect(err).NotTo(HaveOccurred())
	s.pass(minBlockedRetry)
	s.fold("disk")
	s.Expect(s.Incident("disk").Status.Alert.Title).To(Equal("Disk full"))
}

func TestConditionsNameFewIncidents(t *testing.T) {
	g := NewWithT(t)
	blocked := newBlocked(clocktesting.NewFakePassiveClock(testEpoch))
	now := testEpoch
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		name := types.NamespacedName{Namespace: "team", Name: v1alpha1.IncidentName("shop", key)}
		blocked.block(name, &blockedError{reason: v1alpha1.ReasonFoldFailed, cause: errUnfoldable}, now)
	}
	other := types.NamespacedName{Namespace: "team", Name: v1alpha1.IncidentName("other", "a")}
	blocked.block(other, &blockedError{reason: v1alpha1.ReasonIncidentRejected, detail: "Invalid", cause: errUnfoldable}, now)
	cause, names := blocked.own(types.NamespacedName{Namespace: "team", Name: "shop"})
	g.Expect(cause.reason).To(Equal(v1alpha1.ReasonFoldFailed))
	g.Expect(names).To(HaveLen(5))
	g.Expect(cause.message(names)).To(And(ContainSubstring(" and others"), ContainSubstring(names[2]), Not(ContainSubstring(names[3]))))
	none, _ := blocked.own(types.NamespacedName{Namespace: "elsewhere", Name: "shop"})
	g.Expect(none).To(BeNil())
}

// The conditions of many integrations are computed every other second, while Incidents of one of them wait.
func TestAConditionDependsOnTheIncidentsOfItsIntegrationOnly(t *testing.T) {
	g := NewWithT(t)
	blocked := newBlocked(clocktesting.NewFakePassiveClock(testEpoch))
	for n := range 1000 {
		name := types.NamespacedName{Namespace: "team", Name: v1alpha1.IncidentName("shop", fmt.Sprint(n))}
		blocked.block(name, &blockedError{reason: v1alpha1.ReasonFoldFailed, cause: errUnfoldable}, testEpoch)
	}
	other := &v1alpha1.WebhookIntegration{}
	other.Namespace, other.Name = "team", "other"
	g.Expect(testing.AllocsPerRun(10, func() { blocked.Condition(other) })).To(BeNumerically("<", 100))
	g.Expect(blocked.obstacles[client.ObjectKeyFromObject(other)]).To(BeEmpty())
	g.Expect(blocked.obstacles[obstaclesKey("team", v1alpha1.IncidentName("shop", "1"))]).To(HaveLen(1000))
}
