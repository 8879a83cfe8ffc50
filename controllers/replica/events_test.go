package replica

import (
	"context"
	"errors"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// rejectedDeletions is an API server that answers each deletion with an error.
type rejectedDeletions struct {
	client.Writer
	answer error
}

func (r rejectedDeletions) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return r.answer
}

func TestADeniedDeletionIsNotDone(t *testing.T) {
	resource := v1alpha1.GroupVersion.WithResource("alertevents").GroupResource()
	denial := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Reason: reason, Message: `admission webhook "x" denied the request: no`,
		}}
	}
	for sentence, test := range map[string]struct {
		answer         error
		deleted, fails bool
	}{
		"it is deleted":                         {nil, true, false},
		"it is gone":                            {apierrors.NewNotFound(resource, "event"), false, false},
		"another one has the name":              {apierrors.NewConflict(resource, "event", errors.New("another UID")), false, false},
		"a webhook says that it is gone":        {denial(http.StatusNotFound, metav1.StatusReasonNotFound), false, true},
		"a webhook says that it is another one": {denial(http.StatusConflict, metav1.StatusReasonConflict), false, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			deleted, err := DeleteEvent(t.Context(), rejectedDeletions{answer: test.answer}, queue.RefOf(namedEvent("event", 1)))
			g.Expect(deleted).To(Equal(test.deleted))
			g.Expect(err != nil).To(Equal(test.fails), "%v", err)
		})
	}
}
