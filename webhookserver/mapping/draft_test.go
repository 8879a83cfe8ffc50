package mapping_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// TestADraftIsReadAsAPreset reads a preset that ships with Tocsin as one that somebody is writing, under another name.
func TestADraftIsReadAsAPreset(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join("presets", "buildkite.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	preset, err := mapping.UseDraft(append([]byte("name: my-ci\n"), text[len("name: buildkite\n"):]...))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(preset.Name).To(Equal("my-ci"))
	program, err := mapping.Compile("my-ci", nil)
	g.Expect(err).NotTo(HaveOccurred())
	shipped, err := mapping.Compile("buildkite", nil)
	g.Expect(err).NotTo(HaveOccurred())
	for _, sample := range []string{"buildkite.firing", "buildkite.resolved", "buildkite.job"} {
		read, expected := readSample(t, program, sample).Alerts[0], readSample(t, shipped, sample).Alerts[0]
		g.Expect(read.Preset).To(Equal("my-ci"))
		read.Preset = expected.Preset
		g.Expect(read.Alert).To(Equal(expected.Alert), sample)
		g.Expect(read.Dropped).To(Equal(expected.Dropped), sample)
	}
	g.Expect(mapping.PresetNames()).NotTo(ContainElement("my-ci"))
}

func TestADraftWithMistakes(t *testing.T) {
	for text, message := range map[string]string{
		"name: a\nmappings: {}": "unknown field",
		"title: A":              "cannot be \"\"",
		"name: auto":            "cannot be \"auto\"",
		"name: a\nmapping: {fields: {title: alert.+}}":   "spec.mapping.fields.title",
		"name: a\nrecognition: [{has: [x], where: '1'}]": "recognition[0].where",
	} {
		_, err := mapping.UseDraft([]byte(text))
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(message)), text)
	}
}

// TestTheGuideToPresets reads the example of docs/presets.md, and its recovery.
func TestTheGuideToPresets(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../docs/presets.md")
	g.Expect(err).NotTo(HaveOccurred())
	page := string(text)
	preset, err := mapping.UseDraft([]byte(labelled(t, page, "preset")))
	g.Expect(err).NotTo(HaveOccurred())
	program, err := mapping.Compile(preset.Name, nil)
	g.Expect(err).NotTo(HaveOccurred())
	var alerts []map[string]any
	g.Expect(yaml.Unmarshal([]byte(labelled(t, page, "alerts")), &alerts)).To(Succeed())
	payload := labelled(t, page, "payload")
	result := readBody(t, program, payload, nil)
	g.Expect(differences(result.Alerts, alerts)).To(BeEmpty())
	done := readBody(t, program, strings.Replace(payload, "FAILED", "DONE", 1), nil).Alerts[0]
	g.Expect(done.Status).To(Equal(v1alpha1.AlertResolved))
	g.Expect(done.DedupKey).To(Equal("17"))
	own := readBody(t, program, `{"status": "resolved", "dedup_key": "17", "title": "a"}`, nil).Alerts[0]
	g.Expect(own.Status).To(Equal(v1alpha1.AlertResolved))
	g.Expect(own.Title).To(Equal("a"))
}

// TestEveryPresetSaysWhatWasChecked compares the table in presets/README.md with the presets.
func TestEveryPresetSaysWhatWasChecked(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile("presets/README.md")
	g.Expect(err).NotTo(HaveOccurred())
	_, table, found := strings.Cut(string(page), "## What was checked")
	g.Expect(found).To(BeTrue())
	rows := regexp.MustCompile("(?m)^\\| (`[^|]+`) \\| [^|]+ \\| [^|]+ \\| 20\\d\\d-\\d\\d-\\d\\d \\|$").FindAllStringSubmatch(table, -1)
	var names []string
	for _, row := range rows {
		for name := range strings.SplitSeq(row[1], ", ") {
			names = append(names, strings.Trim(name, "`"))
		}
	}
	g.Expect(names).To(ConsistOf(presetNames(t)))
}
