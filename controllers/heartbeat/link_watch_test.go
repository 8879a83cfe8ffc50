package heartbeat

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/requests"
)

// TestTheHeartbeatOfALinkIsLookedAtAfterAPause has one leader create what another one deletes, who see different integrations.
func TestTheHeartbeatOfALinkIsLookedAtAfterAPause(t *testing.T) {
	for _, row := range []struct {
		name   string
		labels map[string]string
		pause  time.Duration
	}{
		{name: "a user's is looked at at once"},
		{name: "a leader's waits", labels: map[string]string{v1alpha1.LinkLabel: ""}, pause: time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				queue := requests.NewQueue(1, requests.NameOf)("test", requests.Backoff[reconcile.Request]())
				defer queue.ShutDown()
				h := &v1alpha1.Heartbeat{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "link", Labels: row.labels},
					Spec:       v1alpha1.HeartbeatSpec{IntegrationName: "leaf"},
				}
				began := time.Now()
				watchHeartbeats().Create(t.Context(), event.CreateEvent{Object: h}, queue)
				request, _ := queue.Get()
				g.Expect(request.Name).To(Equal("leaf"))
				g.Expect(time.Since(began)).To(Equal(row.pause))
				queue.Done(request)
			})
		})
	}
}
