package mapping_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// TestPresetsLeaveTocsinsOwnFormatAlone shows that an integration with a preset still takes what the payload
// rules read, such as a resolve by hand when the tool's own was lost.
func TestPresetsLeaveTocsinsOwnFormatAlone(t *testing.T) {
	for _, name := range presetNames(t) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			program, err := mapping.Compile(name, nil)
			g.Expect(err).NotTo(HaveOccurred())
			body := `{"title": "Disk full", "severity": "error", "status": "resolved", "dedup_key": "disk/1", "hostname": "db-02"}`
			result := readBody(t, program, body, http.Header{})
			g.Expect(result.Alerts).To(HaveLen(1))
			alert := result.Alerts[0]
			g.Expect(alert.Dropped).To(BeFalse())
			g.Expect(alert.Status).To(Equal(v1alpha1.AlertResolved))
			g.Expect(alert.DedupKey).To(Equal("disk/1"))
			g.Expect(alert.Title).To(Equal("Disk full"))
			g.Expect(alert.Severity).To(Equal(v1alpha1.SeverityError))
			g.Expect(alert.Hostname).To(Equal("db-02"))
		})
	}
}

// suggestion is an expression that a page suggests: `spec.mapping.fields.title: alert.name`.
var suggestion = regexp.MustCompile("`spec\\.mapping\\.([a-zA-Z.]+): ([^`]+)`")

func TestSuggestedExpressionsCompile(t *testing.T) {
	suggested := 0
	for _, name := range presetNames(t) {
		for _, match := range suggestion.FindAllStringSubmatch(readPage(t, name), -1) {
			suggested++
			field, isField := strings.CutPrefix(match[1], "fields.")
			text := fmt.Sprintf("%s: %s", field, match[2])
			if isField {
				text = "fields:\n  " + text
			}
			own := &v1alpha1.Mapping{}
			if err := yaml.UnmarshalStrict([]byte(text), own); err != nil {
				t.Errorf("%s.md: %s: %v", name, match[0], err)
				continue
			}
			if _, err := mapping.Compile(name, own); err != nil {
				t.Errorf("%s.md: %s: %v", name, match[0], err)
			}
		}
	}
	NewWithT(t).Expect(suggested).To(BeNumerically(">=", 4))
}
