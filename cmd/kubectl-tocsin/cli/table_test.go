package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/records"
)

// tableAt prints an acknowledged Incident of an integration with a long name on a terminal.
func tableAt(g Gomega, width int) []string {
	now := time.Now()
	opened := v1alpha1.NewTimestamp(now.Add(-2 * time.Hour))
	incident := &v1alpha1.Incident{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "production-monitoring-eu-qf4temcyqfg5jyf6hfops4jsuk"},
	}
	incident.Status = v1alpha1.IncidentStatus{
		State: v1alpha1.IncidentOpen, OpenedTime: &opened, LastAlertTime: &opened, AlertCount: 7,
		Alert:           v1alpha1.AlertContent{Title: "The disk of db-1 is 97 % full", Severity: v1alpha1.SeverityCritical},
		Acknowledgement: &v1alpha1.Acknowledgement{By: "maria", Severity: v1alpha1.SeverityCritical},
		Conditions:      []metav1.Condition{{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue}},
	}
	p := newPlugin(genericiooptions.NewTestIOStreamsDiscard())
	var out bytes.Buffer
	p.screen = &screen{out: &out, width: width, height: 24}
	o := &getOptions{plugin: p, output: newOutputFlag()}
	t := o.newTable()
	g.Expect(t.print([]*v1alpha1.Incident{incident})).To(Succeed())
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

func TestANarrowTableAbbreviatesNamesBeforeItHidesWhoAndSinceWhen(t *testing.T) {
	for width, columns := range map[int][]string{
		200: {"NAME", "STATE", "SEVERITY", "ACK", "COUNT", "OPENED", "LAST-SEEN", "TITLE"},
		80:  {"NAME", "STATE", "SEVERITY", "ACK", "OPENED", "TITLE"},
		50:  {"NAME", "STATE", "SEVERITY", "TITLE"},
	} {
		g := NewWithT(t)
		lines := tableAt(g, width)
		g.Expect(strings.Fields(lines[0])).To(Equal(columns), "%d columns", width)
		for _, line := range lines {
			g.Expect(runewidth.StringWidth(line)).To(BeNumerically("<=", width))
		}
		name := strings.Fields(lines[1])[0]
		g.Expect(abbreviates(name, "production-monitoring-eu-qf4temcyqfg5jyf6hfops4jsuk")).To(BeTrue(), name)
		g.Expect(abbreviates(name, "production-monitoring-eu-abcdemcyqfg5jyf6hfops4jsuk")).To(BeFalse(), name)
	}
	g := NewWithT(t)
	g.Expect(tableAt(g, 80)[1]).To(MatchRegexp(`^prod\S*…-qf4tem +Open +critical +maria +120m +The disk`))
}

func TestAbbreviates(t *testing.T) {
	g := NewWithT(t)
	const name = "monitoring-qf4temcyqfg5jyf6hfops4jsuk"
	for _, short := range []string{"mon", "monitoring-qf4t", "mo…-qf4t", "…qf4t", name} {
		g.Expect(abbreviates(short, name)).To(BeTrue(), short)
	}
	for _, short := range []string{"non", "mo…-qf4x", "qf4t", "monitoring-qf4t…monitoring"} {
		g.Expect(abbreviates(short, name)).To(BeFalse(), short)
	}
}

// TestTheHistoryFitsItsFirstEpisodes prints episodes in columns of their widths: those of the first ones, whatever comes later.
func TestTheHistoryFitsItsFirstEpisodes(t *testing.T) {
	for _, count := range []int{1, fittingEpisodes - 1, fittingEpisodes, fittingEpisodes + 3} {
		g := NewWithT(t)
		var out bytes.Buffer
		o := &historyOptions{archiveOptions: archiveOptions{plugin: &plugin{screen: &screen{out: &out, width: 80, height: 24}}}}
		o.filter.allNamespaces = true
		printer := o.printer()
		printer.header()
		for i := range count {
			r := &records.Record{Namespace: "shop"}
			r.OpenedTime, r.ResolvedTime = v1alpha1.NewTimestamp(time.Unix(1_772_362_380, 0)), v1alpha1.NewTimestamp(time.Unix(1_772_365_980, 0))
			r.AlertCount = 2
			r.Alert.Severity, r.Alert.Title = v1alpha1.SeverityCritical, fmt.Sprintf("Disk %d full", i)
			if i > fittingEpisodes {
				r.Namespace = "a-namespace-with-a-long-name"
			}
			g.Expect(printer.episode(r)).To(Succeed())
		}
		printer.flush()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		g.Expect(lines).To(HaveLen(count + 1))
		g.Expect(strings.Contains(lines[0], "ACK")).To(Equal(count >= fittingEpisodes), "a column without contents")
		g.Expect(strings.Join(lines, "\n")).To(ContainSubstring(fmt.Sprintf("Disk %d full", count-1)))
		if count > fittingEpisodes {
			g.Expect(lines[0]).To(HavePrefix("NAMESPACE   ENDED"), "no wider than the first ones")
		}
	}
}
