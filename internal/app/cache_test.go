package app

import (
	"testing"

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

// TestTheCacheKeepsLittleOfIntegrations reads an integration with annotations from the manager's cache.
func TestTheCacheKeepsLittleOfIntegrations(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	w := &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{
		Namespace: testenv.Namespace(t, c), Name: "test",
		Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"large": "text"},
	}}
	g.Expect(c.Create(t.Context(), w)).To(Succeed())
	o, err := ParseFlags([]string{"--watch-namespaces=" + w.Namespace, "--metrics-bind-address=0"})
	g.Expect(err).NotTo(HaveOccurred())
	mgr, objects, err := newManager(rest.CopyConfig(config), o, ctrl.Log, informersOf(), queue.NewMemory(clock.RealClock{}))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = objects.GetInformer(t.Context(), &v1alpha1.WebhookIntegration{})
	g.Expect(err).NotTo(HaveOccurred())
	ctx := startCache(t, mgr, objects)
	cached := &v1alpha1.WebhookIntegration{}
	g.Expect(objects.Get(ctx, client.ObjectKeyFromObject(w), cached)).To(Succeed())
	g.Expect(cached.Labels).To(Equal(w.Labels), "the forwarding selects by them")
	g.Expect(cached.Annotations).To(BeEmpty())
	g.Expect(cached.ManagedFields).To(BeEmpty())
}

// informersOf returns informers for a manager that is not that of a replica.
func informersOf() *clustercache.Informers {
	return &clustercache.Informers{Integrations: clustercache.NewIntegrations(1)}
}
