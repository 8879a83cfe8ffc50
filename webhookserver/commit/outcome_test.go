package commit

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
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
