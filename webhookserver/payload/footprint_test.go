package payload_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// repeated is JSON of about the size of the default limit of bodies.
func repeated(before, element, after string) string {
	const limit = 256 << 10
	n := (limit - len(before) - len(after)) / (len(element) + 1)
	return before + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + after
}

func numbered(before, format, after string) string {
	var text strings.Builder
	text.WriteString(before)
	for i := 0; text.Len() < 255<<10; i++ {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, format, i)
	}
	return text.String() + after
}

// live is how much of the heap is in use.
func live() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestFootprintIsNotLessThanWhatIsAllocated decodes and normalises bodies that take much memory for their length.
func TestFootprintIsNotLessThanWhatIsAllocated(t *testing.T) {
	for name, body := range map[string]string{
		"objects of one entry":          repeated(`{"a":[`, `{"":0}`, `]}`),
		"empty objects":                 repeated(`{"a":[`, `{}`, `]}`),
		"empty lists":                   repeated(`{"a":[`, `[]`, `]}`),
		"objects within objects":        repeated(`{"a":[`, `{"":{"":{"":{}}}}`, `]}`),
		"lists within lists":            repeated(`{"a":[`, `[[[[0]]]]`, `]}`),
		"digits":                        repeated(`{"a":[`, `1`, `]}`),
		"empty texts":                   repeated(`{"a":[`, `""`, `]}`),
		"short texts":                   repeated(`{"a":[`, `"a"`, `]}`),
		"long texts":                    repeated(`{"a":[`, `"`+strings.Repeat("x", 1000)+`"`, `]}`),
		"literals":                      repeated(`{"a":[`, `true`, `]}`),
		"objects of nine entries":       repeated(`{"a":[`, `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`, `]}`),
		"one wide object":               numbered(`{`, `"%x":1`, `}`),
		"wide labels":                   numbered(`{"labels":{`, `"%x":1`, `}}`),
		"wide custom of objects":        numbered(`{"custom":{`, `"%x":{"":0}`, `}}`),
		"the same key again and again":  repeated(`{`, `"a":1`, `}`),
		"lists of an alert":             repeated(`{"a":[`, `{"labels":{"alertname":"Down","instance":"n1:9100"},"status":"firing"}`, `]}`),
		"a long text that grows":        `{"a":"` + strings.Repeat("<", 29_000) + `"}`,
		"long texts that grow":          `{"a":"` + strings.Repeat("<", 14_000) + `","b":"` + strings.Repeat("&", 14_000) + `"}`,
		"texts that grow when they are": repeated(`{"a":[`, `"<<<<<<<<<<"`, `]}`),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := live()
			value, _, err := payload.Parse([]byte(body))
			g.Expect(err).NotTo(HaveOccurred())
			alert, _, _ := payload.Read(value, time.Unix(1772362800, 0))
			taken := live() - before
			runtime.KeepAlive(value)
			runtime.KeepAlive(alert)
			estimate := payload.Footprint([]byte(body))
			t.Logf("%d KiB of JSON take %d KiB, estimated %d KiB", len(body)>>10, taken>>10, estimate>>10)
			g.Expect(estimate).To(BeNumerically(">=", taken))
			g.Expect(estimate).To(BeNumerically("<", 24<<20), "one body is let in by the default limits")
		})
	}
}

func TestFootprintTakesAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Custom(func(t *rapid.T) []byte {
			return []byte(rapid.StringOf(rapid.SampledFrom([]rune(`{}[]:,"\a1`))).Draw(t, "json"))
		})).Draw(t, "body")
		if size := payload.Footprint(body); size < int64(len(body)) {
			t.Fatal(size)
		}
	})
}
