package heartbeat

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// oneHeard lists a heartbeat that is heard, and one that waits for its first signal.
type oneHeard struct{ client.Reader }

func (oneHeard) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	beats, ok := list.(*v1alpha1.HeartbeatList)
	if !ok {
		panic("another kind")
	}
	beats.Items = make([]v1alpha1.Heartbeat, 2)
	beats.Items[0].Name, beats.Items[1].Name = "heard", "waiting"
	beats.Items[0].Status.LastSignalTime = new(v1alpha1.NewTimestamp(epoch))
	return nil
}

func TestMetricsOfHeartbeats(t *testing.T) {
	c, reader := &collector{}, client.Reader(oneHeard{})
	NewWithT(t).Expect(testutil.CollectAndCount(c)).To(BeZero(), "only the leader tells")
	c.cache.Store(&reader)
	NewWithT(t).Expect(testutil.CollectAndCount(c)).To(Equal(3))
}
