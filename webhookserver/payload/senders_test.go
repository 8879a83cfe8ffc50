package payload_test

import (
	"testing"

	. "github.com/onsi/gomega"
)

// Every payload of a monitoring tool gives an alert, and nothing that the tool sent is lost.
func TestSendersArePayloads(t *testing.T) {
	for name, body := range senderFiles(t) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			alert, warnings := read(t, body)
			g.Expect(warnings).To(BeEmpty())
			if name != "generic-resolved.json" {
				g.Expect(alert.Title + alert.Description + string(encode(t, alert.Custom))).NotTo(Equal("null"))
			}
		})
	}
}

func TestSendersOfOurOwnVocabulary(t *testing.T) {
	files := senderFiles(t)
	check(t, map[string]example{
		"the firing payload": {
			payload: files["generic-firing.json"],
			alert: `{"status":"firing","dedupKey":"cpu-alert-prod-1","title":"High CPU Usage",
				"description":"CPU usage exceeded 90% for 5 minutes","severity":"critical","hostname":"web-01.prod",
				"labels":{"env":"production","service":"api"},"startTime":"2024-01-15T10:30:00.000000Z"}`,
		},
		"the resolved payload": {
			payload: files["generic-resolved.json"],
			alert:   `{"status":"resolved","dedupKey":"cpu-alert-prod-1"}`,
		},
	})
}

func TestSendersThatShareSomeFields(t *testing.T) {
	g := NewWithT(t)
	files := senderFiles(t)

	grafana, _ := read(t, files["grafana.json"])
	g.Expect(grafana.Title).To(Equal("[FIRING:2]  (blue)"))
	g.Expect(grafana.Description).To(HavePrefix("**Firing**\n\nLabels:"))
	g.Expect(grafana.Custom).To(HaveKey("alerts"))

	newrelic, _ := read(t, files["newrelic.json"])
	g.Expect(newrelic.Title).To(HavePrefix("Memory Used % > 90"))
	g.Expect(newrelic.Severity).To(BeEquivalentTo("critical"))

	pagerduty, _ := read(t, files["pagerduty-events-v2.json"])
	g.Expect(pagerduty.DedupKey).To(Equal("srv01/mysql"))
	g.Expect(pagerduty.Custom).To(HaveKey("payload"))

	datadog, _ := read(t, files["datadog.json"])
	g.Expect(datadog.Link).To(Equal("$LINK"))
	g.Expect(string(datadog.Custom["alert_id"])).To(Equal(`"1234"`))

	kuma, _ := read(t, files["uptime-kuma.json"])
	g.Expect(string(kuma.Custom["msg"])).To(Equal(`"Port closed"`))
}
