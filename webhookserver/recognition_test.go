package webhookserver

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// TestWhoseFormatIsRead posts Alertmanager's body to integrations with and without presets.
func TestWhoseFormatIsRead(t *testing.T) {
	const group = `{"receiver": "a", "status": "resolved", "groupKey": "g", "groupLabels": {}, "alerts": [{"status": "resolved",
		"labels": {"alertname": "DiskFull"}, "fingerprint": "791cec13fcba0368"}]}`
	for sentence, test := range map[string]struct {
		preset  string
		mapping *v1alpha1.Mapping
		key     string
	}{
		"without a preset, what is recognized is read by its preset": {key: "alertmanager/791cec13fcba0368"},
		"auto is the default":                        {preset: "auto", key: "alertmanager/791cec13fcba0368"},
		"a preset has its own keys":                  {preset: "alertmanager", key: "791cec13fcba0368"},
		"none reads by the payload rules":            {preset: "none"},
		"a mapping says how all payloads are read":   {mapping: &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Region: `"eu"`}}},
		"a preset of another version is not refused": {preset: "from-tomorrow", key: "alertmanager/791cec13fcba0368"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			alerts, _, code := answerTo(t, test.preset, test.mapping, testPath, group)
			g.Expect(code).To(Equal(http.StatusAccepted))
			g.Expect(alerts).To(HaveLen(1))
			if test.key == "" {
				g.Expect(alerts[0].Custom).To(HaveKey("groupLabels"))
				g.Expect(v1alpha1.IsGeneratedKey(alerts[0].DedupKey)).To(BeTrue())
				return
			}
			g.Expect(alerts[0].DedupKey).To(Equal(test.key))
			g.Expect(alerts[0].Status).To(Equal(v1alpha1.AlertResolved))
		})
	}
}

// TestWhatRecognitionDropsIsToldOf posts a heartbeat of Policy Reporter.
func TestWhatRecognitionDropsIsToldOf(t *testing.T) {
	const heartbeat = `{"event": "heartbeat", "time": "2026-03-01T11:53:00Z", "cluster": "prod-1"}`
	g := NewWithT(t)
	alerts, answer, code := answerTo(t, "", nil, testPath, heartbeat)
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(alerts).To(BeEmpty())
	g.Expect(answer.Warnings).To(ConsistOf(HaveField("Detail", ContainSubstring("policy-reporter"))))
	_, answer, _ = answerTo(t, "policy-reporter", nil, testPath, heartbeat)
	g.Expect(answer.Warnings).To(BeEmpty(), "the preset was chosen")
}

// TestParametersDoNotHideTheTool sends the recovery of a tool with defaults that would mark Tocsin's own format.
func TestParametersDoNotHideTheTool(t *testing.T) {
	const up = `{"heartbeat": {"monitorID": 7, "status": 1, "msg": "200 - OK"}, "monitor": {"id": 7}, "msg": "[shop] Up"}`
	g := NewWithT(t)
	alerts, answer, code := answerTo(t, "", nil, testPath+"?dedup_key=shop&severity=error&title=Shop", up)
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(answer.Preset).To(Equal("uptime-kuma"))
	g.Expect(alerts).To(HaveExactElements(And(
		HaveField("DedupKey", "uptime-kuma/7"), HaveField("Status", v1alpha1.AlertResolved), HaveField("Title", "Shop"))))
}
