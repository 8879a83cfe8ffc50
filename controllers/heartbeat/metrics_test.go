package heartbeat

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// manyHeartbeats lists integrations with forty heartbeats each.
type manyHeartbeats struct{ client.Reader }

func (manyHeartbeats) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	integrations, ok := list.(*v1alpha1.WebhookIntegrationList)
	for n := range 400 {
		w := v1alpha1.WebhookIntegration{}
		w.Namespace, w.Name = map[bool]string{true: "hostile", false: "other"}[n < 300], fmt.Sprint(n)
		for beat := range 40 {
			w.Status.Heartbeats = append(w.Status.Heartbeats, v1alpha1.HeartbeatStatus{Name: fmt.Sprint(beat)})
		}
		integrations.Items = append(integrations.Items, w)
	}
	if !ok {
		panic("another kind")
	}
	return nil
}

func TestTheHeartbeatsOfANamespaceAreBounded(t *testing.T) {
	c, reader := &collector{}, client.Reader(manyHeartbeats{})
	c.cache.Store(&reader)
	NewWithT(t).Expect(testutil.CollectAndCount(c)).To(Equal(2*maxOwnSeries), "as many of each namespace")
}
