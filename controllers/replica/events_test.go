package replica

import (
	"context"
	"errors"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
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

func TestAnEventNamesItsIncidentsAndWhetherAllTheirAlertsFire(t *testing.T) {
	event := namedEvent("event", 1)
	event.Alerts = nil
	for name, statuses := range map[string][]v1alpha1.AlertStatus{
		"fires":       {v1alpha1.AlertFiring},
		"fires-twice": {v1alpha1.AlertFiring, v1alpha1.AlertFiring},
		"resolved":    {v1alpha1.AlertResolved},
		"ends":        {v1alpha1.AlertFiring, v1alpha1.AlertResolved},
		"comes-back":  {v1alpha1.AlertResolved, v1alpha1.AlertFiring},
	} {
		for _, status := range statuses {
			event.Alerts = append(event.Alerts, v1alpha1.Alert{IncidentName: name, Status: status})
		}
	}
	g := NewWithT(t)
	g.Expect(IncidentNames(event)).To(Equal(map[string]bool{
		"fires": true, "fires-twice": true, "resolved": false, "ends": false, "comes-back": false,
	}))
	indexed := &indexer{}
	g.Expect(Index(indexed)).To(Succeed())
	g.Expect(indexed.names(event)).To(ConsistOf("fires", "fires-twice", "resolved", "ends", "comes-back"))
	g.Expect(indexed.names(&v1alpha1.Incident{})).To(BeEmpty())
	g.Expect(Index(&indexer{err: errors.New("there is one")})).To(MatchError(ContainSubstring("there is one")))
}

// indexer is all that an index needs of a manager.
type indexer struct {
	ctrl.Manager
	names client.IndexerFunc
	err   error
}

func (i *indexer) GetFieldIndexer() client.FieldIndexer { return i }

func (i *indexer) IndexField(_ context.Context, _ client.Object, _ string, names client.IndexerFunc) error {
	i.names = names
	return i.err
}

// cached is a cache that has these AlertEvents, or fails.
type cached struct {
	client.Reader
	events []v1alpha1.AlertEvent
	err    error
}

func (c cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.AlertEventList).Items = c.events
	return c.err
}

func TestTheEventsOfAnIncidentAreThoseOfTheCache(t *testing.T) {
	g := NewWithT(t)
	first, second := namedEvent("first", 1), namedEvent("second", 2)
	cache := cached{events: []v1alpha1.AlertEvent{*first, *second}}
	g.Expect(EventsOf(t.Context(), cache, shop)).To(HaveExactElements(first, second))
	cache.err = errors.New("not synced")
	_, err := EventsOf(t.Context(), cache, shop)
	g.Expect(err).To(MatchError(ContainSubstring("not synced")))
}
