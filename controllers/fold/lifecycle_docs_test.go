package fold

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// yamlBlocks returns the YAML examples of a page.
func yamlBlocks(t *testing.T, path string) []string {
	t.Helper()
	page, err := os.ReadFile(path)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var blocks []string
	for _, part := range strings.Split(string(page), "```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, block)
	}
	return blocks
}

func TestTheWalkthroughOfTheDocs(t *testing.T) {
	g := NewWithT(t)
	blocks := yamlBlocks(t, "../../docs/lifecycle.md")
	g.Expect(blocks).To(HaveLen(4), "two of another example")
	var steps []struct {
		Received time.Time      `json:"received"`
		Alert    v1alpha1.Alert `json:"alert"`
		Becomes  string         `json:"becomes"`
	}
	g.Expect(yaml.UnmarshalStrict([]byte(blocks[0]), &steps)).To(Succeed())
	var want v1alpha1.IncidentStatus
	g.Expect(yaml.UnmarshalStrict([]byte(blocks[1]), &want)).To(Succeed())

	bench := newBench()
	bench.policy.LateFiringWindow = defaultLateFiringWindow
	for i, step := range steps {
		step.Alert.DedupKey, step.Alert.IncidentName = testKey, testName
		event := eventOf(i+1, step.Alert)
		event.Spec.ReceivedTime = v1alpha1.NewTimestamp(step.Received)
		event.CreationTimestamp = metav1.NewTime(step.Received)
		g.Expect(resultsOf(bench.fold(event))).To(Equal([]string{step.Becomes}))
	}
	got := bench.status().DeepCopy()
	got.Ledger = v1alpha1.Ledger{}
	wantYAML, err := yaml.Marshal(want)
	g.Expect(err).NotTo(HaveOccurred())
	gotYAML, err := yaml.Marshal(got)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(gotYAML)).To(Equal(string(wantYAML)))
}
