package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// The service account of kube-state-metrics, as config/kube-state-metrics has it.
const monitoringNamespace, serviceAccount = "monitoring", "kube-state-metrics"

// scrapeTimeout is how long kube-state-metrics may take to show all objects.
const scrapeTimeout = time.Minute

// at is the time of everything in the sample objects.
var at = v1alpha1.NewTimestamp(time.Unix(1_800_000_000, 0))

// testKubeStateMetrics has the kube-state-metrics at the path watch objects, with the permissions and the file of
// config/kube-state-metrics and nothing else, and has Prometheus run the queries of docs/kube-state-metrics.md on its metrics.
func testKubeStateMetrics(ctx context.Context, folder, program string) (err error) {
	c, err := testenv.StartCluster(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	incident, err := createSamples(ctx, c)
	if err != nil {
		return err
	}
	url, stop, err := startKubeStateMetrics(ctx, c, folder, program)
	if err != nil {
		return err
	}
	defer stop()
	want := expectedSeries(incident.CreationTimestamp.Unix())
	var text string
	err = testenv.Await(ctx, scrapeTimeout, func(ctx context.Context) error {
		if text, err = scrape(ctx, url); err != nil {
			return err
		}
		if got := series(text); !slices.Equal(got, want) {
			return fmt.Errorf("kube-state-metrics shows\n%s\ninstead of\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "promtool", "check", "metrics")
	command.Stdin = strings.NewReader(text)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("promtool check metrics: %w: %s", err, output)
	}
	queries, err := documentedQueries()
	if err != nil {
		return err
	}
	p, err := startPrometheus(folder, url)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := p.awaitPanels(ctx, queries); err != nil {
		return err
	}
	fmt.Printf("monitoring: kube-state-metrics shows %d series as it should, and %d queries find them\n", len(want), len(queries))
	return nil
}

// createSamples creates an integration and an Incident, with everything of which there are metrics. It returns the Incident.
func createSamples(ctx context.Context, c *testenv.Cluster) (*v1alpha1.Incident, error) {
	for _, name := range []string{monitoringNamespace, namespace} {
		if err := c.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return nil, fmt.Errorf("creating the namespace %s: %w", name, err)
		}
	}
	condition := func(name string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: name, Status: status, Reason: "Test", LastTransitionTime: metav1.NewTime(at.Time)}
	}
	expired := v1alpha1.NewTimestamp(time.Unix(1_700_000_000, 0))
	integration := &v1alpha1.WebhookIntegration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: v1alpha1.WebhookIntegrationSpec{Suspend: true, Tokens: []v1alpha1.Token{
			{Name: "first", SHA256: tokens.Hash("first"), ExpirationTime: &expired},
			{Name: "second", SHA256: tokens.Hash("second")},
		}},
	}
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-1"},
		Spec:       v1alpha1.IncidentSpec{IntegrationName: "web", DedupKey: "disk"},
	}
	// What nobody has folded yet has no status.
	fresh := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-2"}, Spec: incident.Spec}
	for _, object := range []client.Object{integration, incident, fresh} {
		if err := c.Client.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	integration.Status = v1alpha1.WebhookIntegrationStatus{
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionReady, metav1.ConditionFalse), condition(v1alpha1.ConditionMappingValid, metav1.ConditionTrue),
		},
		LastReceivedTime: &at,
		LastRejection:    &v1alpha1.Rejection{Reason: "Suspended", Time: at},
	}
	incident.Status = v1alpha1.IncidentStatus{
		State: v1alpha1.IncidentOpen,
		Alert: v1alpha1.AlertContent{Severity: v1alpha1.SeverityCritical, Title: "A sender can write anything here"},
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionAcknowledged, metav1.ConditionFalse), condition(v1alpha1.ConditionSilenced, metav1.ConditionTrue),
		},
		AlertCount: 7, Episode: &v1alpha1.Episode{Number: 2, StartTime: at, AlertCount: 3},
		OpenedTime: &expired, LastAlertTime: &at, ResolvedTime: &at,
	}
	return incident, errors.Join(c.Client.Status().Update(ctx, integration), c.Client.Status().Update(ctx, incident))
}

// expectedSeries returns the series of the samples, sorted; both Incidents were created at this time.
func expectedSeries(created int64) []string {
	creation := strconv.FormatFloat(float64(created), 'g', -1, 64)
	text := strings.NewReplacer("AT", "1.8e+09", "PAST", "1.7e+09", "CREATED", creation).Replace(`
tocsin_incident_acknowledged{incident="web-1",namespace="shop"} 0
tocsin_incident_alerts{incident="web-1",namespace="shop"} 7
tocsin_incident_alerts{incident="web-2",namespace="shop"} 0
tocsin_incident_created_timestamp_seconds{incident="web-1",namespace="shop"} CREATED
tocsin_incident_created_timestamp_seconds{incident="web-2",namespace="shop"} CREATED
tocsin_incident_episode{incident="web-1",namespace="shop"} 2
tocsin_incident_info{incident="web-1",integration="web",namespace="shop",severity="critical"} 1
tocsin_incident_info{incident="web-2",integration="web",namespace="shop"} 1
tocsin_incident_last_alert_timestamp_seconds{incident="web-1",namespace="shop"} AT
tocsin_incident_opened_timestamp_seconds{incident="web-1",namespace="shop"} PAST
tocsin_incident_resolved_timestamp_seconds{incident="web-1",namespace="shop"} AT
tocsin_incident_silenced{incident="web-1",namespace="shop"} 1
tocsin_incident_state{incident="web-1",namespace="shop",state="Open"} 1
tocsin_incident_state{incident="web-1",namespace="shop",state="Resolved"} 0
tocsin_webhookintegration_condition{condition="MappingValid",integration="web",namespace="shop"} 1
tocsin_webhookintegration_condition{condition="Ready",integration="web",namespace="shop"} 0
tocsin_webhookintegration_last_received_timestamp_seconds{integration="web",namespace="shop"} AT
tocsin_webhookintegration_last_rejection_timestamp_seconds{integration="web",namespace="shop"} AT
tocsin_webhookintegration_suspended{integration="web",namespace="shop"} 1
tocsin_webhookintegration_token_expiry_timestamp_seconds{integration="web",namespace="shop",token="first"} PAST
`)
	return strings.Split(strings.TrimSpace(text), "\n")
}

// resourceLabels are the labels that kube-state-metrics gives to every series.
var resourceLabels = regexp.MustCompile(`customresource_\w+="[^"]*",`)

// series returns the series of ours in what kube-state-metrics serves, sorted, without resourceLabels.
func series(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "tocsin_") {
			lines = append(lines, resourceLabels.ReplaceAllString(strings.TrimSpace(line), ""))
		}
	}
	slices.Sort(lines)
	return lines
}

// startKubeStateMetrics installs config/kube-state-metrics and starts the program with the file of the ConfigMap, as the service
// account. It returns the URL of the metrics.
func startKubeStateMetrics(ctx context.Context, c *testenv.Cluster, folder, program string) (url string, stop func(), err error) {
	manifests := filepath.Join(testenv.Root(), "config", "kube-state-metrics")
	if _, err := c.Kubectl(ctx, "apply", "--server-side", "-k", manifests); err != nil {
		return "", nil, err
	}
	if _, err := c.Kubectl(ctx, "create", "serviceaccount", serviceAccount, "-n", monitoringNamespace); err != nil {
		return "", nil, err
	}
	token, err := c.Kubectl(ctx, "create", "token", serviceAccount, "-n", monitoringNamespace)
	if err != nil {
		return "", nil, err
	}
	var file corev1.ConfigMap
	key := client.ObjectKey{Namespace: monitoringNamespace, Name: "tocsin-kube-state-metrics"}
	if err := c.Client.Get(ctx, key, &file); err != nil {
		return "", nil, err
	}
	addresses, err := testenv.FreeAddresses(2)
	if err != nil {
		return "", nil, err
	}
	config, kubeconfig := filepath.Join(folder, "config.yaml"), filepath.Join(folder, "kube-state-metrics.kubeconfig")
	log, err := os.Create(filepath.Join(folder, "kube-state-metrics.log"))
	if err != nil {
		return "", nil, err
	}
	access := clientcmdapi.NewConfig()
	access.Clusters["test"] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
	access.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	access.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	access.CurrentContext = "test"
	err = errors.Join(
		os.WriteFile(config, []byte(file.Data["config.yaml"]), 0o600),
		clientcmd.WriteToFile(*access, kubeconfig),
	)
	if err != nil {
		return "", nil, err
	}
	host, port, _ := strings.Cut(addresses[0], ":")
	_, telemetryPort, _ := strings.Cut(addresses[1], ":")
	process := testenv.NewProcess(log, program, "--kubeconfig="+kubeconfig, "--custom-resource-state-only=true",
		"--custom-resource-state-config-file="+config,
		"--host="+host, "--port="+port, "--telemetry-host="+host, "--telemetry-port="+telemetryPort)
	return "http://" + addresses[0] + "/metrics", process.Kill, process.Start()
}

// scrape returns what is served at the URL.
func scrape(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// promqlBlock is a query in a document.
var promqlBlock = regexp.MustCompile("(?s)```promql\n(.*?)```")

// documentedQueries returns the queries of docs/kube-state-metrics.md.
func documentedQueries() (queries []panel, err error) {
	const page = "docs/kube-state-metrics.md"
	text, err := os.ReadFile(filepath.Join(testenv.Root(), page))
	for _, block := range promqlBlock.FindAllStringSubmatch(string(text), -1) {
		queries = append(queries, panel{Title: page, Targets: []struct{ Expr string }{{block[1]}}})
	}
	return queries, err
}
