package app

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/archive/bucket"
	"github.com/tocsin-dev/tocsin/controllers/archive/records"
)

// TestArchive runs a manager whose archive is unavailable at first.
func TestArchive(t *testing.T) {
	g := NewWithT(t)
	c, integration, token := integrate(t, v1alpha1.WebhookIntegrationSpec{Retention: &metav1.Duration{Duration: time.Second}})
	namespace := integration.Namespace
	folder := filepath.Join(t.TempDir(), "archive")
	address, stop := startManager(t, "--watch-namespaces="+namespace, "--archive=file://"+folder)
	defer stop()

	g.Eventually(func() int { return postTo(t, address, token) }, "30s", "50ms").Should(Equal(http.StatusAccepted))
	name := v1alpha1.IncidentName("test", "x")
	g.Expect(c.Create(t.Context(), &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "resolve-"},
		Spec:       v1alpha1.AlertEventSpec{Alerts: []v1alpha1.Alert{{IncidentName: name, Status: v1alpha1.AlertResolved}}},
	})).To(Succeed())
	var incident v1alpha1.Incident
	state := func() v1alpha1.IncidentState {
		_ = c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &incident)
		return incident.Status.State
	}
	g.Eventually(state, "20s", "50ms").Should(Equal(v1alpha1.IncidentResolved))
	g.Consistently(func() error { return c.Get(t.Context(), client.ObjectKeyFromObject(&incident), &incident) }, "4s", "200ms").
		Should(Succeed(), "its retention is over, but it is not archived")

	g.Expect(os.Mkdir(folder, 0o700)).To(Succeed())
	opened, err := bucket.Open(t.Context(), "file://"+folder)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = opened.Close() }()
	archived := func() (found []string) {
		for record, err := range records.All(t.Context(), opened, records.Query{}) {
			g.Expect(err).NotTo(HaveOccurred())
			found = append(found, record.Incident+" "+record.Digest)
		}
		return found
	}
	g.Eventually(archived, "40s", "100ms").Should(ConsistOf(name + " " + incident.Status.Ledger.Digest))
	g.Eventually(func() bool {
		_ = c.Get(t.Context(), client.ObjectKeyFromObject(integration), integration)
		return meta.IsStatusConditionTrue(integration.Status.Conditions, v1alpha1.ConditionArchived)
	}, "20s", "100ms").Should(BeTrue())
}
