package app

import (
	"context"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// TestAnIncidentIsExplained posts alerts to a replica that ends, and to the one that leads after it, with a mapping that changes
// meanwhile.
func TestAnIncidentIsExplained(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespace := testenv.Namespace(t, c)
	t.Setenv("KUBECONFIG", kubeconfigFile(t))
	integration := &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"},
		Spec: v1alpha1.WebhookIntegrationSpec{
			Tokens:   testenv.Tokens(namespace, "test"),
			Mapping:  &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Title: `"Host " + alert.host`}},
			Defaults: &v1alpha1.AlertDefaults{Type: "disk"},
		},
	}
	g.Expect(c.Create(t.Context(), integration)).To(Succeed())
	incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.IncidentName("test", "one")}}
	explained := func() map[string]mapping.Source {
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(integration), integration)).To(Succeed())
		e, _ := mapping.Explain(incident, integration.Spec.Mapping)
		sources := map[string]mapping.Source{}
		for _, source := range e.Sources {
			sources[source.Field] = source
		}
		return sources
	}
	counted := func(n int64) {
		g.Eventually(func() (int64, error) {
			err := c.Get(t.Context(), client.ObjectKeyFromObject(incident), incident)
			return incident.Status.AlertCount, client.IgnoreNotFound(err)
		}, "30s", "50ms").Should(Equal(n))
	}

	post, stop := startReplica(t, namespace)
	g.Expect(post(`{"host": "db-1", "message": "97 %", "severity": "odd", "dedup_key": "one"}`)).To(Equal(http.StatusAccepted))
	counted(1)
	g.Expect(explained()).To(And(
		HaveKeyWithValue("title", mapping.Source{Field: "title", From: mapping.FromMapping, Expression: `"Host " + alert.host`}),
		HaveKeyWithValue("description", mapping.Source{Field: "description", From: mapping.FromKey, Key: "message"}),
		HaveKeyWithValue("severity", mapping.Source{Field: "severity", From: mapping.FromBuiltIn}),
		HaveKeyWithValue("type", mapping.Source{Field: "type", From: mapping.FromDefault}),
	))
	e, _ := mapping.Explain(incident, nil)
	g.Expect(e.Warnings).To(ConsistOf(HaveField("Detail", "… is not a known severity; it is kept in custom")))
	stop()

	integration.Spec.Mapping.Fields.Title = `"Node " + alert.host`
	g.Expect(c.Update(t.Context(), integration)).To(Succeed())
	g.Expect(explained()).To(HaveKeyWithValue("title", mapping.Source{Field: "title", From: mapping.FromMapping, Changed: true}))
	post, stop = startReplica(t, namespace)
	defer stop()
	g.Expect(post(`{"host": "db-1", "dedup_key": "one", "severity": "error"}`)).To(Equal(http.StatusAccepted))
	counted(2)
	g.Expect(explained()).To(And(
		HaveKeyWithValue("title", mapping.Source{Field: "title", From: mapping.FromMapping, Expression: `"Node " + alert.host`}),
		HaveKeyWithValue("description", mapping.Source{Field: "description", From: mapping.FromKey, Key: "message", Earlier: true}),
		HaveKeyWithValue("severity", mapping.Source{Field: "severity", From: mapping.FromKey, Key: "severity"}),
	))
}

// startReplica starts a replica for a namespace. post returns the status code of its answer to a payload.
func startReplica(t *testing.T, namespace string) (post func(body string) int, stop func()) {
	t.Helper()
	g := NewWithT(t)
	free := freeAddresses(t, 2)
	o, err := ParseFlags([]string{
		"--webhook-bind-address=" + free[0], "--health-probe-bind-address=" + free[1], "--metrics-bind-address=0",
		"--leader-elect", "--leader-election-namespace=" + namespace, "--watch-namespaces=" + namespace, "--shutdown-delay=0s",
	})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	g.Eventually(func() int { return status(http.Get("http://" + free[1] + "/readyz")) }, "30s", "50ms").Should(Equal(http.StatusOK))
	post = func(body string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+free[0]+"/api/v1/events/webhook",
			strings.NewReader(body))
		g.Expect(err).NotTo(HaveOccurred())
		request.Header.Set("Authorization", "Bearer "+testenv.Token(namespace, "test"))
		return status(http.DefaultClient.Do(request))
	}
	return post, func() {
		cancel()
		g.Eventually(ended, "30s").Should(Receive(BeNil()))
	}
}
