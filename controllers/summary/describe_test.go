package summary

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// incident makes an Incident that is Open since some minutes after noon.
func incident(name string, severity v1alpha1.Severity, minutes int, change ...func(*v1alpha1.Incident)) v1alpha1.Incident {
	i := v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Name: name}}
	i.Status.State, i.Status.Alert.Severity, i.Status.Alert.Title = v1alpha1.IncidentOpen, severity, "Title of "+name
	i.Status.OpenedTime = new(v1alpha1.NewTimestamp(noon.Add(time.Duration(minutes) * time.Minute)))
	for _, f := range change {
		f(&i)
	}
	return i
}

func resolved(i *v1alpha1.Incident) { i.Status.State = v1alpha1.IncidentResolved }

func acknowledged(i *v1alpha1.Incident) {
	meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue})
	i.Status.Acknowledgement = &v1alpha1.Acknowledgement{Time: v1alpha1.NewTimestamp(noon), Severity: i.Status.Alert.Severity}
}

func muted(i *v1alpha1.Incident) {
	i.Status.Mute = &v1alpha1.Mute{StartTime: v1alpha1.NewTimestamp(noon)}
}

// told returns what a summary tells, as one line.
func told(summary *v1alpha1.IncidentSummary) string {
	status := &summary.Status
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionClear)
	if condition == nil {
		return "nothing"
	}
	newest := "none"
	if status.NewestCritical != nil {
		newest = fmt.Sprintf("%s %q", status.NewestCritical.Name, status.NewestCritical.Title)
	}
	return fmt.Sprintf("Clear %s %s: %s open %v, unacknowledged %v, newest %s", condition.Status, condition.Reason, condition.Message,
		*status.Open, *status.Unacknowledged, newest)
}

func TestWhatASummaryTells(t *testing.T) {
	const critical, warning = v1alpha1.SeverityCritical, v1alpha1.SeverityWarning
	for sentence, test := range map[string]struct {
		incidents []v1alpha1.Incident
		want      string
		notFolded []string
	}{
		"nothing is open": {nil,
			"Clear True NoSevereIncident: No Incident is Open. open {0 0 0 0 0}, unacknowledged {0 0 0 0 0}, newest none", nil},
		"what is Resolved, or has no status yet, does not count": {
			[]v1alpha1.Incident{incident("a", critical, 0, resolved), {}},
			"Clear True NoSevereIncident: No Incident is Open. open {0 0 0 0 0}, unacknowledged {0 0 0 0 0}, newest none", nil},
		"warnings hold nobody up": {[]v1alpha1.Incident{incident("a", warning, 0), incident("b", v1alpha1.SeverityInfo, 0)},
			"Clear True NoSevereIncident: Open: 1 warning, 1 info. open {0 0 1 1 2}, unacknowledged {0 0 1 1 2}, newest none", nil},
		"an error does": {[]v1alpha1.Incident{incident("a", v1alpha1.SeverityError, 0)},
			"Clear False SevereIncidentOpen: Open: 1 error. open {0 1 0 0 1}, unacknowledged {0 1 0 0 1}, newest none", nil},
		"an acknowledged or a muted one burns as well": {
			[]v1alpha1.Incident{incident("a", critical, 0, acknowledged), incident("b", critical, 0, muted)},
			`Clear False SevereIncidentOpen: Open: 2 critical. open {2 0 0 0 2}, unacknowledged {1 0 0 0 1}, newest a "Title of a"`, nil},
		"an acknowledgement covers no higher severity": {
			[]v1alpha1.Incident{incident("a", warning, 0, acknowledged, func(i *v1alpha1.Incident) { i.Status.Alert.Severity = critical })},
			`Clear False SevereIncidentOpen: Open: 1 critical. open {1 0 0 0 1}, unacknowledged {1 0 0 0 1}, newest a "Title of a"`, nil},
		"the newest critical one": {
			[]v1alpha1.Incident{incident("a", critical, 1), incident("b", critical, 2), incident("c", critical, 0), incident("d", warning, 3)},
			`Clear False SevereIncidentOpen: Open: 3 critical, 1 warning. open {3 0 1 0 4}, unacknowledged {3 0 1 0 4}, newest b "Title of b"`, nil},
		"one of no severity holds up": {[]v1alpha1.Incident{incident("a", "", 0)},
			"Clear False SevereIncidentOpen: Open: 1 without a severity. open {0 0 0 0 1}, unacknowledged {0 0 0 0 1}, newest none", nil},
		"alerts that do not become Incidents may be severe": {[]v1alpha1.Incident{incident("a", warning, 0)},
			"Clear Unknown AlertsNotFolded: Open: 1 warning. Alerts for grafana (FoldFailed) do not become Incidents. open {0 0 1 0 1}, " +
				"unacknowledged {0 0 1 0 1}, newest none", []string{"grafana (FoldFailed)"}},
		"and some are known to be": {[]v1alpha1.Incident{incident("a", critical, 0)},
			"Clear False SevereIncidentOpen: Open: 1 critical. Alerts for a, b, c and 2 other integrations do not become Incidents. " +
				`open {1 0 0 0 1}, unacknowledged {1 0 0 0 1}, newest a "Title of a"`, []string{"a", "b", "c", "d", "e"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			for range 2 {
				summary := &v1alpha1.IncidentSummary{}
				describe(summary, &contents{test.incidents, test.notFolded}, noon)
				g.Expect(told(summary)).To(Equal(test.want))
				slices.Reverse(test.incidents) // the order of a list decides nothing
			}
		})
	}
}

func TestTheConditionIsDatedByItsChange(t *testing.T) {
	g := NewWithT(t)
	summary := &v1alpha1.IncidentSummary{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	since := func() time.Time { return summary.Status.Conditions[0].LastTransitionTime.Time }
	describe(summary, &contents{}, noon)
	describe(summary, &contents{incidents: []v1alpha1.Incident{incident("a", v1alpha1.SeverityInfo, 0)}}, noon.Add(time.Hour))
	g.Expect(since()).To(Equal(noon))
	g.Expect(summary.Status.ObservedGeneration).To(BeEquivalentTo(1))
	describe(summary, &contents{incidents: []v1alpha1.Incident{incident("a", v1alpha1.SeverityError, 0)}}, noon.Add(2*time.Hour))
	g.Expect(since()).To(Equal(noon.Add(2 * time.Hour)))
}

// TestWhatDoesNotDifferChangesNoSummary draws two versions of an Incident. If a summary of them differs, the change is not
// overlooked.
func TestWhatDoesNotDifferChangesNoSummary(t *testing.T) {
	draw := func(t *rapid.T) *v1alpha1.Incident {
		i := incident("a", rapid.SampledFrom([]v1alpha1.Severity{"critical", "error", ""}).Draw(t, "severity"),
			rapid.IntRange(0, 1).Draw(t, "minutes"))
		i.Status.State = rapid.SampledFrom([]v1alpha1.IncidentState{"Open", "Open", "Resolved", ""}).Draw(t, "state")
		i.Status.Alert.Title = rapid.SampledFrom([]string{"", "Disk full"}).Draw(t, "title")
		i.Status.AlertCount = rapid.Int64Range(0, 1).Draw(t, "alerts")
		if rapid.Bool().Draw(t, "acknowledged") {
			acknowledged(&i)
		}
		if rapid.IntRange(0, 3).Draw(t, "opened") == 0 {
			i.Status.OpenedTime = nil
		}
		return &i
	}
	summaryOf := func(i *v1alpha1.Incident) string {
		var summary v1alpha1.IncidentSummary
		describe(&summary, &contents{incidents: []v1alpha1.Incident{*i}}, noon)
		text, err := json.Marshal(summary)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	rapid.Check(t, func(t *rapid.T) {
		before, after := draw(t), draw(t)
		if was, is := summaryOf(before), summaryOf(after); was != is && !differs(before, after) {
			t.Fatalf("overlooked:\n%s\n%s", was, is)
		}
		repeated := after.DeepCopy()
		repeated.Status.AlertCount++
		if differs(after, repeated) {
			t.Fatal("each repetition of an alert would be counted")
		}
	})
}

// BenchmarkDescribe counts as many Incidents as a namespace may have by default.
func BenchmarkDescribe(b *testing.B) {
	severities := v1alpha1.Severities()
	incidents := make([]v1alpha1.Incident, 12_500)
	for i := range incidents {
		incidents[i] = incident(fmt.Sprint("i", i), severities[i%len(severities)], i%100)
	}
	for b.Loop() {
		describe(&v1alpha1.IncidentSummary{}, &contents{incidents: incidents}, noon)
	}
}
