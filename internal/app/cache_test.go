package app

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/utils/clock"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// TestTheCacheKeepsLittleOfAnyKind reads objects with annotations and labels from the manager's cache. A tenant could fill the
// memory of every replica with them.
func TestTheCacheKeepsLittleOfAnyKind(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespace := testenv.Namespace(t, c)
	o, err := ParseFlags([]string{"--watch-namespaces=" + namespace, "--metrics-bind-address=0"})
	g.Expect(err).NotTo(HaveOccurred())
	mgr, objects, err := newManager(rest.CopyConfig(config), o, ctrl.Log, informersOf(), queue.NewMemory(clock.RealClock{}))
	g.Expect(err).NotTo(HaveOccurred())
	labels := map[string]string{"team": "a"}
	kinds := map[client.Object]map[string]string{ // and the labels that are read
		&v1alpha1.WebhookIntegration{}: labels, // the forwarding selects by them
		&v1alpha1.Incident{Spec: v1alpha1.IncidentSpec{IntegrationName: "test", DedupKey: "disk"}}: nil,
		&v1alpha1.IncidentSummary{}: nil,
		&v1alpha1.Heartbeat{Spec: v1alpha1.HeartbeatSpec{
			IntegrationName: "test", Every: &metav1.Duration{Duration: time.Hour},
		}}: nil,
		&v1alpha1.MaintenanceWindow{Spec: v1alpha1.MaintenanceWindowSpec{
			Once: &v1alpha1.SingleOpening{
				StartTime: v1alpha1.NewTimestamp(time.Now()), EndTime: v1alpha1.NewTimestamp(time.Now().Add(time.Hour)),
			},
		}}: nil,
		&v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{
			Report: &v1alpha1.Report{Status: v1alpha1.AlertResolved, IncidentName: "test"},
		}}: nil,
	}
	for object := range kinds {
		object.SetNamespace(namespace)
		object.SetName("current") // the only one that a summary may have
		object.SetLabels(labels)
		object.SetAnnotations(map[string]string{"large": "text"})
		g.Expect(c.Create(t.Context(), object)).To(Succeed(), "%T", object)
		_, err := objects.GetInformer(t.Context(), object)
		g.Expect(err).NotTo(HaveOccurred())
	}
	ctx := startCache(t, mgr, objects)
	for object, read := range kinds {
		cached := object.DeepCopyObject().(client.Object)
		g.Expect(objects.Get(ctx, client.ObjectKeyFromObject(object), cached)).To(Succeed(), "%T", object)
		g.Expect(cached.GetLabels()).To(Equal(read), "%T", object)
		g.Expect(cached.GetAnnotations()).To(BeEmpty(), "%T", object)
		g.Expect(cached.GetManagedFields()).To(BeEmpty(), "%T", object)
	}
}

// informersOf returns informers for a manager that is not that of a replica.
func informersOf() *clustercache.Informers {
	return &clustercache.Informers{Integrations: clustercache.NewIntegrations(1)}
}
