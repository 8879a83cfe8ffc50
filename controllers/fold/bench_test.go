package fold

import (
	"testing"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// BenchmarkDecide folds alerts into an open Incident, again and again the same.
func BenchmarkDecide(b *testing.B) {
	for _, size := range []struct {
		sentence string
		alerts   int
	}{{"nothing", 0}, {"one alert", 1}, {"a full AlertEvent", 500}} {
		b.Run(size.sentence, func(b *testing.B) {
			bench := openIncident()
			bench.maintain(windowOf("db", 10, 20, v1alpha1.SeverityInfo))
			in := bench.input()
			if size.alerts > 0 {
				alerts := make([]v1alpha1.Alert, size.alerts)
				for i := range alerts {
					alerts[i] = alertOf(v1alpha1.AlertFiring, v1alpha1.AlertContent{
						Title: "Disk full", Labels: map[string]string{"team": "storage", "host": "db-1"},
					})
				}
				in = bench.input(eventOf(2, alerts...))
			}
			b.ReportAllocs()
			for b.Loop() {
				Decide(in)
			}
		})
	}
}
