package app

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/process"
)

var config *rest.Config

// asManager is the environment variable that makes the test binary the manager.
const asManager = "TEST_AS_MANAGER"

func TestMain(m *testing.M) {
	if os.Getenv(asManager) != "" {
		os.Exit(Execute(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(testenv.Main(m, func(c *rest.Config) { config = c }))
}

// run runs a replica on the cluster of KUBECONFIG, as Execute does.
func run(ctx context.Context, o Options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	return Run(ctx, o, Environment{Config: config, Log: ctrl.Log, Metrics: metrics.Registry})
}

func TestCommandLine(t *testing.T) {
	testenv.TestCommandLines(t, Execute, map[string]testenv.CommandLine{
		"help lists the flags":                      {Args: "--help", Stdout: "-max-pending-events"},
		"the version is printed":                    {Args: "--version", Stdout: "tocsin"},
		"an unknown flag is an error":               {Args: "--verbose", Code: 2, Stderr: "-verbose"},
		"an argument is an error":                   {Args: "serve", Code: 2, Stderr: `"serve"`},
		"an address needs a port":                   {Args: "--webhook-bind-address=localhost", Code: 2, Stderr: "--webhook-bind-address"},
		"the webhook server cannot be off":          {Args: "--webhook-bind-address=0", Code: 2, Stderr: "--webhook-bind-address"},
		"a port has at most 16 bits":                {Args: "--health-probe-bind-address=:65536", Code: 2, Stderr: "--health-probe-bind-address"},
		"a body limit of nothing is an error":       {Args: "--max-body-bytes=0", Code: 2, Stderr: "--max-body-bytes"},
		"a backlog limit of nothing is an error":    {Args: "--max-pending-events=-1", Code: 2, Stderr: "--max-pending-events"},
		"a manager needs a write slot":              {Args: "--max-in-flight-writes=0", Code: 2, Stderr: "--max-in-flight-writes"},
		"a shutdown delay beyond the grace is one":  {Args: "--shutdown-delay=1m", Code: 2, Stderr: "--shutdown-delay"},
		"a namespace has a valid name":              {Args: "--watch-namespaces=a,B", Code: 2, Stderr: `"B"`},
		"the page has a URL of the web":             {Args: "--page-url=javascript:alert(1)", Code: 2, Stderr: "must be an http or https URL"},
		"a forwarding file is checked":              {Args: "--check-alertmanager-config=testdata/alertmanager.yaml", Stdout: "valid. alertmanagers: am:9093"},
		"an invalid forwarding file is told":        {Args: "--check-alertmanager-config=app_test.go", Code: 1, Stderr: "the file: yaml: line "},
		"a missing forwarding file is told":         {Args: "--check-alertmanager-config=nowhere", Code: 1, Stderr: "nowhere: no such file"},
		"the namespace of the lease is checked too": {Args: "--leader-election-namespace=a/b", Code: 2, Stderr: "--leader-election-namespace"},
	})
}

func TestDefaultsAreThoseOfTheDesign(t *testing.T) {
	g := NewWithT(t)
	o, err := ParseFlags(nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.webhook.BindAddress).To(Equal(":8080"))
	g.Expect(o.webhook.MaxBodyBytes).To(BeEquivalentTo(256 << 10))
	g.Expect(o.webhook.ShutdownDelay).To(Equal(5 * time.Second))
	g.Expect(o.webhook.EnableHTTP2).To(BeFalse())
	g.Expect(o.process.ProbeAddress).To(Equal(":8081"))
	g.Expect(o.process.MetricsAddress).To(Equal(":8443"))
	g.Expect(o.process.MetricsSecure).To(BeTrue())
	g.Expect(o.process.PprofAddress).To(Equal(process.Off))
	g.Expect(o.process.LeaderElect).To(BeFalse())
	g.Expect(o.process.WatchNamespaces).To(BeEmpty())
}

func TestManager(t *testing.T) {
	g := NewWithT(t)
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	namespace := testenv.Namespace(t, c)
	t.Setenv("KUBECONFIG", kubeconfigFile(t))
	free := freeAddresses(t, 2)
	webhook, probe := free[0], free[1]
	o, err := ParseFlags([]string{
		"--webhook-bind-address=" + webhook, "--health-probe-bind-address=" + probe, "--metrics-bind-address=0",
		"--leader-elect", "--leader-election-namespace=" + namespace, "--watch-namespaces=" + namespace, "--shutdown-delay=0s",
	})
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(c.Create(t.Context(), &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"},
		Spec:       v1alpha1.WebhookIntegrationSpec{Tokens: testenv.Tokens(namespace, "test")},
	})).To(Succeed())

	createDeepest(t, c, namespace)
	createBracketed(t, c, namespace)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	defer stop()
	g.Eventually(func() int { return status(http.Get("http://" + probe + "/readyz")) }, "30s", "50ms").Should(Equal(http.StatusOK))
	g.Expect(status(http.Get("http://" + probe + "/healthz"))).To(Equal(http.StatusOK))

	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+webhook+"/api/v1/events/webhook",
		strings.NewReader(`{"title":"It works","dedup_key":"one"}`))
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+testenv.Token(namespace, "test"))
	g.Expect(status(http.DefaultClient.Do(request))).To(Equal(http.StatusAccepted))
	for key, title := range map[string]string{"one": "It works", "brackets": "Brackets"} {
		incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: v1alpha1.IncidentName("test", key),
		}}
		g.Eventually(func() (v1alpha1.IncidentState, error) {
			err := c.Get(t.Context(), client.ObjectKeyFromObject(incident), incident)
			return incident.Status.State, client.IgnoreNotFound(err)
		}, "30s", "50ms").Should(Equal(v1alpha1.IncidentOpen))
		g.Expect(incident.Status.Alert.Title).To(Equal(title))
	}
	g.Eventually(func() ([]v1alpha1.AlertEvent, error) {
		var left v1alpha1.AlertEventList
		err := c.List(t.Context(), &left, client.InNamespace(namespace))
		return left.Items, err
	}, "30s", "50ms").Should(HaveExactElements(HaveField("Name", "deepest")), "which cannot be decoded")

	stop()
	g.Eventually(ended, "30s").Should(Receive(BeNil()))
}

func TestManagerFailsOnATakenAddress(t *testing.T) {
	g := NewWithT(t)
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(taken.Close()).To(Succeed()) }()
	manager := exec.Command(os.Args[0],
		"--webhook-bind-address="+taken.Addr().String(), "--health-probe-bind-address=0", "--metrics-bind-address=0")
	manager.Env = append(os.Environ(), asManager+"=true", "KUBECONFIG="+kubeconfigFile(t))
	output, err := manager.CombinedOutput()
	g.Expect(string(output)).To(ContainSubstring("address already in use"))
	g.Expect(err).To(MatchError("exit status 1"))
}

// createDeepest stores an AlertEvent whose text nests as deep as a decoder reads, as somebody may make it by hand.
func createDeepest(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "deepest"},
		Spec: v1alpha1.AlertEventSpec{
			IntegrationName: "test",
			Alerts: v1alpha1.AlertsText(`[{"dedupKey":"deep","status":"firing","custom":{"a":` +
				strings.Repeat("[", 9990) + strings.Repeat("]", 9990) + `}}]`),
		},
	}
	NewWithT(t).Expect(c.Create(t.Context(), event)).To(Succeed())
}

// createBracketed stores an AlertEvent whose metadata look like deep JSON to a reader that does not know what it reads.
func createBracketed(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	event := &v1alpha1.AlertEvent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "brackets",
			Annotations: map[string]string{"example.com/note": `"` + strings.Repeat("[", 1001)},
		},
		Spec: v1alpha1.AlertEventSpec{IntegrationName: "test", Alerts: testenv.Text(v1alpha1.Alert{
			DedupKey: "brackets", Status: v1alpha1.AlertFiring, AlertContent: v1alpha1.AlertContent{Title: "Brackets"},
		})},
	}
	NewWithT(t).Expect(c.Create(t.Context(), event)).To(Succeed())
}

// kubeconfigFile writes a kubeconfig for the tests' control plane and returns its path.
func kubeconfigFile(t *testing.T) string {
	t.Helper()
	return kubeconfigFor(t, config.Host)
}

// kubeconfigFor is the same for another address of the API server.
func kubeconfigFor(t *testing.T, host string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %q}}]
users: [{name: u, user: {client-certificate-data: %q, client-key-data: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, host, base64.StdEncoding.EncodeToString(config.CAData), base64.StdEncoding.EncodeToString(config.CertData), base64.StdEncoding.EncodeToString(config.KeyData))
	NewWithT(t).Expect(os.WriteFile(path, []byte(kubeconfig), 0o600)).To(Succeed())
	return path
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return freeAddresses(t, 1)[0]
}

// freeAddresses returns several, which differ.
func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	g := NewWithT(t)
	addresses, err := testenv.FreeAddresses(n)
	g.Expect(err).NotTo(HaveOccurred())
	return addresses
}

// status is the status code of an answer, 0 when there was none.
func status(response *http.Response, err error) int {
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}
