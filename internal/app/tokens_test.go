package app

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// TestListingTheHashOfAnotherTokenHasNoEffect has a tenant list the hashes of another one's tokens, before and after, and
// replaces the integration that the token belongs to.
func TestListingTheHashOfAnotherTokenHasNoEffect(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	victim, thief := testenv.Namespace(t, c), testenv.Namespace(t, c)
	t.Setenv("KUBECONFIG", kubeconfigFile(t))
	token, untagged := testenv.Token(victim, "test"), "a secret without a tag"
	create := func(namespace string) *v1alpha1.WebhookIntegration {
		t.Helper()
		w := &v1alpha1.WebhookIntegration{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"},
			Spec: v1alpha1.WebhookIntegrationSpec{Tokens: []v1alpha1.Token{
				{Name: "tagged", SHA256: tokens.Hash(token)}, {Name: "untagged", SHA256: tokens.Hash(untagged)},
			}},
		}
		g.Expect(c.Create(t.Context(), w)).To(Succeed())
		return w
	}
	address, stop := startRun(t, victim, thief)
	defer stop()
	posts := func(code int) {
		t.Helper()
		g.Eventually(func() int { return postTo(t, address, token) }, "30s", "50ms").Should(Equal(code))
	}
	create(thief)
	owner := create(victim)
	posts(http.StatusAccepted)
	g.Expect(c.Delete(t.Context(), owner)).To(Succeed())
	posts(http.StatusUnauthorized)
	owner = create(victim)
	posts(http.StatusAccepted)

	g.Expect(postTo(t, address, untagged)).To(Equal(http.StatusUnauthorized))
	g.Eventually(func() *v1alpha1.Rejection {
		g.Expect(postTo(t, address, untagged)).To(Equal(http.StatusUnauthorized))
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(owner), owner)).To(Succeed())
		return owner.Status.LastRejection
	}, "10s", "100ms").Should(HaveField("Message", ContainSubstring(`The token "untagged" does not have the tag`)))

	var stored v1alpha1.IncidentList
	g.Expect(c.List(t.Context(), &stored, client.InNamespace(thief))).To(Succeed())
	g.Expect(stored.Items).To(BeEmpty())
}

// startRun runs a manager for some namespaces until stop is called, and returns where it takes alerts.
func startRun(t *testing.T, namespaces ...string) (address string, stop func()) {
	t.Helper()
	return startManager(t, "--watch-namespaces="+strings.Join(namespaces, ","))
}

// integrate creates an integration with the name test and a token, in a namespace of the test, for a manager in this process.
func integrate(
	t *testing.T, spec v1alpha1.WebhookIntegrationSpec,
) (c client.Client, integration *v1alpha1.WebhookIntegration, token string) {
	t.Helper()
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespace := testenv.Namespace(t, c)
	t.Setenv("KUBECONFIG", kubeconfigFile(t))
	token, spec.Tokens = testenv.Token(namespace, "test"), testenv.Tokens(namespace, "test")
	integration = &v1alpha1.WebhookIntegration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"}, Spec: spec}
	g.Expect(c.Create(t.Context(), integration)).To(Succeed())
	return c, integration, token
}

// startManager starts a manager with flags, as startRun does.
func startManager(t *testing.T, flags ...string) (address string, stop func()) {
	t.Helper()
	g := NewWithT(t)
	free := freeAddresses(t, 2)
	address, probe := free[0], free[1]
	// A process of its own: a second one that knows nothing of the first is part of the test.
	manager := exec.Command(os.Args[0], append([]string{
		"--webhook-bind-address=" + address, "--health-probe-bind-address=" + probe, "--metrics-bind-address=0", "--shutdown-delay=0s",
	}, flags...)...)
	manager.Env = append(os.Environ(), asManager+"=true")
	g.Expect(manager.Start()).To(Succeed())
	t.Cleanup(func() { _ = manager.Process.Kill() })
	g.Eventually(func() int { return status(http.Get("http://" + probe + "/readyz")) }, "30s", "50ms").Should(Equal(http.StatusOK))
	return address, func() {
		g.Expect(manager.Process.Signal(syscall.SIGTERM)).To(Succeed())
		g.Expect(manager.Wait()).To(Succeed())
	}
}

// postTo posts an alert and returns the status code.
func postTo(t *testing.T, address, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/api/v1/events/webhook",
		strings.NewReader(`{"title":"x","dedup_key":"x"}`))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+token)
	return status(http.DefaultClient.Do(request))
}
