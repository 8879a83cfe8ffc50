package commit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/memorystore"
)

func TestASchemaRejectionNamesFieldsAndNothingElse(t *testing.T) {
	g := NewWithT(t)
	_, err := commitOne(&memorystore.Store{Before: memorystore.FailFirst(memorystore.SchemaError("spec.alerts[0].title", "spec.receivedTime"))}, submission("x", "1"))
	var invalid *InvalidError
	g.Expect(errors.As(err, &invalid)).To(BeTrue())
	g.Expect(invalid.Message).To(Equal("not allowed by the schema: alerts[0].title (Invalid), receivedTime (Invalid)"))
}

// Webhooks choose code and reason: no AlertEvent of the name exists.
func TestADenialThatSaysThatTheEventExistsIsADenial(t *testing.T) {
	for sentence, name := range map[string]string{
		"without a key": "", "with an idempotency key": v1alpha1.KeyedEventName("x", "key"),
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			store := &memorystore.Store{Before: memorystore.FailAlways(memorystore.ServerError(
				http.StatusConflict, metav1.StatusReasonAlreadyExists, `admission webhook "x" denied the request: no`))}
			s := submission("x", "1")
			s.EventName = name
			_, err := commitOne(store, s)
			var denied *DeniedError
			g.Expect(errors.As(err, &denied)).To(BeTrue(), "%v", err)
			g.Expect(denied.Reason).To(Equal(ReasonPolicy))
			g.Expect(store.Calls()).To(Equal(1))
		})
	}
}

func TestAPolicyThatRefusesEverythingIsNotAskedForEachAlert(t *testing.T) {
	g := NewWithT(t)
	denied := memorystore.ServerError(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "x" denied the request: no`)
	store := &memorystore.Store{Before: memorystore.FailAlways(denied)}
	var batch []*entry
	for i := range v1alpha1.MaxAlertsPerEvent {
		batch = append(batch, &entry{Submission: submission("x", fmt.Sprint(i)), done: make(chan result, 1), deadline: time.Now().Add(time.Minute)})
	}
	New(store, 1, nil).writeBatch(batch)
	g.Expect(store.Calls()).To(BeNumerically("<=", 2*maxRefusedSplits+1))
	for _, e := range batch {
		var denied *DeniedError
		g.Expect(errors.As((<-e.done).err, &denied)).To(BeTrue())
		g.Expect(denied.Reason).To(Equal(ReasonPolicy))
	}
}

func TestAPolicyThatRefusesOneAlertRefusesNoOther(t *testing.T) {
	g := NewWithT(t)
	store := &memorystore.Store{Before: func(_ context.Context, event *v1alpha1.AlertEvent, _ int) error {
		if slices.ContainsFunc(event.Alerts, func(a v1alpha1.Alert) bool { return a.ID == "2" }) {
			return memorystore.ServerError(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "x" denied the request: no`)
		}
		return nil
	}}
	var batch []*entry
	for i := range 4 {
		batch = append(batch, &entry{Submission: submission("x", fmt.Sprint(i)), done: make(chan result, 1), deadline: time.Now().Add(time.Minute)})
	}
	New(store, 1, nil).writeBatch(batch)
	for i, e := range batch {
		g.Expect(errors.As((<-e.done).err, new(*DeniedError))).To(Equal(i == 2), "%d", i)
	}
}

func TestABatchForWhichAQuotaHasNoCapacityIsNotSplit(t *testing.T) {
	g := NewWithT(t)
	exceeded := memorystore.ServerError(http.StatusForbidden, metav1.StatusReasonForbidden, "exceeded quota: few, requested: count/alertevents=1")
	store := &memorystore.Store{Before: memorystore.FailAlways(exceeded)}
	var batch []*entry
	for i := range 4 {
		batch = append(batch, &entry{Submission: submission("x", fmt.Sprint(i)), done: make(chan result, 1), deadline: time.Now().Add(time.Minute)})
	}
	New(store, 1, nil).writeBatch(batch)
	g.Expect(store.Calls()).To(Equal(1), "a quota counts AlertEvents")
	for _, e := range batch {
		var denied *DeniedError
		g.Expect(errors.As((<-e.done).err, &denied)).To(BeTrue())
		g.Expect(denied.Reason).To(Equal(ReasonQuota))
	}
}

// with returns an answer with causes.
func with(err *apierrors.StatusError, causes ...metav1.StatusCause) error {
	err.ErrStatus.Details = &metav1.StatusDetails{Causes: causes}
	return err
}

func TestWhatAnswersMean(t *testing.T) {
	invalid := func(code int32, reason metav1.StatusReason) *apierrors.StatusError {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: "no"}}
	}
	title := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.alerts[0].title"}
	denied := func(reason string) types.GomegaMatcher {
		return WithTransform(func(err error) string {
			var denied *DeniedError
			if !errors.As(err, &denied) {
				return fmt.Sprint("is not denied: ", err)
			}
			return denied.Reason
		}, Equal(reason))
	}
	notValid := Satisfy(func(err error) bool { return errors.As(err, new(*InvalidError)) })
	for sentence, test := range map[string]struct {
		answer      error
		final       types.GomegaMatcher
		mayBeStored bool
	}{
		"a namespace that is being deleted takes nothing": {
			answer: with(invalid(403, metav1.StatusReasonForbidden), metav1.StatusCause{Type: corev1.NamespaceTerminatingCause}), final: MatchError(ErrUnavailable)},
		"a connection that broke while the answer was read may have stored it": {
			answer: &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, final: BeNil(), mayBeStored: true},
		"a namespace that does not exist takes nothing": {answer: invalid(404, metav1.StatusReasonNotFound), final: MatchError(ErrUnavailable)},
		"a quota": {answer: memorystore.ServerError(403, metav1.StatusReasonForbidden, "exceeded quota: few, requested: count/alertevents=1"), final: denied(ReasonQuota)},
		"a quota that was counted by another request is asked again": {answer: invalid(409, metav1.StatusReasonConflict), final: BeNil()},
		"the schema, which names a field":                            {answer: with(invalid(422, metav1.StatusReasonInvalid), title), final: notValid},
		"a policy that says invalid, and names no field":             {answer: with(invalid(422, metav1.StatusReasonInvalid), metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid}), final: denied(ReasonPolicy)},
		"a policy that says invalid, without causes":                 {answer: with(invalid(422, metav1.StatusReasonInvalid)), final: denied(ReasonPolicy)},
		"a policy with a cause of its own":                           {answer: with(invalid(422, metav1.StatusReasonInvalid), metav1.StatusCause{Type: "Policy", Field: "spec"}), final: denied(ReasonPolicy)},
		"a policy with a reason of its own":                          {answer: with(invalid(422, "Policy"), title), final: denied(ReasonPolicy)},
		"a policy with a code of its own": {
			answer: with(memorystore.ServerError(403, metav1.StatusReasonInvalid, `admission webhook "x" denied the request: no`), title),
			final:  denied(ReasonPolicy)},
		"a proxy that redirects says nothing of what is stored": {answer: invalid(300, ""), final: BeNil(), mayBeStored: true},
		"a policy that says that the request is bad":            {answer: invalid(400, metav1.StatusReasonBadRequest), final: denied(ReasonPolicy)},
		"an API server that takes no object as large":           {answer: invalid(413, metav1.StatusReasonRequestEntityTooLarge), final: notValid},
		"an API server that was too slow may have stored it":    {answer: invalid(408, metav1.StatusReasonTimeout), final: BeNil(), mayBeStored: true},
		"an API server that failed may have stored it":          {answer: invalid(500, metav1.StatusReasonInternalError), final: BeNil(), mayBeStored: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			mayBeStored, final := classify(test.answer)
			g.Expect(mayBeStored).To(Equal(test.mayBeStored))
			g.Expect(final).To(test.final)
		})
	}
}

func TestARejectionNamesFieldsOfTheSpecOnly(t *testing.T) {
	g := NewWithT(t)
	_, final := classify(with(apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("AlertEvent").GroupKind(), "x", nil),
		metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "<nil>"},
		metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.alerts"}))
	g.Expect(final).To(MatchError(ContainSubstring("not allowed by the schema: alerts (Invalid)")))
}
