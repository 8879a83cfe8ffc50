package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// stateMetric is what a metric of the file of kube-state-metrics takes from an object.
type stateMetric struct {
	Path, ValueFrom []string
	LabelsFromPath  map[string][]string
	LabelName       string
	List            []string
}

// stateMetrics are those of a kind.
type stateMetrics struct {
	GroupVersionKind struct{ Group, Version, Kind string }
	MetricNamePrefix string
	LabelsFromPath   map[string][]string
	Metrics          []struct {
		Name string
		Each struct{ Gauge, Info, StateSet *stateMetric }
	}
}

// pathKey is a path's step to the element of a list.
var pathKey = regexp.MustCompile(`^\[\w+=\w+\]$`)

// boundedLabels are labels whose schema has no limit of its own.
var boundedLabels = []string{"namespace", "incident", "integration", "condition"}

// schemaAt returns the schema of a field, by its path; nil if there is no such field.
func schemaAt(schema *apiextensionsv1.JSONSchemaProps, path []string) *apiextensionsv1.JSONSchemaProps {
	for _, step := range path {
		if schema.Items != nil {
			schema = schema.Items.Schema
		}
		if pathKey.MatchString(step) {
			continue
		}
		next, is := schema.Properties[step]
		if !is && path[0] != "metadata" {
			return nil
		}
		schema = &next
	}
	return schema
}

// TestKubeStateMetrics compares the file of kube-state-metrics with the schemas of the kinds, and with its page.
func TestKubeStateMetrics(t *testing.T) {
	g := NewWithT(t)
	root := testenv.Root()
	content, err := os.ReadFile(filepath.Join(root, "config", "kube-state-metrics", "custom_resource_state.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	var file struct {
		Spec struct{ Resources []stateMetrics }
	}
	g.Expect(yaml.Unmarshal(content, &file)).To(Succeed())
	metrics := map[string][]string{}
	for _, resource := range file.Spec.Resources {
		kind := resource.GroupVersionKind
		g.Expect(kind.Group + "/" + kind.Version).To(Equal("tocsin.dev/v1alpha1"))
		text, err := os.ReadFile(filepath.Join(root, "config", "crd", "bases", "tocsin.dev_"+strings.ToLower(kind.Kind)+"s.yaml"))
		g.Expect(err).NotTo(HaveOccurred())
		var crd apiextensionsv1.CustomResourceDefinition
		g.Expect(yaml.Unmarshal(text, &crd)).To(Succeed())
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		g.Expect(resource.Metrics).NotTo(BeEmpty())
		for _, m := range resource.Metrics {
			name := resource.MetricNamePrefix + "_" + m.Name
			labels := checkStateMetric(t, schema, name, m.Each.Gauge, m.Each.Info, m.Each.StateSet)
			for label := range resource.LabelsFromPath {
				labels = append(labels, label)
			}
			metrics[name] = labels
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "kube-state-metrics.md"))
	g.Expect(err).NotTo(HaveOccurred())
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(tocsin_\\w+)` \\|([^|]*)\\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, row[1])
		for _, label := range metricLabel.FindAllStringSubmatch(row[2], -1) {
			g.Expect(metrics[row[1]]).To(ContainElement(label[1]), row[1])
		}
	}
	var names []string
	for name := range metrics {
		names = append(names, name)
	}
	g.Expect(listed).To(ConsistOf(names))
	for _, query := range documentedQueries(t)[stateMetricsPage] {
		checkQuery(t, metrics, query)
	}
}

// checkStateMetric makes sure that a metric, whichever of these it is, is made of fields that exist, and that senders cannot
// choose its labels, which it returns.
func checkStateMetric(t *testing.T, schema *apiextensionsv1.JSONSchemaProps, name string, kinds ...*stateMetric) (labels []string) {
	t.Helper()
	g := NewWithT(t)
	at := slices.IndexFunc(kinds, func(m *stateMetric) bool { return m != nil })
	g.Expect(at).NotTo(Equal(-1), name)
	m := kinds[at]
	value := schemaAt(schema, append(slices.Clone(m.Path), m.ValueFrom...))
	g.Expect(value).NotTo(BeNil(), name)
	if m.LabelName != "" {
		labels = append(labels, m.LabelName)
		var states []string
		for _, state := range value.Enum {
			states = append(states, strings.Trim(string(state.Raw), `"`))
		}
		g.Expect(m.List).To(ConsistOf(states), name)
	}
	for label, path := range m.LabelsFromPath {
		labels = append(labels, label)
		field := schemaAt(schema, append(slices.Clone(m.Path), path...))
		g.Expect(field).NotTo(BeNil(), "%s: %s", name, label)
		token := label == "token" && *field.MaxLength <= 63 // the owner of the integration names it, and there are at most 8
		g.Expect(token || len(field.Enum) > 0 || slices.Contains(boundedLabels, label)).To(BeTrue(), "%s: %s", name, label)
	}
	return labels
}
