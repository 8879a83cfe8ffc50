package payload_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// received is when the requests of the tests come in.
var received = time.Date(2024, 1, 15, 12, 0, 0, 123_456_789, time.UTC)

// example is a payload and what it is read as.
type example struct {
	payload  string
	alert    string   // its JSON
	warnings []string // the fields warned of, in order
}

// check reads the payload of each example and compares.
func check(t *testing.T, examples map[string]example) {
	t.Helper()
	for sentence, e := range examples {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			alert, warnings := read(t, e.payload)
			g.Expect(encode(t, alert)).To(MatchJSON(e.alert), "warnings: %v", warnings)
			var fields []string
			for _, warning := range warnings {
				fields = append(fields, warning.Field)
			}
			g.Expect(fields).To(Equal(e.warnings), "warnings: %v", warnings)
		})
	}
}

// read is a body's alert with the warnings of both steps.
func read(tb testing.TB, body string) (v1alpha1.Alert, []payload.Warning) {
	tb.Helper()
	object, first, err := payload.Parse([]byte(body))
	if err != nil {
		tb.Fatalf("parsing %.200s: %v", body, err)
	}
	alert, _, second := payload.Read(object, received)
	return alert, append(first, second...)
}
