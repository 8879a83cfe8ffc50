package mcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/live"
	"github.com/tocsin-dev/tocsin/internal/records"
	"github.com/tocsin-dev/tocsin/internal/report"
)

func TestTextsAreVisibleAndBounded(t *testing.T) {
	for text, want := range map[string]string{
		"a\x00\x1b[31mb\u009b2J\x7f":     "a[31mb2J",
		"line\nbreak\r\n\u2028\ttab":     "line break tab",
		"\u202etxet\u2066 \u200fbidi":    "txet bidi",
		"a\U000e0041\U000e007fb":         "ab", // of the block Tags
		"z\u200be\u200dr\ufeffo\u00ad":   "zero",
		"e\ufe0f\U000e0101n\u034f\u115f": "en",
		"\ue000private\U0010fffd":        "private",
		"invalid\xff":                    "invalid\ufffd",
		`"quoted" <b> & \`:               `"quoted" <b> & \`,
		"Überlast 東京 😀":                  "Überlast 東京 😀",
	} {
		NewWithT(t).Expect(string(lineOf(text))).To(Equal(want), "of %q", text)
	}
	rapid.Check(t, func(t *rapid.T) {
		encoded, err := json.Marshal(lineOf(rapid.String().Draw(t, "text") + strings.Repeat(rapid.String().Draw(t, "repeated"), 100)))
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(encoded)).To(BeNumerically("<=", maxLine+len(`""`)))
	})
}

// widest is a text of which each character takes six bytes in JSON.
func widest(chars int) string { return strings.Repeat("<", chars) }

// hugest returns a status as large as its schema permits, and larger.
func hugest() (status v1alpha1.IncidentStatus) {
	at := v1alpha1.NewTimestamp(time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC))
	status.State, status.OpenedTime, status.LastAlertTime, status.ResolvedTime = v1alpha1.IncidentOpen, &at, &at, &at
	status.Acknowledgement = &v1alpha1.Acknowledgement{By: widest(256), Severity: v1alpha1.SeverityCritical}
	status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue, Message: widest(32768)}}
	status.Alert = v1alpha1.AlertContent{
		Title: widest(1024), Type: widest(1024), Hostname: widest(1024), Region: widest(1024), Link: widest(2048),
		Description: strings.Repeat(widest(20)+"\n", 800), Severity: v1alpha1.SeverityCritical,
		Labels: v1alpha1.Texts{}, Annotations: v1alpha1.Texts{}, Values: v1alpha1.Bag{}, Custom: v1alpha1.Bag{},
	}
	for i := range 256 {
		name := fmt.Sprint(i, widest(100))
		status.Alert.Labels[name], status.Alert.Annotations[name] = widest(1000), widest(1000)
		status.Alert.Values[name], status.Alert.Custom[name] = []byte(`"`+widest(1000)+`"`), []byte(`[{"a":"`+widest(1000)+`"}]`)
	}
	for range v1alpha1.MaxTimeline {
		status.Timeline = append(status.Timeline, v1alpha1.Transition{
			Type: v1alpha1.TransitionContentRejected, Time: at, Message: widest(256), By: widest(256), Comment: widest(256),
			Severity: v1alpha1.SeverityCritical,
		})
	}
	return status
}

// hugestCommands returns commands that answer with as much as they may, and more.
func hugestCommands() *fake {
	f := &fake{}
	content := hugest()
	for i := range 200 {
		incident := &v1alpha1.Incident{Status: content, ObjectMeta: metav1.ObjectMeta{
			Namespace: strings.Repeat("n", 63), Name: fmt.Sprintf("%0253d", i),
		}}
		incident.Spec = v1alpha1.IncidentSpec{IntegrationName: strings.Repeat("i", 63), DedupKey: widest(1024)}
		f.incidents = append(f.incidents, incident)
		f.episodes = append(f.episodes, &records.Record{Namespace: widest(999), Incident: widest(999), Integration: widest(999)})
		f.heartbeats = append(f.heartbeats, live.Part{Name: strings.Repeat("h", 253), State: v1alpha1.ReasonInvalidSchedule})
		alert := ExplainedAlert{Effect: widest(9999)}
		for range 20 {
			alert.Fields = append(alert.Fields, ExplainedField{widest(999), widest(999), widest(999)})
		}
		f.explanation.Alerts = append(f.explanation.Alerts, alert)
		f.explanation.Warnings, f.explanation.Failed = append(f.explanation.Warnings, widest(9999)), append(f.explanation.Failed, widest(999))
	}
	f.origins = IncidentExplanation{
		Incident: strings.Repeat("n", 63) + "/" + strings.Repeat("i", 253), Integration: strings.Repeat("i", 63), Preset: "alertmanager",
		Fields: slices.Repeat(f.explanation.Alerts[0].Fields, 4), Warnings: f.explanation.Warnings, Unknown: widest(999),
	}
	for range 11 {
		f.facts = append(f.facts, Fact{"Acknowledged", widest(9999)})
	}
	for range 6 {
		s := report.Section{Title: "Noisiest keys", Note: strings.Repeat("a note of this project ", 10)}
		for range 9 {
			s.Columns = append(s.Columns, report.Column{Name: "RESOLVE P50"})
		}
		for range 92 {
			s.Rows = append(s.Rows, []string{widest(99), widest(999), widest(999)})
		}
		f.page.Sections = append(f.page.Sections, s)
	}
	f.page.Lead, f.page.Warnings = []string{widest(9999), widest(9999), widest(9999), widest(9999)}, []string{widest(9999)}
	for range 8 {
		f.integration.Status.Conditions = append(f.integration.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "InvalidSchedule", Message: widest(32768)})
	}
	f.integration.Status.LastRejection = &v1alpha1.Rejection{Reason: "TooLarge", Message: widest(1024)}
	return f
}

func TestTheLargestAnswersFit(t *testing.T) {
	session := connect(t, Options{Commands: hugestCommands()})
	for tool, arguments := range reads {
		t.Run(tool, func(t *testing.T) {
			g := NewWithT(t)
			out := answer[map[string]any](t, session, tool, arguments)
			encoded, err := json.Marshal(out)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(encoded)).To(And(BeNumerically("<=", maxAnswer), BeNumerically(">", maxAnswer/8)))
		})
	}
	shown := answer[showOutput](t, session, "show_incident", reads["show_incident"])
	g := NewWithT(t)
	g.Expect(shown.LeftOut.Labels).To(Equal(256 - len(shown.Alert.Labels)))
	g.Expect(shown.LeftOut.Timeline).To(Equal(v1alpha1.MaxTimeline - len(shown.Timeline)))
	g.Expect(shown.Alert.Description).NotTo(BeEmpty())
	explained := answer[explainOutput](t, session, "explain_payload", reads["explain_payload"])
	g.Expect(explained.LeftOut).To(Equal(200 - len(explained.Alerts)))
	g.Expect(len(answer[historyOutput](t, session, "list_history", nil).Episodes)).To(BeNumerically(">", 1))
}

// An answer that were too large despite all bounds is an error.
func TestATooLargeAnswerIsAnError(t *testing.T) {
	g := NewWithT(t)
	f := hugestCommands()
	for range 1000 {
		f.page.Lead = append(f.page.Lead, widest(999))
	}
	result := call(t, connect(t, Options{Commands: f}), "report", nil)
	g.Expect(result.IsError).To(BeTrue())
	g.Expect(textOf(t, result)).To(Equal("The answer has more than 32 KiB. Ask for less."))
}

// TestMarksListEachIncidentOnce lists random Incidents in parts, while others become more urgent.
func TestMarksListEachIncidentOnce(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		g := NewWithT(r)
		start := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
		f := &fake{}
		for i := range rapid.IntRange(0, 40).Draw(r, "incidents") {
			at := v1alpha1.NewTimestamp(start.Add(time.Duration(rapid.IntRange(0, 3).Draw(r, "time")) * time.Microsecond))
			incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("mon-", i)}}
			incident.Status.State = rapid.SampledFrom([]v1alpha1.IncidentState{v1alpha1.IncidentOpen, v1alpha1.IncidentResolved, ""}).Draw(r, "state")
			incident.Status.Alert.Severity = rapid.SampledFrom(append(v1alpha1.Severities(), "")).Draw(r, "severity")
			if rapid.Bool().Draw(r, "timed") {
				incident.Status.LastAlertTime, incident.Status.ResolvedTime = &at, &at
			}
			if rapid.Bool().Draw(r, "acknowledged") {
				incident.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAcknowledged, Status: metav1.ConditionTrue}}
				incident.Status.Acknowledgement = &v1alpha1.Acknowledgement{
					Severity: rapid.SampledFrom(v1alpha1.Severities()).Draw(r, "acknowledged severity"),
				}
			}
			f.incidents = append(f.incidents, incident)
		}
		want := len(f.incidents)
		s := &server{Options: Options{Commands: f}}
		seen := map[string]int{}
		for in := (listInput{Limit: rapid.IntRange(1, 7).Draw(r, "limit")}); ; {
			out, err := s.list(t.Context(), &notes{}, in)
			g.Expect(err).NotTo(HaveOccurred())
			for _, one := range out.Incidents {
				seen[one.Name]++
			}
			if out.Continue == "" {
				g.Expect(out.LeftOut).To(BeZero())
				break
			}
			in.Continue = out.Continue
			urgent := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("new-", len(f.incidents))}}
			now := v1alpha1.NewTimestamp(start.Add(time.Hour + time.Duration(len(f.incidents))))
			urgent.Status.State, urgent.Status.Alert.Severity, urgent.Status.LastAlertTime = v1alpha1.IncidentOpen, v1alpha1.SeverityCritical, &now
			f.incidents = append(f.incidents, urgent)
		}
		g.Expect(seen).To(HaveLen(want))
		for name, times := range seen {
			g.Expect(times).To(Equal(1), name)
		}
	})
}

// printable reports whether all characters of a text are seen.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || visible(r) < 0 })
}

func TestNoTextHasInvisibleCharacters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(lineOf(string(rapid.SliceOf(rapid.Rune()).Draw(t, "text"))))
		NewWithT(t).Expect(printable(text)).To(BeTrue(), "%q", text)
	})
}
