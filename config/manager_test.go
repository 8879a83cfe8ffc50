package config

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	managerNamespace = "manager"

	asLongAsItTakes = 30 * time.Second
)

// testManager runs the manager with the rights that the manifests give it, and no others: they suffice.
func (c *cluster) testManager(t *testing.T) {
	g := NewWithT(t)
	c.kubectl(t, "create", "namespace", managerNamespace)
	log := filepath.Join(t.TempDir(), "log")
	// The empty list is how OLM says that all namespaces are to be served.
	manager := c.startManager(t, log, systemNamespace, "--metrics-secure", "--leader-elect", "--watch-namespaces=")

	token := testenv.Token(managerNamespace, "test")
	integration := &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: "test"},
		Spec: v1alpha1.WebhookIntegrationSpec{
			Tokens:    testenv.Tokens(managerNamespace, "test"),
			Retention: &metav1.Duration{}, LateFiringWindow: &metav1.Duration{}, // or the Incident would stay for that time
		},
	}
	g.Expect(c.Create(t.Context(), integration)).To(Succeed())
	key := client.ObjectKeyFromObject(integration)
	g.Eventually(func() ([]metav1.Condition, error) {
		return integration.Status.Conditions, c.Get(t.Context(), key, integration)
	}, "30s", "50ms").ShouldNot(BeEmpty())

	// The whole way: stored, folded, told as Kubernetes Events, released and, without a retention, removed.
	g.Eventually(post).WithArguments(t.Context(), manager.WebhookURL+token, `{"dedup_key":"a"}`).
		WithTimeout(10 * time.Second).Should(Equal(http.StatusAccepted))
	g.Expect(post(t.Context(), manager.WebhookURL+token, `{"dedup_key":"a","status":"resolved"}`)).To(Equal(http.StatusAccepted))
	g.Expect(post(t.Context(), manager.WebhookURL+token, `[`)).To(Equal(http.StatusBadRequest))
	g.Eventually(func() (reasons []string, err error) {
		var events corev1.EventList
		err = c.List(t.Context(), &events, client.InNamespace(managerNamespace))
		for i := range events.Items {
			reasons = append(reasons, events.Items[i].Reason)
		}
		return reasons, err
	}, "30s", "100ms").Should(ContainElements("Opened", "Resolved", "Rejected"))
	g.Eventually(func() (int, error) {
		var events v1alpha1.AlertEventList
		var incidents v1alpha1.IncidentList
		err := c.List(t.Context(), &events, client.InNamespace(managerNamespace))
		if err == nil {
			err = c.List(t.Context(), &incidents, client.InNamespace(managerNamespace))
		}
		return len(events.Items) + len(incidents.Items), err
	}, "30s", "100ms").Should(BeZero())
	var lease coordinationv1.Lease
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: systemNamespace, Name: "manager.tocsin.dev"}, &lease)).To(Succeed())

	c.testMetrics(t, strings.Replace(manager.MetricsURL, "http:", "https:", 1))

	g.Expect(manager.Stop()).To(Succeed())
	output, err := os.ReadFile(log)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(output)).NotTo(MatchRegexp("(?i)forbidden"))
}

// testMetrics reads the metrics as somebody with the role for it, and as somebody without.
func (c *cluster) testMetrics(t *testing.T, url string) {
	t.Helper()
	g := NewWithT(t)
	for _, name := range []string{"prometheus", "stranger"} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: name}}
		g.Expect(c.Create(t.Context(), account)).To(Succeed())
	}
	g.Expect(c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tocsin-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: managerNamespace, Name: "prometheus"}},
	})).To(Succeed())
	g.Eventually(scrape).WithArguments(t.Context(), url, c.accountToken(t, managerNamespace, "prometheus")).
		WithTimeout(10 * time.Second).Should(ContainSubstring("\ntocsin_webhook_requests_total{"))
	g.Expect(scrape(t.Context(), url, c.accountToken(t, managerNamespace, "stranger"))).To(HavePrefix("403"))
	g.Expect(scrape(t.Context(), url, "")).To(HavePrefix("401"))
}

// program builds a package and returns the path of the binary. It builds each once for the cluster: linking takes several seconds.
func (c *cluster) program(t *testing.T, name, pkg string) string {
	t.Helper()
	binary := filepath.Join(filepath.Dir(c.kubeconfig), name)
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, pkg)
	build.Dir = testenv.Root()
	output, err := build.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(output))
	return binary
}

// startManager starts the manager as the service account of the Deployment in the namespace and waits until it is
// ready.
func (c *cluster) startManager(t *testing.T, logPath, namespace string, args ...string) *testenv.Manager {
	t.Helper()
	g := NewWithT(t)
	binary := c.program(t, "manager", ".")
	log, err := os.Create(logPath)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(log.Close()).To(Succeed()) })
	manager, err := testenv.StartManager(testenv.ManagerOptions{
		Binary: binary, Kubeconfig: c.accountKubeconfig(t, namespace, "tocsin"), Log: log,
		Args: append(args, "--leader-election-namespace="+namespace, "--shutdown-delay=0s"),
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(manager.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g.Expect(manager.WaitReady(ctx)).To(Succeed())
	return manager
}

// accountToken makes a token for a service account.
func (c *cluster) accountToken(t *testing.T, namespace, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{}
	NewWithT(t).Expect(c.SubResource("token").Create(t.Context(), account, request)).To(Succeed())
	return request.Status.Token
}

// post posts an alert and returns the status code.
func post(ctx context.Context, url, body string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// scrape returns the status and the body of the answer to a request for metrics.
func scrape(ctx context.Context, url, token string) (string, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // self-signed
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.Status + "\n" + string(body), err
}
