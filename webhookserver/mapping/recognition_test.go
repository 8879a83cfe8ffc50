package mapping_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// TestEverySampleIsRecognized reads every sample of every preset with the preset auto: it becomes the same alerts as
// with its own, but for the preset's name before the keys.
func TestEverySampleIsRecognized(t *testing.T) {
	g := NewWithT(t)
	presets, err := mapping.Presets()
	g.Expect(err).NotTo(HaveOccurred())
	auto, err := mapping.Compile(mapping.Auto, nil)
	g.Expect(err).NotTo(HaveOccurred())
	for _, preset := range presets {
		t.Run(preset.Name, func(t *testing.T) {
			g := NewWithT(t)
			program, err := mapping.Compile(preset.Name, nil)
			g.Expect(err).NotTo(HaveOccurred())
			for _, name := range sampleCases(t, preset.Name) {
				sample := preset.Name + "." + name
				own, recognized := readSample(t, program, sample), readSample(t, auto, sample)
				g.Expect(recognized.Preset).To(Equal(preset.Name), "%s: %v", sample, recognized.Warnings)
				g.Expect(recognized.Warnings).To(Equal(own.Warnings), sample)
				g.Expect(recognized.Alerts).To(HaveLen(len(own.Alerts)), sample)
				for i := range own.Alerts {
					expected := own.Alerts[i].Alert
					expected.Preset = preset.Name // the forwarding goes by it
					if key := own.Alerts[i].DedupKey; recognized.Alerts[i].DedupKey != key {
						expected.DedupKey = preset.Name + "/" + key
					}
					g.Expect(recognized.Alerts[i].Alert).To(Equal(expected), sample)
				}
				if name == "firing" {
					g.Expect(recognized.Alerts[0].DedupKey).To(HavePrefix(preset.Name+"/"), sample)
				}
			}
		})
	}
}

// TestAutoOnPayloadsWithoutAPreset covers payloads that no preset recognizes, or more than one.
func TestAutoOnPayloadsWithoutAPreset(t *testing.T) {
	auto, err := mapping.Compile(mapping.Auto, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, body := range map[string]string{
		"no preset recognizes the payload":        `{"title": "Disk full", "status": "resolved", "dedup_key": "a"}`,
		"more than one preset recognizes the pay": `{"title": "Disk full", "status": "resolved", "dedup_key": "a", "heartbeat": null, "monitor": null, "msg": "", "event_action": "resolve", "routing_key": ""}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			result := readBody(t, auto, body, nil)
			g.Expect(result.Preset).To(BeEmpty())
			g.Expect(result.Warnings).To(HaveLen(1))
			g.Expect(result.Warnings[0].Detail).To(ContainSubstring(name))
			g.Expect(result.Alerts[0].Title).To(Equal("Disk full"))
			g.Expect(result.Alerts[0].DedupKey).To(Equal("a"), "as without a preset")
			g.Expect(result.Alerts[0].Alert.Preset).To(BeEmpty())
			g.Expect(result.Alerts[0].Status).To(BeEquivalentTo("resolved"))
		})
	}
}

// TestAutoKeepsToolsApart resolves the alert of one tool with the same key as that of another.
func TestAutoKeepsToolsApart(t *testing.T) {
	g := NewWithT(t)
	auto, err := mapping.Compile(mapping.Auto, nil)
	g.Expect(err).NotTo(HaveOccurred())
	key := func(body string) string { return readBody(t, auto, body, nil).Alerts[0].DedupKey }
	g.Expect(key(`{"event_action": "resolve", "routing_key": "", "dedup_key": "17"}`)).To(Equal("pagerduty/17"))
	g.Expect(key(`{"check_id": 17, "check_params": {}, "current_state": "UP", "check_name": ""}`)).To(Equal("pingdom/17"))
	g.Expect(key(`{"event_action": "resolve", "routing_key": "", "dedup_key": "pagerduty/17"}`)).To(Equal("pagerduty/17"),
		"a sender that repeats the key of the answer")
	g.Expect(key(`{"status": "resolved", "dedup_key": "pingdom/17"}`)).To(Equal("pingdom/17"), "resolved by hand")
}

// TestAMappingOverridesWhatAutoChooses overrides one field of whichever preset recognizes the payload.
func TestAMappingOverridesWhatAutoChooses(t *testing.T) {
	g := NewWithT(t)
	program, err := mapping.Compile(mapping.Auto, parsed(t, `{fields: {region: "'eu'", dedupKey: "'own'"}}`))
	g.Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{"zabbix.firing", "grafana.firing"} {
		alert := readSample(t, program, name).Alerts[0]
		g.Expect(alert.Region).To(Equal("eu"))
		g.Expect(alert.DedupKey).To(Equal("own"), "the integration's own key has no prefix")
		g.Expect(alert.Title).NotTo(BeEmpty())
		for _, source := range alert.Sources() {
			g.Expect(source.Preset == "").To(Equal(source.Field == "region" || source.Field == "dedup_key" || source.Expression == ""))
		}
	}
}

// BenchmarkRecognitionHostile recognizes a payload that has every path that any preset asks for, with 256 KiB of text
// at each.
func BenchmarkRecognitionHostile(b *testing.B) {
	body := hostileToRecognize(b)
	auto, err := mapping.Compile(mapping.Auto, nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		mapping.Recognize(auto, body, received)
	}
}

// TestRecognitionIsBounded checks the work for the same payload.
func TestRecognitionIsBounded(t *testing.T) {
	g := NewWithT(t)
	auto, err := mapping.Compile(mapping.Auto, nil)
	g.Expect(err).NotTo(HaveOccurred())
	body := hostileToRecognize(t)
	work := mapping.Recognize(auto, body, received)
	t.Logf("work %d", work)
	g.Expect(work).To(BeNumerically(">", 0), "conditions are evaluated")
	g.Expect(work).To(BeNumerically("<=", mapping.MaxRecognitionWork))
}

// hostileToRecognize returns an object that has all paths that rules ask for.
func hostileToRecognize(tb testing.TB) any {
	tb.Helper()
	presets, err := mapping.Presets()
	if err != nil {
		tb.Fatal(err)
	}
	body := map[string]any{}
	for _, preset := range presets {
		for _, rule := range preset.Recognition {
			for _, path := range rule.Has {
				put(body, strings.Split(path, "."))
			}
		}
	}
	text := strings.Repeat("/TRIGGERED: a", bodyLimit/13)
	for key, value := range body {
		if value == nil {
			body[key] = text
		}
	}
	return body
}

// put puts a path of objects, and lists of one element, into an object.
func put(object map[string]any, steps []string) {
	if len(steps) == 1 {
		if _, taken := object[steps[0]]; !taken {
			object[steps[0]] = nil
		}
		return
	}
	inner, _ := object[steps[0]].(map[string]any)
	if inner == nil {
		inner = map[string]any{}
		object[steps[0]] = inner
	}
	put(inner, steps[1:])
}
