package alertcontent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
)

// shortKeys returns the JSON of an object with so many keys.
func shortKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%04x":0`, i)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// TestLimitKeys turns the largest bags into texts that have all their entries.
func TestLimitKeys(t *testing.T) {
	for sentence, test := range map[string]struct {
		labels, annotations, values, custom int
		replaced                            []string
	}{
		"as many as allowed":       {labels: 100, annotations: 100, values: 50, custom: 6},
		"one too many":             {labels: 100, annotations: 101, values: 50, custom: 6, replaced: []string{"annotations"}},
		"custom before the others": {labels: 100, annotations: 100, custom: 100, replaced: []string{"custom"}},
		"two bags":                 {labels: 300, annotations: 10, custom: 400, replaced: []string{"custom", "labels"}},
		"all bags":                 {labels: 257, annotations: 257, values: 257, custom: 257, replaced: []string{"annotations", "custom", "labels", "values"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			c := &v1alpha1.AlertContent{}
			sent := map[string]string{}
			for name, n := range map[string]int{
				"labels": test.labels, "annotations": test.annotations, "values": test.values, "custom": test.custom,
			} {
				if sent[name] = shortKeys(n); name == "labels" || name == "annotations" {
					sent[name] = strings.ReplaceAll(sent[name], ":0", `:"0"`)
				}
				g.Expect(json.Unmarshal(fmt.Appendf(nil, `{%q:%s}`, name, sent[name]), c)).To(Succeed())
			}
			g.Expect(alertcontent.LimitKeys(c)).To(Equal(test.replaced))
			g.Expect(alertcontent.Keys(c)).To(BeNumerically("<=", alertcontent.MaxKeys))
			for _, name := range test.replaced {
				var text string
				g.Expect(json.Unmarshal(testenv.Bags(c)[name][alertcontent.JSONKey], &text)).To(Succeed())
				g.Expect(text).To(MatchJSON(sent[name]))
			}
			g.Expect(alertcontent.LimitKeys(c)).To(BeEmpty(), "again")
		})
	}
}

// TestBoundLeavesRoomForQuotes has texts that fit only because some entries are removed before.
func TestBoundLeavesRoomForQuotes(t *testing.T) {
	g := NewWithT(t)
	c := &v1alpha1.AlertContent{}
	g.Expect(json.Unmarshal([]byte(shortKeys(20_000)), &c.Custom)).To(Succeed())
	removed, replaced := alertcontent.Bound(c)
	g.Expect(replaced).To(Equal([]string{"custom"}))
	g.Expect(alertcontent.Size(c)).To(And(BeNumerically("<=", alertcontent.MaxBytes), BeNumerically(">", alertcontent.MaxBytes/2)))
	var text string
	kept := v1alpha1.Bag{}
	g.Expect(json.Unmarshal(c.Custom[alertcontent.JSONKey], &text)).To(Succeed())
	g.Expect(json.Unmarshal([]byte(text), &kept)).To(Succeed())
	g.Expect(len(kept) + len(removed)).To(Equal(20_000))
}
