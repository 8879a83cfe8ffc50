package payload_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// typicalPayload is about 2 KiB, with every field given and two nested values.
func typicalPayload(tb testing.TB) []byte {
	tb.Helper()
	body, err := os.ReadFile("testdata/typical.json")
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// BenchmarkParseNormalise is to stay within twice BenchmarkUnmarshal.
func BenchmarkParseNormalise(b *testing.B) {
	body, now := typicalPayload(b), time.Now()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		object, _, err := payload.Parse(body)
		if err != nil {
			b.Fatal(err)
		}
		payload.Read(object, now)
	}
}

// BenchmarkUnmarshal is the yardstick: what decoding the same bytes costs anyone.
func BenchmarkUnmarshal(b *testing.B) {
	body := typicalPayload(b)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var object map[string]any
		if err := json.Unmarshal(body, &object); err != nil {
			b.Fatal(err)
		}
	}
}
