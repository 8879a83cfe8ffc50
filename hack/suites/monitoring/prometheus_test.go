//go:build slow

// Package monitoring is "make test-monitoring". It tests the alerting rules with promtool, and has a real
// Prometheus scrape a manager under load, to see that every panel of the dashboard shows something and that every
// alert of the rules is what it should be. Both programs are in Debian's package prometheus. "make test-kube-state-metrics"
// tests config/kube-state-metrics. Without the build tag, the queries are compared with the documented metrics.
package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	// rulesFile is what the rules' tests call it.
	rulesFile = "rules.rules.yaml"

	// panelTimeout is how long the panels may take to show something: a few scrapes.
	panelTimeout = time.Minute
)

// programPath returns the path of a program of the package.
func programPath(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("there is no %s on the PATH; on Debian and Ubuntu \"apt-get install prometheus\" brings it", name)
	}
	return path
}

// writeRules takes the rules out of the PrometheusRule, into the form that Prometheus reads, and returns the path.
func writeRules(t *testing.T, folder string) string {
	t.Helper()
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "components", "prometheus", "rules.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.Unmarshal(content, &object)).To(Succeed())
	rules, err := yaml.Marshal(object.Spec)
	g.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(folder, rulesFile)
	g.Expect(os.WriteFile(path, rules, 0o600)).To(Succeed())
	return path
}

// TestPrometheusRules runs the tests of the rules.
func TestPrometheusRules(t *testing.T) {
	tests, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "components", "prometheus", "rules_test.yaml"))
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	folder := t.TempDir()
	writeRules(t, folder)
	g.Expect(os.WriteFile(filepath.Join(folder, "rules_test.yaml"), tests, 0o600)).To(Succeed())
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", "rules_test.yaml"}} {
		command := exec.CommandContext(t.Context(), programPath(t, "promtool"), args...)
		command.Dir = folder
		output, err := command.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), "%v: %s", args, output)
	}
}

// configuration is Prometheus': what the ServiceMonitor asks for, only oftener.
const configuration = `global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - job_name: tocsin-metrics
    honor_labels: true
    static_configs: [%s]
`

// TestPrometheusDashboard puts a manager and an archiver under load and asks Prometheus what the panels would ask, what the
// documents tell users to ask, and for the series that the rules are about.
func TestPrometheusDashboard(t *testing.T) {
	r := startRig(t)
	panels := readPanels(r.Rig)
	for page, queries := range documentedQueries(t) {
		for _, query := range queries {
			if page != stateMetricsPage {
				panels = append(panels, panelOf(page, query))
			}
		}
	}
	for _, query := range selectors(t) {
		panels = append(panels, panelOf("the rules", query))
	}
	ctx, stop := context.WithCancel(r.Context)
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		r.load(ctx)
	}()
	t.Cleanup(func() { stop(); <-loaded })
	prometheus := startPrometheus(r.Rig, writeRules(t, r.Folder), r.manager.MetricsURL, r.archiver.MetricsURL)
	awaitPanels(r.Rig, prometheus, panels)
	checkRules(r.Rig, prometheus)
	t.Logf("%d queries show something and all rules are evaluated", len(panels))
}

// TestNoRuleFiresOnADefaultInstallation runs the rules on a manager with the defaults of its Deployment and without senders.
func TestNoRuleFiresOnADefaultInstallation(t *testing.T) {
	r := testenv.NewRig(t, testenv.Program("manager"))
	manager := r.Manager("manager", testenv.ManagerOptions{Args: testenv.Elect})
	prometheus := startPrometheus(r, writeRules(t, r.Folder), manager.MetricsURL)
	awaitPanels(r, prometheus, []panel{panelOf("a leader", `leader_election_master_status{name="manager.tocsin.dev"} == 1`)})
	r.Await(panelTimeout, func(ctx context.Context) error {
		for _, rule := range readStates(ctx, r, prometheus) {
			if rule.Health != "ok" || rule.State != "inactive" {
				return fmt.Errorf("the alert %s is %s: %s", rule.Name, rule.State, rule.LastError)
			}
		}
		return nil
	})
}

// panel is one of the dashboard's.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

// panelOf returns a query as a panel.
func panelOf(title, query string) panel {
	return panel{Title: title, Targets: []struct{ Expr string }{{query}}}
}

// readPanels reads the dashboard's panels, with values in the place of Grafana's variables.
func readPanels(r *testenv.Rig) (panels []panel) {
	content, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "components", "grafana", "tocsin.json"))
	r.Must(err)
	var dashboard struct{ Panels []panel }
	r.Must(json.Unmarshal(content, &dashboard))
	variables := strings.NewReplacer("$__rate_interval", "10s", "$namespace", ".+", "$integration", ".+")
	for _, p := range dashboard.Panels {
		for i := range p.Targets {
			p.Targets[i].Expr = variables.Replace(p.Targets[i].Expr)
		}
		if len(p.Targets) > 0 { // others are rows
			panels = append(panels, p)
		}
	}
	return panels
}

// startPrometheus starts a Prometheus that scrapes these, and returns where it answers.
func startPrometheus(r *testenv.Rig, rules string, metricsURLs ...string) string {
	targets := make([]string, len(metricsURLs))
	for i, metricsURL := range metricsURLs {
		target, err := url.Parse(metricsURL)
		r.Must(err)
		targets[i] = fmt.Sprintf("{targets: [%q], labels: {pod: tocsin-%d}}", target.Host, i)
	}
	address := r.Addresses(1)[0]
	r.Start(r.Prometheus(programPath(r.T, "prometheus"), address, fmt.Sprintf(configuration, rules, strings.Join(targets, ", "))))
	return "http://" + address
}

// awaitPanels waits until every query of every panel returns a value.
func awaitPanels(r *testenv.Rig, prometheus string, panels []panel) {
	r.Await(panelTimeout, func(ctx context.Context) error {
		var empty []string
		for _, panel := range panels {
			for _, target := range panel.Targets {
				if shows, err := shows(ctx, prometheus, target.Expr); !shows {
					empty = append(empty, fmt.Sprintf("  %s: %s (%v)", panel.Title, target.Expr, err))
				}
			}
		}
		if len(empty) == 0 {
			return nil
		}
		return fmt.Errorf("these panels show nothing:\n%s", strings.Join(empty, "\n"))
	})
}

// shows tells whether a query returns a series with a number.
func shows(ctx context.Context, prometheus, query string) (bool, error) {
	var answer struct {
		Result []struct{ Value [2]any }
	}
	if err := get(ctx, prometheus+"/api/v1/query?query="+url.QueryEscape(query), &answer); err != nil {
		return false, err
	}
	for _, series := range answer.Result {
		text, _ := series.Value[1].(string)
		if value, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(value) {
			return true, nil
		}
	}
	return false, nil
}

// ruleState is an alerting rule as Prometheus evaluates it.
type ruleState struct {
	Name, Health, LastError, State string
	Labels                         map[string]string
}

// readStates returns the states of all rules.
func readStates(ctx context.Context, r *testenv.Rig, prometheus string) (states []ruleState) {
	var answer struct{ Groups []struct{ Rules []ruleState } }
	r.Must(get(ctx, prometheus+"/api/v1/rules", &answer))
	for _, group := range answer.Groups {
		states = append(states, group.Rules...)
	}
	if len(states) == 0 {
		r.T.Error("Prometheus has no rules")
	}
	return states
}

// checkRules makes sure that all rules can be evaluated, and that no critical alert is on its way but that for unwanted.
func checkRules(r *testenv.Rig, prometheus string) {
	for _, rule := range readStates(r.Context, r, prometheus) {
		if rule.Health != "ok" {
			r.T.Errorf("the rule %s is %s: %s", rule.Name, rule.Health, rule.LastError)
		}
		if rule.Labels["severity"] == "critical" && rule.State != "inactive" &&
			rule.Name != "TocsinForwardingFailing" && rule.Name != "TocsinCriticalUntold" {
			r.T.Errorf("the alert %s is %s, and all is well", rule.Name, rule.State)
		}
	}
}

// get asks Prometheus' API.
func get(ctx context.Context, url string, data any) error {
	_, text, err := testenv.Send(ctx, http.MethodGet, url, "")
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", url, answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}
