package admission

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOnlyTheMessageTellsWhyAnObjectIsNotAdmitted(t *testing.T) {
	answer := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message}}
	}
	incidents := schema.GroupResource{Group: "tocsin.dev", Resource: "incidents"}
	for sentence, test := range map[string]struct {
		err                error
		denied             bool
		quota, unreachable string
	}{
		"a policy denies it": {
			err: answer(422, "incidents.tocsin.dev \"x\" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no"), denied: true,
		},
		"a webhook denies it as if it were a conflict": {err: answer(409, `admission webhook "a" denied the request: no`), denied: true},
		"a webhook denies it as if it were missing":    {err: answer(404, `admission webhook "a" denied the request: no`), denied: true},
		"a webhook denies it as if it had failed":      {err: answer(500, `admission webhook "a" denied the request without explanation`), denied: true},
		"the error is wrapped":                         {err: fmt.Errorf("writing: %w", answer(500, `admission webhook "a" denied the request: no`)), denied: true},
		"the denial quotes a quota":                    {err: answer(403, `admission webhook "a" denied the request: exceeded quota: q, x`), denied: true},
		"the denial quotes a webhook that is away":     {err: answer(500, `admission webhook "a" denied the request: failed calling webhook "b": x`), denied: true},
		"the denial quotes another one":                {err: answer(400, `admission webhook "a" denied the request: it denied request: failed calling webhook "b": x`), denied: true},
		"a webhook is away":                            {err: answer(500, `Internal error occurred: failed calling webhook "a": no route`), unreachable: `"a"`},
		"a webhook that is away quotes a denial":       {err: answer(500, `failed calling webhook "a": x denied the request`), unreachable: `"a"`},
		"a quota is full":                              {err: answer(403, `incidents.tocsin.dev "x" is forbidden: exceeded quota: few, requested: a=1`), quota: "few"},
		"a quota is not counted yet":                   {err: answer(403, `incidents.tocsin.dev "x" is forbidden: status unknown for quota: few, resources: a`), quota: "few"},
		"it has changed":                               {err: apierrors.NewConflict(incidents, "x", errors.New("the object has been modified"))},
		"it is missing":                                {err: apierrors.NewNotFound(incidents, "x")},
		"it is no answer":                              {err: errors.New(`admission webhook "a" denied the request: exceeded quota: q, failed calling webhook "a": x`)},
		"there is no error":                            {},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(IsDenied(test.err)).To(Equal(test.denied))
			g.Expect(UnreachableWebhook(test.err)).To(Equal(test.unreachable))
			quota, ok := Quota(test.err)
			g.Expect(quota).To(Equal(test.quota))
			g.Expect(ok).To(Equal(test.quota != ""))
		})
	}
}
