//go:build slow

package monitoring

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
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

// program is kube-state-metrics.
var program = flag.String("kube-state-metrics", testenv.Program("tools/kube-state-metrics"), "the program kube-state-metrics")

// The service account of kube-state-metrics, as config/kube-state-metrics has it.
const monitoringNamespace, serviceAccount = "monitoring", "kube-state-metrics"

// scrapeTimeout is how long kube-state-metrics may take to show all objects.
const scrapeTimeout = time.Minute

// at is the time of everything in the sample objects.
var at = v1alpha1.NewTimestamp(time.Unix(1_800_000_000, 0))

// TestRealKubeStateMetrics has kube-state-metrics watch objects, with the permissions and the file of
// config/kube-state-metrics and nothing else, and has Prometheus run the queries of docs/kube-state-metrics.md on its metrics.
func TestRealKubeStateMetrics(t *testing.T) {
	r := testenv.NewRig(t, *program)
	incident := createSamples(r)
	url := startKubeStateMetrics(r)
	want := expectedSeries(incident.CreationTimestamp.Unix())
	var text string
	r.Await(scrapeTimeout, func(ctx context.Context) (err error) {
		if text, err = testenv.Call(ctx, http.MethodGet, url, ""); err != nil {
			return err
		}
		if got := series(text); !slices.Equal(got, want) {
			return fmt.Errorf("kube-state-metrics shows\n%s\ninstead of\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
	command := exec.CommandContext(r.Context, programPath(t, "promtool"), "check", "metrics")
	command.Stdin = strings.NewReader(text)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("promtool check metrics: %v: %s", err, output)
	}
	var queries []panel
	for _, query := range documentedQueries(t)[stateMetricsPage] {
		queries = append(queries, panelOf(stateMetricsPage, query))
	}
	awaitPanels(r, startPrometheus(r, writeRules(t, r.Folder), url), queries)
	t.Logf("kube-state-metrics shows %d series as it should, and %d queries find them", len(want), len(queries))
}

// createSamples creates an integration and an Incident, with everything of which there are metrics. It returns the Incident.
func createSamples(r *testenv.Rig) *v1alpha1.Incident {
	for _, name := range []string{monitoringNamespace, namespace} {
		r.Must(r.Client.Create(r.Context, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
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
		r.Must(r.Client.Create(r.Context, object))
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
	r.Must(r.Client.Status().Update(r.Context, integration))
	r.Must(r.Client.Status().Update(r.Context, incident))
	return incident
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
func startKubeStateMetrics(r *testenv.Rig) (url string) {
	kubectl := func(args ...string) string {
		output, err := r.Kubectl(r.Context, args...)
		r.Must(err)
		return output
	}
	kubectl("apply", "--server-side", "-k", filepath.Join(testenv.Root(), "config", "kube-state-metrics"))
	kubectl("create", "serviceaccount", serviceAccount, "-n", monitoringNamespace)
	token := kubectl("create", "token", serviceAccount, "-n", monitoringNamespace)
	var file corev1.ConfigMap
	key := client.ObjectKey{Namespace: monitoringNamespace, Name: "tocsin-kube-state-metrics"}
	r.Must(r.Client.Get(r.Context, key, &file))
	access := clientcmdapi.NewConfig()
	access.Clusters["test"] = &clientcmdapi.Cluster{Server: r.Config.Host, CertificateAuthorityData: r.Config.CAData}
	access.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	access.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	access.CurrentContext = "test"
	kubeconfig := filepath.Join(r.Folder, "kube-state-metrics.kubeconfig")
	r.Must(clientcmd.WriteToFile(*access, kubeconfig))
	addresses := r.Addresses(2)
	host, port, _ := strings.Cut(addresses[0], ":")
	_, telemetryPort, _ := strings.Cut(addresses[1], ":")
	url = "http://" + addresses[0] + "/metrics"
	r.Start(r.Process("kube-state-metrics", url, *program, "--kubeconfig="+kubeconfig, "--custom-resource-state-only=true",
		"--custom-resource-state-config-file="+r.Write("config.yaml", file.Data["config.yaml"]),
		"--host="+host, "--port="+port, "--telemetry-host="+host, "--telemetry-port="+telemetryPort))
	return url
}
