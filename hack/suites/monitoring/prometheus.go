package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

const (
	// rulesFile is what the rules' tests call it.
	rulesFile = "rules.rules.yaml"

	// panelTimeout is how long the panels may take to show something: a few scrapes.
	panelTimeout = time.Minute
)

// configuration is Prometheus': what the ServiceMonitor asks for, only oftener.
const configuration = `global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - job_name: tocsin-metrics
    honor_labels: true
    static_configs: [%s]
`

// testDashboard puts a manager and an archiver under load and asks Prometheus what the panels would ask.
func testDashboard(ctx context.Context, folder string) (err error) {
	start := time.Now()
	panels, err := readPanels()
	if err != nil {
		return err
	}
	c, err := startCluster(ctx, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		c.load(ctx)
	}()
	defer func() { stop(); <-loaded }()

	p, err := startPrometheus(folder, c.manager.MetricsURL, c.archiver.MetricsURL)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := p.awaitPanels(ctx, panels); err != nil {
		return err
	}
	if err := p.checkRules(ctx); err != nil {
		return err
	}
	fmt.Printf("monitoring: %d panels show something and all rules are evaluated, in %.0f s\n",
		len(panels), time.Since(start).Seconds())
	return nil
}

// panel is one of the dashboard's.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

// readPanels reads the dashboard's panels, with values in the place of Grafana's variables.
func readPanels() ([]panel, error) {
	content, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "components", "grafana", "tocsin.json"))
	if err != nil {
		return nil, err
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(content, &dashboard); err != nil {
		return nil, fmt.Errorf("reading the dashboard: %w", err)
	}
	variables := strings.NewReplacer("$__rate_interval", "10s", "$namespace", ".+", "$integration", ".+")
	var panels []panel
	for _, p := range dashboard.Panels {
		for i := range p.Targets {
			p.Targets[i].Expr = variables.Replace(p.Targets[i].Expr)
		}
		if len(p.Targets) > 0 { // others are rows
			panels = append(panels, p)
		}
	}
	return panels, nil
}

// prometheus is a running Prometheus.
type prometheus struct {
	url     string
	command *exec.Cmd
}

func startPrometheus(folder string, metricsURLs ...string) (*prometheus, error) {
	targets := make([]string, len(metricsURLs))
	for i, metricsURL := range metricsURLs {
		target, err := url.Parse(metricsURL)
		if err != nil {
			return nil, err
		}
		targets[i] = fmt.Sprintf("{targets: [%q], labels: {pod: tocsin-%d}}", target.Host, i)
	}
	config := filepath.Join(folder, "prometheus.yaml")
	rules := filepath.Join(folder, rulesFile)
	if err := os.WriteFile(config, fmt.Appendf(nil, configuration, rules, strings.Join(targets, ", ")), 0o600); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(folder, "prometheus.log"))
	if err != nil {
		return nil, err
	}
	command := exec.Command("prometheus", "--config.file="+config, "--web.listen-address="+address,
		"--storage.tsdb.path="+filepath.Join(folder, "data"))
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for this program to handle
	return &prometheus{url: "http://" + address, command: command}, command.Start()
}

func (p *prometheus) stop() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}

// awaitPanels waits until every query of every panel returns a value.
func (p *prometheus) awaitPanels(ctx context.Context, panels []panel) error {
	return testenv.Await(ctx, panelTimeout, func(ctx context.Context) error {
		var empty []string
		for _, panel := range panels {
			for _, target := range panel.Targets {
				if shows, err := p.shows(ctx, target.Expr); !shows {
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
func (p *prometheus) shows(ctx context.Context, query string) (bool, error) {
	var answer struct {
		Result []struct{ Value [2]any }
	}
	if err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(query), &answer); err != nil {
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

// checkRules makes sure that all rules can be evaluated, and that no critical alert is on its way.
func (p *prometheus) checkRules(ctx context.Context) error {
	var answer struct {
		Groups []struct {
			Rules []struct {
				Name, Health, LastError, State string
				Labels                         map[string]string
			}
		}
	}
	if err := p.get(ctx, "/api/v1/rules", &answer); err != nil {
		return err
	}
	var wrong []error
	for _, group := range answer.Groups {
		for _, rule := range group.Rules {
			if rule.Health != "ok" {
				wrong = append(wrong, fmt.Errorf("the rule %s is %s: %s", rule.Name, rule.Health, rule.LastError))
			}
			if rule.Labels["severity"] == "critical" && rule.State != "inactive" {
				wrong = append(wrong, fmt.Errorf("the alert %s is %s, and all is well", rule.Name, rule.State))
			}
		}
	}
	if len(answer.Groups) == 0 {
		wrong = append(wrong, errors.New("prometheus has no rules"))
	}
	return errors.Join(wrong...)
}

// get asks Prometheus' API.
func (p *prometheus) get(ctx context.Context, path string, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %w", response.Status, err)
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}
