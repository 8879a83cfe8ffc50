package queue_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

func TestMarks(t *testing.T) {
	for sentence, test := range map[string]struct {
		annotation string
		settled    []string // of a, b and c
		version    string   // empty: there is no mark
	}{
		"some Incidents":                      {"90/b,a", []string{"a", "b"}, "90"},
		"all Incidents":                       {"90/*", []string{"a", "b", "c"}, "90"},
		"a part of a name is not the name":    {"90/aa,ab", nil, "90"},
		"no annotation":                       {"", nil, ""},
		"the object's own version is no mark": {"100/a", nil, ""},
		"a version that is to come":           {"99999/*", nil, ""},
		"no version":                          {"x/a", nil, ""},
		"no Incidents":                        {"90", nil, ""},
		"as many as an AlertEvent can have":   {"90/a" + strings.Repeat(",b", v1alpha1.MaxAlertsPerEvent-1), []string{"a", "b"}, "90"},
		"more than it can have":               {"90/a" + strings.Repeat(",b", v1alpha1.MaxAlertsPerEvent), nil, ""},
		"names of many kilobytes":             {"90/a," + strings.Repeat("b", queue.MaxMarkBytes), nil, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			event := &v1alpha1.AlertEvent{}
			event.ResourceVersion = "100"
			if test.annotation != "" {
				event.Annotations = map[string]string{v1alpha1.SettledAnnotation: test.annotation}
			}
			mark, ok := queue.MarkOf(event)
			g.Expect(ok).To(Equal(test.version != ""))
			g.Expect(mark.ResourceVersion).To(Equal(test.version))
			var settled []string
			for _, name := range []string{"a", "b", "c"} {
				if mark.Settles(name) {
					settled = append(settled, name)
				}
			}
			g.Expect(settled).To(Equal(test.settled))
			names := mark.Names()
			for _, name := range []string{"a", "b", "c", ""} {
				g.Expect(names.Has(name)).To(Equal(mark.Settles(name)), name)
			}
		})
	}
}

func TestAMarkOnlyGrows(t *testing.T) {
	g := NewWithT(t)
	mark := queue.Mark{ResourceVersion: "90", Incidents: []string{"a", "c"}}
	grown := mark.With([]string{"b", "a"})
	g.Expect(grown.String()).To(Equal("90/a,b,c"))
	mark.All = true
	grown = mark.With([]string{"b"})
	g.Expect(grown.String()).To(Equal("90/*"))
}
