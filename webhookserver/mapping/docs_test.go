package mapping_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

func TestTheExampleOfTheGuide(t *testing.T) {
	g := NewWithT(t)
	guide, err := os.ReadFile("../../docs/mapping.md")
	g.Expect(err).NotTo(HaveOccurred())
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(guide, -1)
	g.Expect(examples).To(HaveLen(3))
	var programs []*mapping.Program
	for _, example := range examples {
		integration := v1alpha1.WebhookIntegration{}
		g.Expect(yaml.UnmarshalStrict(example[1], &integration)).To(Succeed())
		program, err := mapping.Compile(integration.Spec.Preset, integration.Spec.Mapping)
		g.Expect(err).NotTo(HaveOccurred())
		programs = append(programs, program)
	}
	body := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(guide)[1]
	result := readBody(t, programs[1], string(body), http.Header{})
	g.Expect(result.Alerts).To(HaveLen(2))
	g.Expect(result.Alerts[0].Title).To(Equal("Backup of db-1 failed"))
	g.Expect(result.Alerts[0].DedupKey).To(Equal("backup/db-1"))
	g.Expect(result.Alerts[0].Status).To(Equal(v1alpha1.AlertFiring))
	g.Expect(result.Alerts[0].Custom).To(HaveKeyWithValue("attempt", json.RawMessage("3")))
	g.Expect(result.Alerts[1].Dropped).To(BeTrue())
}

// guideExample is a worked example of the guide: a mapping, or a preset and a mapping, a payload and its alerts.
var guideExample = regexp.MustCompile("(?s)```yaml mapping\n(.*?)```\n+```json payload\n(.*?)```\n+(?:```http headers\n(.*?)```\n+)?```yaml alerts\n(.*?)```")

func TestTheWorkedExamplesOfTheGuide(t *testing.T) {
	g := NewWithT(t)
	guide, err := os.ReadFile("../../docs/mapping.md")
	g.Expect(err).NotTo(HaveOccurred())
	examples := guideExample.FindAllSubmatch(guide, -1)
	g.Expect(examples).To(HaveLen(5))
	for _, example := range examples {
		var spec struct {
			Preset  string                 `json:"preset"`
			Mapping *v1alpha1.Mapping      `json:"mapping"`
			Alerts  v1alpha1.Expression    `json:"alerts"`
			Drop    v1alpha1.Expression    `json:"drop"`
			Fields  v1alpha1.MappingFields `json:"fields"`
		}
		g.Expect(yaml.UnmarshalStrict(example[1], &spec)).To(Succeed())
		own := spec.Mapping
		if own == nil {
			own = &v1alpha1.Mapping{Alerts: spec.Alerts, Drop: spec.Drop, Fields: spec.Fields}
		}
		program, err := mapping.Compile(spec.Preset, own)
		g.Expect(err).NotTo(HaveOccurred())
		headers := http.Header{}
		if name, value, found := strings.Cut(strings.TrimSpace(string(example[3])), ": "); found {
			headers.Set(name, value)
		}
		result := readBody(t, program, string(example[2]), headers)
		g.Expect(result.Warnings).To(BeEmpty())
		var alerts []map[string]any
		g.Expect(yaml.Unmarshal(example[4], &alerts)).To(Succeed())
		g.Expect(differences(result.Alerts, alerts)).To(BeEmpty())
	}
}
