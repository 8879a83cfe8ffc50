package queue

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
)

// hostile is a text whose JSON is as much longer as it can be, with what a parser may stumble over.
var hostile = rapid.StringOfN(rapid.SampledFrom([]rune{'\x01', '"', '\\', '[', '{', '}', 'ż', 'a'}), 0, 300, -1)

// anyAlert generates alerts that a sender may send.
func anyAlert() *rapid.Generator[v1alpha1.Alert] {
	return rapid.Custom(func(t *rapid.T) v1alpha1.Alert {
		return v1alpha1.Alert{
			ID: "019b76da-a800-7000-8000-000000000001", DedupKey: "k" + hostile.Draw(t, "key"), Status: v1alpha1.AlertFiring,
			By: hostile.Draw(t, "by"), Comment: hostile.Draw(t, "comment"),
			AlertContent: v1alpha1.AlertContent{
				Title: hostile.Draw(t, "title"), Labels: rapid.MapOfN(hostile, hostile, 0, 3).Draw(t, "labels"),
			},
		}
	})
}

// TestWhatIsWrittenIsRead writes alerts with hostile texts, and reads them again. Nowhere do they count for less than they have.
func TestWhatIsWrittenIsRead(t *testing.T) {
	compressed, plain := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g := NewWithT(t)
		alerts := slices.Repeat(rapid.SliceOfN(anyAlert(), 1, 3).Draw(t, "alerts"), rapid.IntRange(1, 40).Draw(t, "times"))
		event := &v1alpha1.AlertEvent{Alerts: alerts}
		for i := range alerts {
			alertcontent.LimitKeys(&alerts[i].AlertContent)
		}
		g.Expect(Encode(event)).To(Succeed())
		text, err := json.Marshal(alerts)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(EncodedSize(alerts)).To(BeNumerically(">=", len(text)))
		g.Expect(StoredSize(&event.Spec)).To(Equal(len(event.Spec.Alerts)))
		if event.Spec.Encoding == "" {
			plain++
			g.Expect(string(event.Spec.Alerts)).To(Equal(string(text)))
		} else {
			compressed++
			g.Expect(len(event.Spec.Alerts)).To(BeNumerically("<", len(text)))
			g.Expect(len(text)).To(BeNumerically(">=", MinCompressed))
		}
		event.Alerts = nil
		g.Expect(Decode(event)).To(Succeed())
		read, err := json.Marshal(event.Alerts)
		g.Expect(err).NotTo(HaveOccurred())
		var want []v1alpha1.Alert
		g.Expect(json.Unmarshal(text, &want)).To(Succeed())
		again, err := json.Marshal(want)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(read)).To(Equal(string(again)))
	})
	if compressed == 0 || plain == 0 {
		t.Errorf("%d were compressed, and %d not", compressed, plain)
	}
}

func TestTheBoundsOfAText(t *testing.T) {
	alert := func(more string) string { return `{"dedupKey":"k","status":"firing"` + more + `}` }
	nested := func(levels int) string {
		return "[" + alert(`,"custom":{"a":`+strings.Repeat("[", levels)+strings.Repeat("]", levels)+"}") + "]"
	}
	entries := func(n, alerts int) string {
		var bag []string
		for i := range n {
			bag = append(bag, fmt.Sprintf(`"%05d":1`, i))
		}
		return "[" + strings.Repeat(alert(`,"custom":{`+strings.Join(bag, ",")+"}")+",", alerts-1) + alert("") + "]"
	}
	for sentence, test := range map[string]struct{ text, message string }{
		"as many levels as there may be":        {nested(maxDepth - 3), ""},
		"one more":                              {nested(maxDepth - 2), "nested deeper"},
		"brackets within a text":                {"[" + alert(`,"title":"`+strings.Repeat("[{", maxDepth)+`"`) + "]", ""},
		"brackets behind a quote in a text":     {"[" + alert(`,"title":"\"`+strings.Repeat("[", 2*maxDepth)+`"`) + "]", ""},
		"levels behind a backslash in a text":   {"[" + alert(`,"title":"\\","custom":{"a":`+strings.Repeat("[", maxDepth)+strings.Repeat("]", maxDepth)+"}") + "]", "nested deeper"},
		"colons deep in a bag take no memory":   {"[" + alert(`,"custom":{"a":[`+strings.Repeat(`{"b":1},`, 100_000)+`1]}`) + "]", ""},
		"entries of bags take memory":           {entries(2000, 41), ""},
		"more entries of bags":                  {entries(2000, 44), "bytes of memory"},
		"as many alerts as there may be":        {"[" + strings.Repeat(alert("")+",", v1alpha1.MaxAlertsPerEvent-1) + alert("") + "]", ""},
		"alerts take memory, whatever they are": {"[" + strings.Repeat("1,", maxMemory/int(unsafe.Sizeof(v1alpha1.Alert{}))) + "1]", "bytes of memory"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g, event := NewWithT(t), &v1alpha1.AlertEvent{Spec: v1alpha1.AlertEventSpec{Alerts: v1alpha1.AlertsText(test.text)}}
			if err := Decode(event); test.message == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(test.message)))
			}
		})
	}
}

func TestWhatAlertsTakeInMemory(t *testing.T) {
	g := NewWithT(t)
	identity := v1alpha1.Alert{ID: "12", IncidentName: "123", DedupKey: "1234", By: "12345"}
	one := int64(unsafe.Sizeof(identity)) + 14
	g.Expect(IdentitySize([]v1alpha1.Alert{identity, identity})).To(Equal(2 * one))
	event := &v1alpha1.AlertEvent{Alerts: []v1alpha1.Alert{identity}}
	content := int64(alertcontent.Size(&identity.AlertContent))
	g.Expect(MemorySize(event)).To(Equal(one + content))
	event.Alerts[0].Comment = "123456"
	g.Expect(MemorySize(event)).To(Equal(one + content + 6))
	before := alertcontent.Size(&event.Alerts[0].AlertContent)
	event.Alerts[0].Labels = v1alpha1.Texts{"a": "1", "b": "2"}
	grown := int64(alertcontent.Size(&event.Alerts[0].AlertContent) - before)
	g.Expect(MemorySize(event)).To(Equal(one + content + 6 + grown + 2*entryBytes))
	event.Spec.Defaults = &v1alpha1.AlertDefaults{Type: "12", Title: "123", Labels: map[string]v1alpha1.LabelValue{"name": "value"}}
	g.Expect(MemorySize(event)).To(Equal(one + content + 6 + grown + 2*entryBytes + 5 + 9 + entryBytes))
	g.Expect(StoredSize(&v1alpha1.AlertEventSpec{Report: &v1alpha1.Report{DedupKey: "12", By: "123", Comment: "1234"}})).To(Equal(9))
}

func TestTheSummaryOfOneAlert(t *testing.T) {
	g, event := NewWithT(t), &v1alpha1.AlertEvent{Alerts: []v1alpha1.Alert{{DedupKey: "disk", Status: v1alpha1.AlertFiring}}}
	g.Expect(Encode(event)).To(Succeed())
	g.Expect(event.Spec.Summary).To(Equal("firing: disk"))
	event.Alerts = append(event.Alerts, event.Alerts[0])
	g.Expect(Encode(event)).To(Succeed())
	g.Expect(event.Spec.Summary).To(Equal("firing: disk, and 1 more"))
}
