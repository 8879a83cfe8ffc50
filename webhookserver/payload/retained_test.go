package payload_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// TestAnAlertTakesNoMemoryBesideWhatItHolds normalises payloads of which little is kept: alerts that wait to be stored count as
// what they hold.
func TestAnAlertTakesNoMemoryBesideWhatItHolds(t *testing.T) {
	for name, body := range map[string]string{
		"an entry that is dropped": `{"dedup_key":"k","a":"` + strings.Repeat("<", 250<<10) + `","b":1}`,
		"a key within spaces":      `{"dedup_key":"k` + strings.Repeat(" ", 250<<10) + `"}`,
		"a title within spaces":    `{"title":"` + strings.Repeat(" ", 250<<10) + `ö"}`,
		"a title that is cut":      `{"title":"` + strings.Repeat("t", 250<<10) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			before := live()
			value, _, err := payload.Parse([]byte(body))
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			alert, _, _ := payload.Read(value, time.Unix(1772362800, 0))
			taken := live() - before
			runtime.KeepAlive(alert)
			NewWithT(t).Expect(taken).To(BeNumerically("<", 16<<10))
		})
	}
}
