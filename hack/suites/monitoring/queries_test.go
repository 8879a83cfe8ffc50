package monitoring

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// histogramParts are what the series of a histogram end in.
var histogramParts = regexp.MustCompile(`_(bucket|sum|count)$`)

// promqlBlock is a query in a document.
var promqlBlock = regexp.MustCompile("(?s)```promql\n(.*?)```")

// metricHeading and metricLabels find the metrics in docs/metrics.md, which is written from the registry.
var (
	metricHeading = regexp.MustCompile(`(?m)^## (\S+)\n\n(Counter|Gauge|Histogram)(?: of the archiver)?(?: by (.*))?\.$`)
	metricLabel   = regexp.MustCompile("`(\\w+)`")
)

// othersMetrics are those of the libraries, with the labels that are used of them. That there are such series,
// "make test-monitoring" finds out.
var othersMetrics = map[string][]string{
	"leader_election_master_status": {"name"},
	"rest_client_requests_total":    {"code"},
	"process_resident_memory_bytes": nil,
	"process_cpu_seconds_total":     nil,
	"go_goroutines":                 nil,
}

// targetLabels are those that Prometheus adds.
var targetLabels = []string{"instance", "pod", model.MetricNameLabel}

// readMetrics returns the labels of each metric in the registry, histograms by the names of their series.
func readMetrics(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "metrics.md"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	metrics := maps.Clone(othersMetrics)
	for _, match := range metricHeading.FindAllStringSubmatch(string(page), -1) {
		var names []string
		for _, label := range metricLabel.FindAllStringSubmatch(match[3], -1) {
			names = append(names, label[1])
		}
		if match[2] != "Histogram" {
			metrics[match[1]] = names
			continue
		}
		metrics[match[1]+"_bucket"] = append(slices.Clone(names), "le")
		metrics[match[1]+"_sum"], metrics[match[1]+"_count"] = names, names
	}
	return metrics
}

// checkQuery makes sure that a query is PromQL, and that there are the metrics and the labels that it is about.
// It returns the metrics.
func checkQuery(t *testing.T, metrics map[string][]string, query string) []string {
	t.Helper()
	g := NewWithT(t)
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	g.Expect(err).NotTo(HaveOccurred(), query)
	var used, allowed []string
	for _, matchers := range parser.ExtractSelectors(expression) {
		name := ""
		for _, matcher := range matchers {
			if matcher.Name == model.MetricNameLabel {
				name = matcher.Value
			}
		}
		g.Expect(metrics).To(HaveKey(name), query)
		used = append(used, name)
		for _, matcher := range matchers {
			g.Expect(append(metrics[name], targetLabels...)).To(ContainElement(matcher.Name), query)
		}
		allowed = append(allowed, metrics[name]...)
	}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if aggregate, ok := node.(*parser.AggregateExpr); ok {
			for _, label := range aggregate.Grouping {
				g.Expect(allowed).To(ContainElement(label), query)
			}
		}
		return nil
	})
	return used
}

// stateMetricsPage is the document whose queries are about the metrics of kube-state-metrics.
const stateMetricsPage = "kube-state-metrics.md"

// documentedQueries returns the queries of the documents, by the name of the page.
func documentedQueries(t *testing.T) map[string][]string {
	t.Helper()
	g := NewWithT(t)
	queries := map[string][]string{}
	err := filepath.WalkDir(filepath.Join(testenv.Root(), "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, block := range promqlBlock.FindAllStringSubmatch(string(text), -1) {
			queries[filepath.Base(path)] = append(queries[filepath.Base(path)], block[1])
		}
		return err
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(queries).To(And(HaveKey(stateMetricsPage), HaveKey("paging.md"), HaveKey("TocsinFoldLagHigh.md")))
	return queries
}

func TestDocumentedQueries(t *testing.T) {
	metrics := readMetrics(t)
	for page, queries := range documentedQueries(t) {
		for _, query := range queries {
			if page != stateMetricsPage {
				checkQuery(t, metrics, query)
			}
		}
	}
}

// selectors returns the series that the rules are about, as queries.
func selectors(t *testing.T) (queries []string) {
	t.Helper()
	for _, rule := range readRules(t) {
		expression, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), rule.Alert)
		parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
			if selector, ok := node.(*parser.VectorSelector); ok {
				queries = append(queries, selector.String())
			}
			return nil
		})
	}
	return queries
}

func TestDashboard(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "components", "grafana", "tocsin.json"))
	g.Expect(err).NotTo(HaveOccurred())
	var dashboard struct {
		UID    string
		Panels []struct {
			ID                       int
			Type, Title, Description string
			Targets                  []struct{ Expr, LegendFormat string }
			GridPos                  struct{ X, Y, W, H int }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	g.Expect(json.Unmarshal(content, &dashboard)).To(Succeed())
	g.Expect(dashboard.UID).To(Equal("tocsin"))
	metrics := readMetrics(t)
	ids, shown := map[int]bool{}, map[string]bool{}
	for _, panel := range dashboard.Panels {
		g.Expect(ids).NotTo(HaveKey(panel.ID))
		ids[panel.ID] = true
		g.Expect(panel.GridPos.X+panel.GridPos.W).To(BeNumerically("<=", 24), panel.Title)
		if panel.Type == "row" {
			continue
		}
		g.Expect(panel.Description).NotTo(BeEmpty(), panel.Title)
		g.Expect(panel.Targets).NotTo(BeEmpty(), panel.Title)
		for _, target := range panel.Targets {
			for _, name := range checkQuery(t, metrics, withoutVariables(target.Expr)) {
				shown[histogramParts.ReplaceAllString(name, "")] = true
			}
		}
	}
	for name := range metrics {
		g.Expect(shown).To(HaveKey(histogramParts.ReplaceAllString(name, "")), "every metric is on the dashboard")
	}
	for _, variable := range dashboard.Templating.List {
		if variable.Type == "query" {
			selector := regexp.MustCompile(`^label_values\((.*), \w+\)$`).FindStringSubmatch(variable.Definition)
			g.Expect(selector).NotTo(BeNil(), variable.Definition)
			checkQuery(t, metrics, withoutVariables(selector[1]))
		}
	}
}

// withoutVariables puts values in the place of Grafana's variables.
func withoutVariables(query string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".+", "$integration", ".+").Replace(query)
}

// alertingRule is a rule of the PrometheusRule.
type alertingRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// readRules returns the rules of the component prometheus.
func readRules(t *testing.T) []alertingRule {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "components", "prometheus", "rules.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var object struct {
		Spec struct {
			Groups []struct{ Rules []alertingRule }
		}
	}
	g.Expect(yaml.Unmarshal(content, &object)).To(Succeed())
	var rules []alertingRule
	for _, group := range object.Spec.Groups {
		rules = append(rules, group.Rules...)
	}
	g.Expect(rules).NotTo(BeEmpty())
	return rules
}

func TestAlertingRules(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(testenv.Root(), "config", "components", "prometheus", "rules_test.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var suite struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	g.Expect(yaml.Unmarshal(content, &suite)).To(Succeed())
	firing, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range suite.Tests {
		for _, check := range test.AlertRuleTest {
			firing[check.Alertname] = firing[check.Alertname] || len(check.ExpAlerts) > 0
			quiet[check.Alertname] = quiet[check.Alertname] || len(check.ExpAlerts) == 0
		}
	}
	index, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "runbooks", "README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	metrics := readMetrics(t)
	for _, rule := range readRules(t) {
		t.Run(rule.Alert, func(t *testing.T) {
			g := NewWithT(t)
			checkQuery(t, metrics, rule.Expr)
			g.Expect(rule.For).NotTo(BeEmpty())
			g.Expect(rule.Labels["severity"]).To(BeElementOf("critical", "warning", "info"))
			g.Expect(rule.Annotations).To(And(HaveKey("summary"), HaveKey("description")))
			g.Expect(firing[rule.Alert]).To(BeTrue(), "it is tested that it fires")
			g.Expect(quiet[rule.Alert]).To(BeTrue(), "it is tested that it does not fire")

			page := "docs/runbooks/" + rule.Alert + ".md"
			g.Expect(rule.Annotations["runbook_url"]).To(Equal("https://github.com/tocsin-dev/tocsin/blob/main/" + page))
			runbook, err := os.ReadFile(filepath.Join(testenv.Root(), page))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(runbook)).To(HavePrefix("# " + rule.Alert + "\n"))
			for _, heading := range []string{"\n**Who is told:** ", "\n## What to look at\n", "\n## What to do\n"} {
				g.Expect(string(runbook)).To(ContainSubstring(heading))
			}
			g.Expect(string(index)).To(ContainSubstring("[" + rule.Alert + "](" + rule.Alert + ".md)"))
		})
	}
}
