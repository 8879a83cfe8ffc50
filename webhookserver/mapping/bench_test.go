package mapping_test

import (
	"os"
	"path/filepath"
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
  startTime: alert.?startsAt
  endTime: "alert.status == 'resolved' ? alert.endsAt : null"
  labels: alert.?labels
  annotations: alert.?annotations
  type: has(payload.receiver) ? 'alertmanager' :'prometheus'
`

// benchmarkReading decodes a body and reads it with a program, again and again.
func benchmarkReading(b *testing.B, program *mapping.Program, body []byte) {
	b.Helper()
	alerts, began := 0, processorTime(b)
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
	b.ReportMetric(float64((processorTime(b)-began).Nanoseconds())/float64(alerts), "cpu-ns/alert")
}

// BenchmarkOwnMapping is the cost of a mapping that an integration's owner wrote, beside the same payload read
// without one.
func BenchmarkOwnMapping(b *testing.B) {
	body, err := os.ReadFile("../payload/testdata/senders/alertmanager.json")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("mapped", func(b *testing.B) { benchmarkReading(b, compiled(b, typicalMapping), body) })
	b.Run("plain", func(b *testing.B) { benchmarkReading(b, compiled(b, "{}"), body) })
}

// BenchmarkPreset is the cost of each preset for its own sample, beside the same payload read without it. A
// mapping is to cost 50 µs a payload at the most, and at the most twice the allocations of the plain path.
func BenchmarkPreset(b *testing.B) {
	presets, err := mapping.Presets()
	if err != nil {
		b.Fatal(err)
	}
	plain := compiled(b, "{}")
	for _, preset := range presets {
		body, err := os.ReadFile(filepath.Join("presets", preset.Name+".firing.json"))
		if err != nil {
			b.Fatal(err)
		}
		program, err := mapping.Compile(preset.Name, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(preset.Name+"/mapped", func(b *testing.B) { benchmarkReading(b, program, body) })
		b.Run(preset.Name+"/plain", func(b *testing.B) { benchmarkReading(b, plain, body) })
	}
}
