package queue_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

func TestTextsThatCannotBeRead(t *testing.T) {
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
	for name, test := range map[string]struct{ text, message string }{
		"nothing":         {"", "alerts: EOF"},
		"no base64":       {"%%%", "alerts: "},
		"no gzip":         {"YWJj", "alerts: "},
		"cut":             {whole[:len(whole)-16], "unexpected EOF"},
		"no JSON":         {zip("["), "not a JSON array of alerts"},
		"an object":       {zip("{}"), "not a JSON array of alerts"},
		"another type":    {zip(`[{"dedupKey":5,"status":"firing"}]`), "not a JSON array of alerts"},
		"nested too deep": {zip(`[{"dedupKey":"k","status":"firing","labels":{"a":` + strings.Repeat("[", 98) + strings.Repeat("]", 98) + `}}]`), "nested deeper than 100 levels"},
		"none":            {zip("[]"), "0 alerts, not 1 to 500"},
		"too many":        {zip("[" + strings.Repeat(`{},`, 500) + "{}]"), "501 alerts, not 1 to 500"},
		"a bomb":          {zip(strings.Repeat(" ", 5<<20)), "more than 4194304 bytes"},
		"no status":       {zip(`[{"dedupKey":"k"}]`), "alert 0: unknown status"},
		"null":            {zip(`[null]`), "alert 0: unknown status"},
		"a silence":       {zip(`[{"dedupKey":"k","status":"silenced","silenceFor":"1h"}]`), "alert 0: only a report has the status silenced"},
		"an assignment":   {zip(`[{"dedupKey":"k","status":"assigned","assignee":"maria"}]`), "alert 0: only a report has the status assigned"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			event := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{
				IntegrationName: "a", Alerts: v1alpha1.AlertsText(test.text), Encoding: v1alpha1.AlertsGzip,
			}}
			g.Expect(queue.Decode(event)).To(MatchError(ContainSubstring(test.message)))
			g.Expect(event.Alerts).To(BeEmpty())
			g.Expect(event.Spec.Alerts).To(BeEquivalentTo(test.text))
		})
	}
}

func TestAPlainTextIsReadToo(t *testing.T) {
	g := NewWithT(t)
	event := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{
		Alerts: `[{"dedupKey":"k","status":"firing","by":"maria","silenceFor":"1h","custom":{"n":12345678901234567890.10}}]`,
	}}
	g.Expect(queue.Decode(event)).To(Succeed())
	g.Expect(event.Alerts).To(HaveExactElements(v1alpha1.Alert{
		DedupKey: "k", Status: v1alpha1.AlertFiring,
		AlertContent: v1alpha1.AlertContent{Custom: v1alpha1.Bag{"n": []byte("12345678901234567890.10")}},
	}), "numbers are as they were sent, and only a report speaks in a user's name")
	event.Spec.Alerts = `{"dedupKey":"k"}`
	g.Expect(queue.Decode(event)).To(MatchError("alerts: not a JSON array of alerts"))
}

// Another version may store more of them, and a user anything: the alert counts all the same.
func TestOriginsThatAreTooLongAreLeftOut(t *testing.T) {
	g := NewWithT(t)
	for length, want := range map[int]int{v1alpha1.MaxOriginsChars: v1alpha1.MaxOriginsChars, v1alpha1.MaxOriginsChars + 1: 0, 1 << 20: 0} {
		event := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{IntegrationName: "a", Alerts: v1alpha1.AlertsText(
			`[{"dedupKey":"k","status":"firing","origins":"` + strings.Repeat("k", length) + `"}]`)}}
		g.Expect(queue.Decode(event)).To(Succeed())
		g.Expect(event.Alerts[0].DedupKey).To(Equal("k"))
		g.Expect(event.Alerts[0].Origins).To(HaveLen(want))
	}
}

func TestAReportIsAnAlert(t *testing.T) {
	g := NewWithT(t)
	event := &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{Report: &v1alpha1.Report{
		IncidentName: "i", DedupKey: "k", Status: v1alpha1.AlertSilenced, By: "maria", Comment: "x",
		SilenceFor: &metav1.Duration{Duration: time.Hour},
	}}}
	g.Expect(queue.Decode(event)).To(Succeed())
	g.Expect(event.Alerts).To(HaveExactElements(v1alpha1.Alert{
		IncidentName: "i", DedupKey: "k", Status: v1alpha1.AlertSilenced, IsReport: true, By: "maria", Comment: "x",
		SilenceFor: &metav1.Duration{Duration: time.Hour},
	}))
}

func TestASummaryTellsPeopleWhatIsInTheText(t *testing.T) {
	g := NewWithT(t)
	disk := v1alpha1.Alert{DedupKey: "disk", Status: v1alpha1.AlertFiring}
	full := disk
	full.Title, full.Severity = "Disk\nfull "+strings.Repeat("x", 300), v1alpha1.SeverityCritical
	for summary, alerts := range map[string][]v1alpha1.Alert{
		"firing: disk":                       {disk},
		"firing: disk, and 2 more":           {disk, full, full},
		"firing critical: Disk full xxxxxxx": {full},
	} {
		event := &v1alpha1.AlertEvent{Alerts: alerts}
		g.Expect(queue.Encode(event)).To(Succeed())
		g.Expect(event.Spec.Summary).To(HavePrefix(summary))
		g.Expect(len(event.Spec.Summary)).To(BeNumerically("<=", 256))
		g.Expect(event.Spec.Count).To(BeEquivalentTo(len(alerts)))
	}
}

// manyTexts are more entries than an alert may have.
var manyTexts = func() v1alpha1.Texts {
	texts := v1alpha1.Texts{}
	for i := range alertcontent.MaxKeys + 1 {
		texts[fmt.Sprint(i)] = "x"
	}
	return texts
}()

// Whatever breaks a bound of an alert is refused when it is written, too.
func TestOnlyWhatCanBeReadIsWritten(t *testing.T) {
	for message, change := range map[string]func(*v1alpha1.Alert){
		"unknown status":                      func(a *v1alpha1.Alert) { a.Status = "odd" },
		"severity is not":                     func(a *v1alpha1.Alert) { a.Severity = "odd" },
		"title has more than 1024 characters": func(a *v1alpha1.Alert) { a.Title = strings.Repeat("ż", 1025) },
		"dedupKey has more than":              func(a *v1alpha1.Alert) { a.DedupKey = strings.Repeat("k", 1025) },
		"incidentName is not a name":          func(a *v1alpha1.Alert) { a.IncidentName = "a b" },
		"it needs incidentName or dedupKey":   func(a *v1alpha1.Alert) { a.Status, a.DedupKey = v1alpha1.AlertResolved, "" },
		"labels or annotations have more":     func(a *v1alpha1.Alert) { a.Annotations = manyTexts },
		"it fires and needs dedupKey":         func(a *v1alpha1.Alert) { a.IncidentName, a.DedupKey = "i", "" },
	} {
		g := NewWithT(t)
		alert := v1alpha1.Alert{DedupKey: "k", Status: v1alpha1.AlertFiring, AlertContent: v1alpha1.AlertContent{Title: strings.Repeat("ż", 1024)}}
		event := &v1alpha1.AlertEvent{Alerts: []v1alpha1.Alert{alert, alert}}
		g.Expect(queue.Encode(event)).To(Succeed())
		change(&event.Alerts[1])
		g.Expect(queue.Encode(event)).To(MatchError(ContainSubstring("alert 1: " + message)))
	}
}
