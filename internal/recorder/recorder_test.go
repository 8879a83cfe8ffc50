package recorder

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// counter is a manager whose recorders count the Kubernetes Events by the namespaces of their objects.
type counter struct {
	ctrl.Manager
	recorder.EventRecorder
	counts map[string]int
}

func (c *counter) GetEventRecorder(string) recorder.EventRecorder { return c }

func (c *counter) Eventf(regarding, _ runtime.Object, _, _, _, _ string, _ ...any) {
	c.counts[regarding.(*v1alpha1.AlertEvent).Namespace]++
}

// TestThousandsOfReportsAreFewKubernetesEvents has two recorders of one manager report thousands of objects of a namespace.
func TestThousandsOfReportsAreFewKubernetesEvents(t *testing.T) {
	g := NewWithT(t)
	written := &counter{counts: map[string]int{}}
	now := time.Unix(0, 0)
	mgr := &manager{written, lru.New(maxNamespaces), func() time.Time { return now }}
	report := func(namespace string, objects int) {
		recorders := []recorder.EventRecorder{mgr.GetEventRecorder("a"), mgr.GetEventRecorder("b")}
		for n := range objects {
			event := &v1alpha1.AlertEvent{}
			event.Namespace, event.Name = namespace, fmt.Sprint(n)
			recorders[n%2].Eventf(event, nil, corev1.EventTypeWarning, "Unreadable", "Fold", "%d", n)
		}
	}
	before := testutil.ToFloat64(dropped)
	report("hostile", 15_000)
	report("quiet", 10)
	g.Expect(written.counts).To(Equal(map[string]int{"hostile": burst, "quiet": 10}))
	g.Expect(testutil.ToFloat64(dropped) - before).To(BeEquivalentTo(15_000 - burst))
	now = now.Add(10 * interval)
	report("hostile", 100)
	g.Expect(written.counts["hostile"]).To(Equal(burst + 10))
}
