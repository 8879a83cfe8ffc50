package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/clustercache"
)

// TestNobodyWaitsForTheIntegrationsOfAnotherNamespace: all those of one namespace hang.
func TestNobodyWaitsForTheIntegrationsOfAnotherNamespace(t *testing.T) {
	s, neighbour := newSite(t), newSite(t)
	for n := range 2 * concurrency {
		s.Expect(s.Live.Create(s.Ctx, &v1alpha1.WebhookIntegration{
			ObjectMeta: metav1.ObjectMeta{Namespace: neighbour.Namespace, Name: fmt.Sprint("hangs-", n)},
		})).To(Succeed())
	}
	mgr, err := ctrl.NewManager(s.Config, ctrl.Options{
		MapperProvider: clustercache.RESTMapper,
		Scheme:         testenv.Scheme(),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Cache:          cache.Options{DefaultNamespaces: map[string]cache.Config{s.Namespace: {}, neighbour.Namespace: {}}},
		Controller:     config.Controller{SkipNameValidation: new(true)},
	})
	s.Expect(err).NotTo(HaveOccurred())
	ctx, stop := context.WithCancel(t.Context())
	options, hanging := s.options, make(chan struct{}, 2*concurrency)
	options.Mappings = mappingsOf(func(integration *v1alpha1.WebhookIntegration) error {
		if integration.Namespace == neighbour.Namespace {
			hanging <- struct{}{}
			<-ctx.Done()
		}
		return nil
	})
	s.Expect(Add(mgr, s.Live, options)).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		stop()
		s.Expect(<-ended).To(Succeed())
	}()
	s.Eventually(hanging, time.Minute).Should(Receive())
	s.Integrate(func(spec *v1alpha1.WebhookIntegrationSpec) {
		spec.Tokens = []v1alpha1.Token{tokenOf("main", s.Namespace)}
	})
	s.Eventually(func() bool {
		return meta.IsStatusConditionTrue(s.IntegrationStatus().Conditions, v1alpha1.ConditionReady)
	}, time.Minute).Should(BeTrue())
}
