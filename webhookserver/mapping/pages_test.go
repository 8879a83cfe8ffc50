package mapping_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// The table at the end of docs/paging.md says what the sample of each tool becomes without any settings: who routes critical alerts to
// a pager has to know.
func TestTheGuideSaysWhatPages(t *testing.T) {
	g := NewWithT(t)
	bySeverity := map[v1alpha1.Severity][]string{}
	presets, err := mapping.Presets()
	g.Expect(err).NotTo(HaveOccurred())
	for _, preset := range presets {
		program, err := mapping.Compile(preset.Name, nil)
		g.Expect(err).NotTo(HaveOccurred())
		result := readSample(t, program, preset.Name+".firing")
		if len(result.Alerts) == 0 || result.Alerts[0].Severity != "" {
			continue // the payload says how severe it is
		}
		severity := cmp.Or(mapping.DefaultSeverity(preset.Name), v1alpha1.SeverityWarning)
		bySeverity[severity] = append(bySeverity[severity], preset.Title)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "paging.md"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, severity := range []v1alpha1.Severity{v1alpha1.SeverityCritical, v1alpha1.SeverityWarning} {
		row := fmt.Sprintf("| `%s` | %s |", severity, strings.Join(bySeverity[severity], ", "))
		g.Expect(string(page)).To(ContainSubstring(row), "the row of docs/paging.md")
	}
}
