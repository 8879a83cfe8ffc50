package requests

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestSourcesHaveNames(t *testing.T) {
	NewWithT(t).Expect(fmt.Sprint(Source[reconcile.Request]("silences", nil))).To(Equal("silences"))
}

// TestAChangeOfTheStatusAloneWaits has two leaders that see different things write over each other: each does so once a pause.
func TestAChangeOfTheStatusAloneWaits(t *testing.T) {
	for _, row := range []struct {
		name          string
		before, after *v1alpha1.WebhookIntegration
		waits         bool
	}{
		{name: "an object that comes", after: integration(1, "1")},
		{name: "another spec", before: integration(1, "1"), after: integration(2, "2")},
		{name: "another status", before: integration(1, "1"), after: integration(1, "2"), waits: true},
		{name: "an object that goes", before: integration(1, "1")},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				queue := NewQueue(1, NameOf)("test", Backoff[reconcile.Request]())
				defer queue.ShutDown()
				on := OfObject[*v1alpha1.WebhookIntegration]()
				switch {
				case row.before == nil:
					on.Create(t.Context(), event.CreateEvent{Object: row.after}, queue)
				case row.after == nil:
					on.Delete(t.Context(), event.DeleteEvent{Object: row.before}, queue)
				default:
					on.Update(t.Context(), event.UpdateEvent{ObjectOld: row.before, ObjectNew: row.after}, queue)
				}
				began := time.Now()
				request, _ := queue.Get()
				g.Expect(request.Name).To(Equal("mon"))
				if row.waits {
					g.Expect(time.Since(began)).To(Equal(leaderPause))
				} else {
					g.Expect(time.Since(began)).To(BeZero())
				}
				queue.Done(request)
			})
		})
	}
}

func integration(generation int64, version string) *v1alpha1.WebhookIntegration {
	return &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "mon", UID: "u", Generation: generation, ResourceVersion: version,
	}}
}
