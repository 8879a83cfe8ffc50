package mapping_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// compiled compiles a mapping that is written as in a manifest.
func compiled(t testing.TB, text string) *mapping.Program {
	t.Helper()
	m := &v1alpha1.Mapping{}
	if err := yaml.UnmarshalStrict([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	program, err := mapping.Compile("", m)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func TestProgramReadsAListOfAlerts(t *testing.T) {
	g := NewWithT(t)
	program := compiled(t, `
alerts: payload.alerts
fields:
  title: firstNonEmpty([alert.?annotations.?summary, alert.labels.alertname])
  severity: alert.?labels.?severity
  dedupKey: alert.fingerprint
  link: alert.?generatorURL
`)
	result := readBody(t, program, `{
"version": "4", "status": "firing", "receiver": "tocsin", "groupLabels": {"alertname": "HighLoad"},
"alerts": [
  {"status": "firing", "labels": {"alertname": "HighLoad", "severity": "critical"}, "annotations": {"summary": "Load is high"},
   "fingerprint": "abc", "startsAt": "2026-05-04T11:00:00Z", "value": 12345678901234567890},
  {"status": "resolved", "labels": {"alertname": "HighLoad"}, "fingerprint": "def"}
]}`, nil)
	g.Expect(result.Warnings).To(BeEmpty())
	g.Expect(differences(result.Alerts, []map[string]any{
		{"title": "Load is high", "severity": "critical", "dedupKey": "abc", "status": "firing",
			"labels":   map[string]any{"alertname": "HighLoad"},
			"custom":   map[string]any{"receiver": "tocsin", "version": "4", "payload_status": "firing", "value": "12345678901234567890"},
			"warnings": []any{"value"}},
		{"title": "HighLoad", "status": "resolved", "dedupKey": "def", "absent": []any{"severity"}},
	})).To(BeEmpty())
}
