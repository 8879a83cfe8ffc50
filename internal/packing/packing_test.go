package packing_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/packing"
)

func TestPackedAlertsThatCannotBeRead(t *testing.T) {
	zip := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write([]byte(text))
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(b.Bytes())
	}
	whole := zip(`[{"dedupKey":"k","status":"firing"}]`)
	for name, test := range map[string]struct{ packed, message string }{
		"nothing":         {"", "packedAlerts: missing"},
		"no base64":       {"%%%", "packedAlerts: "},
		"no gzip":         {"YWJj", "packedAlerts: "},
		"cut":             {whole[:len(whole)-16], "unexpected EOF"},
		"no JSON":         {zip("["), "not a JSON array of alerts"},
		"an object":       {zip("{}"), "not a JSON array of alerts"},
		"another type":    {zip(`[{"dedupKey":5,"status":"firing"}]`), "not a JSON array of alerts"},
		"nested too deep": {zip(`[{"dedupKey":"k","status":"firing","labels":{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}}]`), "not a JSON array of alerts"},
		"none":            {zip("[]"), "0 alerts, not 1 to 500"},
		"too many":        {zip("[" + strings.Repeat(`{},`, 500) + "{}]"), "501 alerts, not 1 to 500"},
		"a bomb":          {zip(strings.Repeat(" ", 5<<20)), "more than 4194304 bytes when unpacked"},
		"no status":       {zip(`[{"dedupKey":"k"}]`), "alert 0: unknown status"},
		"null":            {zip(`[null]`), "alert 0: unknown status"},
		"no silenceFor":   {zip(`[{"dedupKey":"k","status":"silenced"}]`), "alert 0: it is silenced and needs silenceFor"},
		"a long silence":  {zip(`[{"dedupKey":"k","status":"silenced","silenceFor":"721h"}]`), "alert 0: silenceFor is not a duration from 0s to 720h"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			spec := v1alpha1.AlertEventSpec{IntegrationName: "a", PackedAlerts: test.packed}
			g.Expect(packing.Unpack(&spec)).To(MatchError(ContainSubstring(test.message)))
			g.Expect(spec.Alerts).To(BeEmpty())
			g.Expect(spec.PackedAlerts).To(Equal(test.packed))
		})
	}
}
