package mapping_test

import (
	"os"
	"testing"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// typicalMapping uses what mappings use: paths, optional paths, first of several, a condition, a loop.
const typicalMapping = `
alerts: payload.alerts
drop: alert.?labels.?alertname.orValue("") == "Watchdog"
fields:
  title: firstNonEmpty([alert.?annotations.?summary, alert.?annotations.?title, alert.?labels.?alertname])
  description: firstNonEmpty([alert.?annotations.?description, alert.?annotations.?message])
  severity: alert.?labels.?severity
  status: alert.status
  dedupKey: firstNonEmpty([alert.?fingerprint, hash([payload.?groupKey, alert.?labels.?alertname])])
  link: firstNonEmpty([alert.?annotations.?runbook_url, alert.?generatorURL])
  hostname: 'alert.?labels.?instance.orValue("").split(":")[0]'
  region: alert.?labels.?region
  startsAt: alert.?startsAt
  endsAt: "alert.status == 'resolved' ? alert.endsAt : null"
  labels: alert.?labels
  annotations: alert.?annotations
  type: has(payload.receiver) ? 'alertmanager' :'prometheus'
`

func typicalBody(b *testing.B) []byte {
	b.Helper()
	body, err := os.ReadFile("../payload/testdata/senders/alertmanager.json")
	if err != nil {
		b.Fatal(err)
	}
	return body
}

func benchmarkAlerts(b *testing.B, program *mapping.Program) {
	b.Helper()
	body := typicalBody(b)
	alerts := 0
	b.ReportAllocs()
	for b.Loop() {
		value, _, err := payload.ParseAny(body)
		if err != nil {
			b.Fatal(err)
		}
		result, err := program.Alerts(value, nil, received)
		if err != nil {
			b.Fatal(err)
		}
		alerts += len(result.Alerts)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(alerts), "ns/alert")
}

// BenchmarkPlain is the yardstick: the same payload without a mapping.
func BenchmarkPlain(b *testing.B) {
	benchmarkAlerts(b, compiled(b, `{}`))
}

// BenchmarkMapped is to stay within 50 µs an alert over BenchmarkPlain and twice its allocations.
func BenchmarkMapped(b *testing.B) {
	benchmarkAlerts(b, compiled(b, typicalMapping))
}

// BenchmarkAlertmanager is the same with the preset.
func BenchmarkAlertmanager(b *testing.B) {
	program, err := mapping.Compile("alertmanager", nil)
	if err != nil {
		b.Fatal(err)
	}
	benchmarkAlerts(b, program)
}
