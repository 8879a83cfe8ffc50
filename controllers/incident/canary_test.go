package incident

import (
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/replica"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/fair"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// TestACanaryIsSettledOnceAllWatchesShowWhatIsOlder has an AlertEvent of another namespace that the watch does not show: an end
// of the canary would hide that. It is settled once that is shown, or if the cache has no place for it.
func TestACanaryIsSettledOnceAllWatchesShowWhatIsOlder(t *testing.T) {
	for sentence, mend := range map[string]func(s *site, older *v1alpha1.AlertEvent){
		"the watch shows it": func(s *site, older *v1alpha1.AlertEvent) { s.memory.NoteShown(older, false) },
		"it is hidden": func(s *site, _ *v1alpha1.AlertEvent) {
			s.incidents.counts = &listedCounts{site: s, hides: s.Namespace}
		},
	} {
		t.Run(sentence, func(t *testing.T) { canaryIsSettledOnce(t, mend) })
	}
}

func canaryIsSettledOnce(t *testing.T, mend func(s *site, older *v1alpha1.AlertEvent)) {
	t.Helper()
	s := newSite(t)
	own := testenv.Namespace(t, s.Live)
	_, err := replica.NewCanary(s.Config, replica.CanaryOptions{Namespace: own, Memory: s.memory})
	s.Expect(err).NotTo(gomega.HaveOccurred())
	s.incidents.lists = newQuorumLists(func(namespaces ...string) lister { return listEvents(s.Live, allShown, namespaces...) },
		[]string{s.Namespace, own})
	registry := prometheus.NewPedanticRegistry()
	replica.RegisterMetrics(registry)
	counted := nomatch(s, registry)

	older := s.PostFiring("disk")
	s.memory.Cached = queue.NewBoundedCached(fair.Limit{All: 1 << 20, Share: 1}, fair.Limit{All: 1, Share: 1})
	s.memory.Cached.Canaries = own
	var stub *v1alpha1.AlertEvent // of the operator's namespace, where another AlertEvent has taken the place
	for _, name := range []string{"a", "b"} {
		stub = &v1alpha1.AlertEvent{
			ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: name},
			Spec:       v1alpha1.AlertEventSpec{Report: &v1alpha1.Report{IncidentName: "disk", Status: v1alpha1.AlertResolved}},
		}
		s.Expect(s.Live.Create(s.Ctx, stub)).To(gomega.Succeed())
	}
	canary := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: v1alpha1.CanaryName + "-1"},
		Spec:       v1alpha1.AlertEventSpec{Report: &v1alpha1.Report{IncidentName: v1alpha1.CanaryName, Status: v1alpha1.AlertResolved}},
	}
	s.Expect(s.Live.Create(s.Ctx, canary)).To(gomega.Succeed())
	fold := func() (settled bool) {
		ctx, cancel := context.WithTimeout(s.Ctx, 5*time.Second)
		defer cancel()
		_, err := s.incidents.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: own, Name: v1alpha1.CanaryName}})
		s.Expect(err).NotTo(gomega.HaveOccurred())
		return s.releases.IsSettled(canary, v1alpha1.CanaryName)
	}
	for range writeConcurrency - writeConcurrency/5 { // as when an admission webhook hangs for all writes of the namespace
		defer enter(s, s.incidents.gate, own, true)()
	}
	fold() // which shows the canary to the memory
	s.Expect(s.memory.HasStub(stub.UID)).To(gomega.BeTrue())
	s.Expect(fold()).To(gomega.BeFalse())
	mend(s, older)
	s.Expect(fold()).To(gomega.BeTrue())
	_, err = s.releases.Reconcile(s.Ctx, queue.RefOf(canary))
	s.Expect(err).NotTo(gomega.HaveOccurred())
	s.Expect(client.IgnoreNotFound(s.Live.Get(s.Ctx, client.ObjectKeyFromObject(canary), canary))).To(gomega.Succeed())
	s.Expect(nomatch(s, registry)).To(gomega.Equal(counted), "it is no alert of anybody")
}

// nomatch is how many alerts matched no Incident.
func nomatch(s *site, registry *prometheus.Registry) (alerts float64) {
	families, err := registry.Gather()
	s.Expect(err).NotTo(gomega.HaveOccurred())
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if len(metric.GetLabel()) == 1 && metric.GetLabel()[0].GetValue() == "nomatch" {
				alerts += metric.GetCounter().GetValue()
			}
		}
	}
	return alerts
}
