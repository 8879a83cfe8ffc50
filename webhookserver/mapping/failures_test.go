package mapping_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// costly is an expression that costs so much that it is stopped, where alert.heavy is true.
const costly = `alert.?heavy.orValue(false) ? string(` + ten + `.map(i, ` + ten + `.map(j, ` + ten + `.map(k, ` + ten +
	`.map(l, i + j + k + l)))).size()) : alert.name`

const ten = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"

// TestAnAlertThatCostsTooMuchLeavesItsNeighboursAlone stops expressions at the first, or at every third alert.
func TestAnAlertThatCostsTooMuchLeavesItsNeighboursAlone(t *testing.T) {
	for sentence, isHeavy := range map[string]func(i int) bool{
		"one":           func(i int) bool { return i == 0 },
		"several":       func(i int) bool { return i < 20 },
		"every second":  func(i int) bool { return i%2 == 0 },
		"all but last":  func(i int) bool { return i < mapping.MaxAlerts-1 },
		"none but last": func(i int) bool { return i == mapping.MaxAlerts-1 },
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			program := compiled(t, "fields: {title: "+quoted(costly)+", dedupKey: alert.name}")
			heavy := 0
			body := "[" + sequence(mapping.MaxAlerts, func(i int) string {
				if isHeavy(i) {
					heavy++
				}
				return fmt.Sprintf(`{"name":"n%d","heavy":%t}`, i, isHeavy(i))
			}) + "]"
			result := readBody(t, program, body, nil)
			for i := range result.Alerts {
				if !isHeavy(i) {
					g.Expect(result.Alerts[i].Title).To(Equal(fmt.Sprintf("n%d", i)))
					g.Expect(result.Alerts[i].DedupKey).To(Equal(fmt.Sprintf("n%d", i)))
					g.Expect(result.Alerts[i].Warnings).To(BeEmpty())
				}
			}
			g.Expect(result.Failures).NotTo(BeEmpty())
			for _, failure := range result.Failures {
				g.Expect(failure.Count).To(BeNumerically("<=", heavy))
			}
		})
	}
}

func TestAnAlertAloneMayCostMore(t *testing.T) {
	g := NewWithT(t)
	program := compiled(t, `fields: {title: "string(`+ten+`.map(i, `+ten+`.map(j, `+ten+`.map(k, i + j + k))).flatten().flatten().size())"}`)
	g.Expect(readBody(t, program, `{}`, nil).Alerts[0].Title).To(Equal("1000"))
}

// over is a Pauser whose time is over.
type over struct{}

func (over) Pause()       {}
func (over) IsOver() bool { return true }

// TestWhatRanOutOfTimeIsNotRead interrupts evaluations, also one whose interruption another operand makes up for.
func TestWhatRanOutOfTimeIsNotRead(t *testing.T) {
	for sentence, text := range map[string]string{
		"a path":           `fields: {dedupKey: alert.name}`,
		"a loop":           `fields: {dedupKey: "alert.list.map(x, string(x)).join()"}`,
		"a loop or true":   `fields: {status: "alert.list.exists(x, x > 1000) || true ? 'resolved' : 'firing'"}`,
		"finding alerts":   `{alerts: "payload.list.map(x, {'title': string(x)})"}`,
		"deciding to drop": `drop: alert.list.exists(x, x > 1000)`,
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			value, _, err := payload.ParseAny([]byte(`{"name":"n","list":[` + sequence(300, func(i int) string { return fmt.Sprint(i) }) + `]}`))
			g.Expect(err).NotTo(HaveOccurred())
			result, err := compiled(t, text).AlertsWithQuery(over{}, value, nil, nil, received)
			g.Expect(err).To(MatchError(mapping.ErrInterrupted))
			g.Expect(result.Alerts).To(BeEmpty())
		})
	}
}

func TestFailuresAreCounted(t *testing.T) {
	for sentence, test := range map[string]struct {
		mapping, body string
		failures      []mapping.Failure
	}{
		"none": {`fields: {title: 'alert.?name'}`, `{}`, nil},
		"a missing key": {`fields: {title: alert.name}`, `[{},{"name":"x"},{}]`,
			[]mapping.Failure{{Field: "title", Expression: "alert.name", Message: "no such key: name", Count: 2}}},
		"those that matter most come first": {`fields: {title: alert.t, status: alert.s, dedupKey: alert.d}`, `{}`, []mapping.Failure{
			{Field: "dedupKey", Expression: "alert.d", Message: "no such key: d", Count: 1},
			{Field: "status", Expression: "alert.s", Message: "no such key: s", Count: 1},
			{Field: "title", Expression: "alert.t", Message: "no such key: t", Count: 1}}},
		"finding the alerts": {`alerts: payload.list`, `{}`,
			[]mapping.Failure{{Field: "alerts", Expression: "payload.list", Message: "no such key: list", Count: 1}}},
		"deciding to drop": {`drop: alert.kind`, `{"kind":"x"}`,
			[]mapping.Failure{{Field: "drop", Expression: "alert.kind", Message: "it is neither true nor false", Count: 1}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(readBody(t, compiled(t, test.mapping), test.body, nil).Failures).To(Equal(test.failures))
		})
	}
}

// TestAStatusThatCannotBeToldNeverResolves makes the expression of the status fail on payloads whose own status is any word.
func TestAStatusThatCannotBeToldNeverResolves(t *testing.T) {
	g := NewWithT(t)
	program := compiled(t, `fields: {status: "alert.state.code == 0 ? 'resolved' : 'firing'", dedupKey: alert.id}`)
	for _, word := range []string{"resolved", "ok", "up", "closed", "acknowledged", "firing", "odd", ""} {
		encoded, _ := json.Marshal(map[string]string{"status": word, "id": "k"})
		alert := readBody(t, program, string(encoded), nil).Alerts[0]
		g.Expect(alert.Status).To(Equal(v1alpha1.AlertFiring), word)
		g.Expect(strings.Contains(string(alert.Custom["status"]), word)).To(BeTrue(), "the word is kept")
	}
}
