package v1alpha1_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// kubectl returns a function that runs kubectl against the test's API server and returns what it prints.
func kubectl(t *testing.T) func(args ...string) string {
	t.Helper()
	binary := filepath.Join(testenv.Assets(), "kubectl")
	if _, err := os.Stat(binary); err != nil {
		testenv.SkipOrFail(t, "no kubectl beside the control plane: %v", err)
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["test"] = &clientcmdapi.Cluster{
		Server: config.Host, CertificateAuthorityData: config.CAData,
	}
	kubeconfig.AuthInfos["test"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
	}
	kubeconfig.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	kubeconfig.CurrentContext = "test"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	return func(args ...string) string {
		t.Helper()
		command := exec.Command(binary, append([]string{"--kubeconfig", file, "--cache-dir", cache}, args...)...)
		var stderr bytes.Buffer
		command.Stderr = &stderr
		out, err := command.Output()
		if err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
		}
		return string(out)
	}
}

// table splits what kubectl prints into lines of words; words of one cell stand one space apart.
func table(text string) [][]string {
	var rows [][]string
	for line := range strings.Lines(text) {
		var cells []string
		for cell := range strings.SplitSeq(line, "   ") {
			if cell = strings.TrimSpace(cell); cell != "" {
				cells = append(cells, cell)
			}
		}
		rows = append(rows, cells)
	}
	return rows
}

func TestKubectlPrintsTheColumns(t *testing.T) {
	g := NewWithT(t)
	run := kubectl(t)
	namespace := testenv.Namespace(t, apiClient)
	now := v1alpha1.NewTimestamp(time.Now())
	incident := newIncident(t, namespace, "prometheus", "disk/db-1")
	incident.Status = v1alpha1.IncidentStatus{
		State: v1alpha1.IncidentOpen, AlertCount: 7, LastAlertTime: &now,
		Alert: v1alpha1.AlertContent{Title: "Disk almost full", Severity: v1alpha1.SeverityCritical, Hostname: "db-1"},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionResolved, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFiring,
			LastTransitionTime: metav1.Now(),
		}, {
			Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAcknowledged,
			LastTransitionTime: metav1.Now(),
		}},
		Assignee:   &v1alpha1.Assignee{Name: "maria", Time: now},
		Mute:       &v1alpha1.Mute{StartTime: now, Window: "db-upgrade", EndTime: &now},
		Forwarding: &v1alpha1.Forwarding{Reason: v1alpha1.ForwardingMuted, Time: now},
	}
	g.Expect(apiClient.Status().Update(t.Context(), incident)).To(Succeed())

	rows := table(run("get", "incidents", "-n", namespace))
	g.Expect(rows[0]).To(Equal([]string{"NAME", "STATE", "SEVERITY", "ACK", "FORWARDING", "COUNT", "LAST-SEEN", "TITLE"}))
	g.Expect(rows[1]).To(HaveExactElements(incident.Name, "Open", "critical", "True", "Muted", "7", MatchRegexp(`^\d+s$`), "Disk almost full"))
	wide := table(run("get", "inc", "-n", namespace, "-o", "wide"))
	g.Expect(wide[0][8:]).To(Equal([]string{"ASSIGNEE", "INTEGRATION", "DEDUP-KEY", "HOST", "MUTED", "MUTED-UNTIL", "FLAPPING", "AGE"}))
	g.Expect(wide[1][8:]).To(HaveExactElements("maria", "prometheus", "disk/db-1", "db-1", "db-upgrade", MatchRegexp(`^20.*Z$`), MatchRegexp(`^\d+s$`)))
	g.Expect(run("get", "incidents", "-n", namespace, "--field-selector", "status.state=Open", "-o", "name")).
		To(Equal("incident.tocsin.dev/" + incident.Name + "\n"))
	g.Expect(run("get", "incidents", "-n", namespace, "--field-selector", "status.state=Resolved", "-o", "name")).To(BeEmpty())
	g.Expect(run("get", "all", "-n", namespace, "-o", "name")).NotTo(ContainSubstring("incident"))
	g.Expect(run("get", "tocsin", "-n", namespace, "-o", "name")).To(ContainSubstring("incident.tocsin.dev/"))
	run("wait", "-n", namespace, "--for=condition=Resolved=False", "--timeout=10s", "incident/"+incident.Name)

	event := full(t, "alertevent.yaml")
	_, err := post(namespace, event)
	g.Expect(err).NotTo(HaveOccurred())
	rows = table(run("get", "ae", "-n", namespace))
	g.Expect(rows[0]).To(Equal([]string{"NAME", "INTEGRATION", "ALERTS", "REPORT", "SUMMARY", "AGE"}))
	g.Expect(rows[1][:4]).To(HaveExactElements(nameOf(event), "prometheus", "1", "firing critical: Disk almost full"))

	said := full(t, "alertevent-report.yaml")
	_, err = post(namespace, said)
	g.Expect(err).NotTo(HaveOccurred())
	rows = table(run("get", "ae", "-n", namespace, nameOf(said)))
	g.Expect(rows[1][:3]).To(HaveExactElements(nameOf(said), "prometheus", "acknowledged"))
	g.Expect(run("describe", "ae", "-n", namespace, nameOf(event))).To(And(
		ContainSubstring("firing critical: Disk almost full"), ContainSubstring("disk/db-1")), "a person can read it")

	integration := full(t, "webhookintegration.yaml")
	_, err = post(namespace, without(integration, "status"))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = patchStatus(namespace, "WebhookIntegration", nameOf(integration), string(must(json.Marshal(integration["status"]))))
	g.Expect(err).NotTo(HaveOccurred())
	rows = table(run("get", "whi", "-n", namespace))
	g.Expect(rows[0]).To(Equal([]string{
		"NAME", "READY", "REASON", "MAPPING-VALID", "FORWARDED", "LAST-RECEIVED", "LAST-REJECTION", "REJECTED", "AGE",
	}))
	g.Expect(rows[1][:4]).To(Equal([]string{"prometheus", "False", "Suspended", "False"}))
	wide = table(run("get", "whi", "-n", namespace, "-o", "wide"))
	g.Expect(wide[0][9:]).To(Equal([]string{"PRESET", "MAPPING-REASON", "FORWARDED-REASON"}))
	g.Expect(wide[1][8:10]).To(Equal([]string{"google-cloud-monitoring", "EvaluationFailed"}))
	g.Expect(run("describe", "whi", "-n", namespace, nameOf(integration))).To(And(
		ContainSubstring("Suspended"), ContainSubstring("EvaluationFailed")), "one condition does not hide the other")
}

func TestKubectlShowsWindows(t *testing.T) {
	g := NewWithT(t)
	run, namespace := kubectl(t), testenv.Namespace(t, apiClient)
	window := full(t, "maintenancewindow.yaml")
	_, err := post(namespace, without(window, "status"))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = patchStatus(namespace, "MaintenanceWindow", nameOf(window), string(must(json.Marshal(window["status"]))))
	g.Expect(err).NotTo(HaveOccurred())
	rows := table(run("get", "mw", "-n", namespace))
	g.Expect(rows[0]).To(Equal([]string{"NAME", "OPEN", "STARTS", "ENDS", "INTEGRATIONS", "COMMENT"}))
	g.Expect(rows[1]).To(Equal([]string{
		"database-upgrade", "False", "2026-05-09T20:00:00Z", "2026-05-09T23:00:00Z", "prometheus", "PostgreSQL 18",
	}))
}

func TestKubectlShowsAndAwaitsSummaries(t *testing.T) {
	g := NewWithT(t)
	run, namespace := kubectl(t), testenv.Namespace(t, apiClient)
	summary := full(t, "incidentsummary.yaml")
	_, err := post(namespace, without(summary, "status"))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = patchStatus(namespace, "IncidentSummary", nameOf(summary), string(must(json.Marshal(summary["status"]))))
	g.Expect(err).NotTo(HaveOccurred())
	rows := table(run("get", "incsum", "-n", namespace))
	g.Expect(rows[0]).To(Equal([]string{"NAME", "CLEAR", "CRITICAL", "ERROR", "WARNING", "INFO", "UNACKNOWLEDGED"}))
	g.Expect(rows[1]).To(Equal([]string{"current", "False", "2", "1", "0", "3", "5"}))
	run("wait", "-n", namespace, "--for=condition=Clear=False", "--timeout=10s", "incidentsummary/current")
	run("wait", "-n", namespace, "--for=jsonpath={.status.open.warning}=0", "--timeout=10s", "incidentsummary/current")
}

func TestKubectlExplains(t *testing.T) {
	g := NewWithT(t)
	run := kubectl(t)
	status := run("explain", "incident.status")
	for _, field := range []string{"state", "conditions", "alert", "alertCount", "episode", "timeline", "ledger"} {
		g.Expect(status).To(MatchRegexp(`(?m)^  %s\t<`, field))
	}
	g.Expect(status).To(ContainSubstring("timeline has the newest 20 transitions"))
	g.Expect(run("explain", "incident.status.alert.severity")).To(MatchRegexp(`critical\s+error\s+warning\s+info`))
	g.Expect(run("explain", "whi.spec.retention")).To(ContainSubstring("Default: 168h"))
	g.Expect(run("explain", "ae.spec.report.by")).To(ContainSubstring("by is the name of the user who says it"))
}
