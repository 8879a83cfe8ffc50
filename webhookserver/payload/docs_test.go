package payload_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// section is the text of docs/payload.md between a heading and the next one of its level.
func section(t *testing.T, heading string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(testenv.Root(), "docs/payload.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(content), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/payload.md has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// rows are the rows of the tables in a text, each with its cells.
func rows(text string) [][]string {
	var found [][]string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		found = append(found, cells)
	}
	return found
}

// codes are the words in backticks.
func codes(text string) []string {
	var found []string
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

func TestExamplesInTheDocumentation(t *testing.T) {
	fence := regexp.MustCompile("(?s)```json (payload|alert|warnings)\n(.*?)```")
	examples := strings.Split(section(t, "Examples"), "\n### ")[1:]
	NewWithT(t).Expect(len(examples)).To(BeNumerically(">=", 7))
	for _, text := range examples {
		name, _, _ := strings.Cut(text, "\n")
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			blocks := map[string]string{"warnings": "[]"}
			for _, match := range fence.FindAllStringSubmatch(text, -1) {
				blocks[match[1]] = match[2]
			}
			object, warnings, err := payload.Parse([]byte(blocks["payload"]))
			g.Expect(err).NotTo(HaveOccurred())
			alert, _, more := payload.Read(object, time.Date(2024, 1, 15, 12, 0, 0, 0, time.UTC))
			g.Expect(encode(t, alert)).To(MatchJSON(blocks["alert"]))
			g.Expect(encode(t, append(append([]payload.Warning{}, warnings...), more...))).To(MatchJSON(blocks["warnings"]))
		})
	}
}

func TestFieldsInTheDocumentation(t *testing.T) {
	g := NewWithT(t)
	want := map[string][]string{"labels": nil, "annotations": nil, "values": nil, "custom": nil}
	for _, rule := range payload.Rules {
		want[rule.Field()] = rule.Aliases()
	}
	documented := map[string][]string{}
	for _, row := range rows(section(t, "Fields")) {
		if len(row) == 4 && strings.HasPrefix(row[0], "`") {
			documented[codes(row[0])[0]] = codes(row[1])
		}
	}
	g.Expect(documented).To(Equal(want))
}

func TestSeveritiesInTheDocumentation(t *testing.T) {
	g := NewWithT(t)
	documented := map[v1alpha1.Severity][]string{}
	for _, row := range rows(section(t, "Severity"))[1:] {
		severity := v1alpha1.Severity(codes(row[0])[0])
		for _, word := range codes(row[1]) {
			documented[severity] = append(documented[severity], strings.ReplaceAll(word, " ", ""))
			alert, _, warnings := payload.Read(map[string]any{"severity": strings.ToUpper(word)}, received)
			g.Expect(alert.Severity).To(Equal(severity), word)
			g.Expect(warnings).To(BeEmpty(), word)
		}
	}
	g.Expect(documented).To(Equal(payload.SeverityWords))
}

func TestStatusesInTheDocumentation(t *testing.T) {
	g := NewWithT(t)
	documented := map[string][]string{}
	for _, row := range rows(section(t, "Status"))[1:] {
		status, warns := codes(row[0])[0], row[2] == "yes"
		if strings.HasPrefix(row[1], "anything else") {
			continue
		}
		documented[status+" "+row[2]] = codes(row[1])
		for _, word := range codes(row[1]) {
			alert, _, warnings := payload.Read(map[string]any{"status": strings.ToUpper(word), "dedup_key": "k"}, received)
			g.Expect(string(alert.Status)).To(Equal(status), word)
			g.Expect(len(warnings) == 1).To(Equal(warns), word)
		}
	}
	g.Expect(documented).To(Equal(map[string][]string{
		"resolved no":       {"resolved"},
		"resolved yes":      payload.ResolvedSynonyms,
		"acknowledged no":   {"acknowledged"},
		"unacknowledged no": {payload.Unacknowledge},
		"firing no":         slices.Concat([]string{"firing"}, payload.FiringSynonyms),
	}))
}

func TestTimesInTheDocumentation(t *testing.T) {
	g := NewWithT(t)
	for _, row := range rows(section(t, "Times"))[1:] {
		for _, text := range codes(row[1]) {
			alert, _, warnings := payload.Read(map[string]any{"starts_at": text}, received)
			g.Expect(warnings).To(BeEmpty(), text)
			g.Expect(alert.StartTime.Time).To(BeTemporally("~", time.Date(2024, 1, 15, 10, 0, 0, 0, time.UTC), time.Hour), text)
		}
	}
}

func TestLimitsInTheDocumentation(t *testing.T) {
	g := NewWithT(t)
	documented := map[string]int{}
	for _, row := range rows(section(t, "Limits"))[1:] {
		number, _, _ := strings.Cut(row[1], " ")
		limit, err := strconv.Atoi(strings.ReplaceAll(number, ",", ""))
		g.Expect(err).NotTo(HaveOccurred())
		documented[row[0]] = limit
	}
	want := map[string]int{
		"all of an alert's content, as stored":                                                     alertcontent.MaxBytes,
		"the keys of `labels`, `annotations`, `values` and `custom` together, without nested ones": alertcontent.MaxKeys,
	}
	maps.Copy(want, payload.Limits)
	g.Expect(documented).To(Equal(want))
}

// The typical payload of the benchmark uses every field, so that it measures every rule.
func TestTheTypicalPayloadUsesEveryField(t *testing.T) {
	g := NewWithT(t)
	var object map[string]any
	g.Expect(json.Unmarshal(typicalPayload(t), &object)).To(Succeed())
	for _, rule := range payload.Rules {
		if rule.Field() != "ends_at" && rule.Field() != "expires_at" {
			g.Expect(object).To(HaveKey(rule.Field()))
		}
	}
}
