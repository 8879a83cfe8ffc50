//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/loadgen"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// leastPending is how many AlertEvents must be waiting when the new version comes.
const leastPending = 20

// testReinstall removes everything but the CRDs and installs the Helm chart: the Incidents are there, and go on counting.
func (s *suite) testReinstall(t *testing.T) {
	g := NewWithT(t)
	namespace := s.namespace(t, "e2e-reinstall")
	s.integration(t, namespace, "load")
	load := s.load(namespace, "load")
	load.Requests = 500
	account := loadgen.Run(t.Context(), load)
	g.Expect(account.Codes).To(Equal(map[string]int{"202": 500}), "before: %v", account.Error)
	s.check(t, namespace, "load", account)

	for _, part := range []string{"config/manager", "config/rbac"} {
		s.kubectl(t, "delete", "-k", part)
	}
	s.kubectl(t, "delete", "namespace", systemNamespace)
	wrong, err := loadgen.Check(t.Context(), s.Client, namespace, "load", account, 10)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(wrong).To(BeEmpty(), "the Incidents are still there")

	s.installChart(t)
	s.expose(t)
	load.URLs = s.load(namespace, "load").URLs
	account.Add(loadgen.Run(t.Context(), load))
	g.Expect(account.Codes).To(Equal(map[string]int{"202": 1000}), "after: %v", account.Error)
	s.check(t, namespace, "load", account)
}

// testUninstall removes Tocsin while there are Incidents: Helm keeps them; with the manifests nothing hangs and nothing stays.
func (s *suite) testUninstall(t *testing.T) {
	g := NewWithT(t)
	namespace := s.namespace(t, "e2e-uninstall")
	s.integration(t, namespace, "load")
	load := s.load(namespace, "load")
	load.Requests = 100
	account := loadgen.Run(t.Context(), load)
	s.check(t, namespace, "load", account)

	s.helm(t, "uninstall", "tocsin", "--namespace", systemNamespace)
	wrong, err := loadgen.Check(t.Context(), s.Client, namespace, "load", account, 10)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(wrong).To(BeEmpty(), "Helm keeps the Incidents")
	s.kubectl(t, "delete", "--ignore-not-found", "-k", "config/default")
	err = s.Get(t.Context(), client.ObjectKey{Name: systemNamespace}, &corev1.Namespace{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	left := s.kubectl(t, "get", "crd,clusterrole,clusterrolebinding,namespace", "-o", "name",
		"-l", "app.kubernetes.io/part-of=tocsin")
	g.Expect(left).To(BeEmpty())
}

// testUpgrade installs the baseline, lets AlertEvents pile up, and applies the present manifests over it, all under
// load. Its manifests are what config/default was then.
func (s *suite) testUpgrade(t *testing.T) {
	g := NewWithT(t)
	manifests, err := os.ReadFile(filepath.Join(testenv.Root(), "hack", "suites", "baseline", "manifests.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(manifests)).To(ContainSubstring("image: tocsin:dev\n"))
	path := filepath.Join(t.TempDir(), "baseline.yaml")
	manifests = []byte(strings.Replace(string(manifests), "image: tocsin:dev\n", "image: "+s.baselineImage+"\n", 1))
	g.Expect(os.WriteFile(path, manifests, 0o600)).To(Succeed())
	s.kubectl(t, "apply", "--server-side", "-f", path)
	g.Expect(s.settled(t.Context(), 2)).To(Succeed())
	s.expose(t)

	overlay := s.overlay(t, s.image)
	result := s.underLoad(t, "upgrade", func(ctx context.Context) error {
		if err := s.forbidFolding(ctx); err != nil {
			return err
		}
		if err := s.awaitPending(ctx, "e2e-upgrade"); err != nil {
			return err
		}
		if _, err := s.tryKubectl(ctx, "apply", "--server-side", "-k", overlay); err != nil {
			return err
		}
		return s.settled(ctx, 2)
	})
	result.undisturbed(t)
	s.report.trials = append(s.report.trials, result)
}

// forbidFolding takes the right to write Incidents from the operator. The manifests give it back, which is why it is
// applied as kubectl: a field of another manager would be a conflict.
func (s *suite) forbidFolding(ctx context.Context) error {
	var role rbacv1.ClusterRole
	if err := s.Get(ctx, client.ObjectKey{Name: "tocsin-manager"}, &role); err != nil {
		return err
	}
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, "incidents/status")
	})
	role.ManagedFields = nil
	role.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&role)
	if err != nil {
		return err
	}
	applied := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
	return s.Apply(ctx, applied, client.FieldOwner("kubectl"))
}

func (s *suite) awaitPending(ctx context.Context, namespace string) error {
	return testenv.Await(ctx, time.Minute, func(context.Context) error {
		var events v1alpha1.AlertEventList
		err := s.List(ctx, &events, client.InNamespace(namespace), client.Limit(leastPending))
		if err == nil && len(events.Items) < leastPending {
			err = fmt.Errorf("%d AlertEvents are pending", len(events.Items))
		}
		return err
	})
}
