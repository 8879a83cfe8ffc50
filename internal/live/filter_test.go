package live

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestParseLabels(t *testing.T) {
	alert := map[string]string{"team": "a", "mount": "/var", "instance": "db-1:9100", "note": "x, y", "my key": "1"}
	for text, selects := range map[string]bool{
		"team=a":                    true,
		"team=b":                    false,
		"team!=b":                   true,
		"team":                      true,
		"!team":                     false,
		"owner":                     false,
		"!owner":                    true,
		"team in (a,b)":             true,
		"team in (b, c)":            false,
		"team notin (b)":            true,
		"team in (a,b),mount":       true,
		"team in (a,b),!mount":      false,
		"mount=/var":                true,
		"mount=/":                   false,
		"instance=db-1:9100,team=a": true,
		"instance!=db-1:9100":       false,
		`note=x\, y`:                true,
		"note!=f(x)":                true,
		"my key=1":                  true,
		"owner!=/,team=a":           true,
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			matches, err := ParseLabels(text)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(matches(alert)).To(Equal(selects))
		})
	}
	for _, text := range []string{"team in (a", "team in a", "team in (x=/y)", "=a", "a b c", "team=((", "team=(a"} {
		t.Run(text, func(t *testing.T) {
			_, err := ParseLabels(text)
			NewWithT(t).Expect(err).To(HaveOccurred())
		})
	}
}
