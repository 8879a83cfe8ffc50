package webhookserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/queue"
)

// TestOriginsAreStored posts requests that give fields beside the payload.
func TestOriginsAreStored(t *testing.T) {
	const action = "/v2/alerts/disk-1"
	for sentence, c := range map[string]struct {
		target, body string
		change       []func(*http.Request)
		want         string
	}{
		"a generated key":                          {"", `{"title": "a"}`, nil, "//k--bg"},
		"a parameter that the payload lacks":       {"?severity=critical&region=eu", `{"title": "a", "region": "us"}`, nil, "//k-rbg---k"},
		"a parameter beside a list":                {"?severity=critical", `[{"title": "a", "priority": "P1"}]`, nil, "//k-abg"},
		"a parameter for the first one of a list":  {"?severity=critical", `[{"title": "a"}, {"title": "b"}]`, nil, "//k-rbg"},
		"the attributes of an event":               {"", `{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "time": "2026-01-01T00:00:00Z", "data": {"message": "b"}}`, []func(*http.Request){with("Content-Type", eventType)}, "//-a-brr---r--r--r"},
		"an alias in the path, and a status of it": {action + "/unacknowledge", `{"source": "x"}`, nil, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(testPath+c.target, c.body, c.change...)
			g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
			origins := b.storedAlerts()[0].Origins
			if c.want == "" {
				g.Expect(origins).To(MatchRegexp(`^/[\w-]{6}/[p-]{3}rp`), "the action, rather than the expression, tells the status")
				return
			}
			g.Expect(origins).To(Equal(c.want))
		})
	}
}

func TestADryRunHasSourcesInsteadOfOrigins(t *testing.T) {
	g := NewWithT(t)
	_, answer, code := answerTo(t, "", nil, testPath+"?dryRun=true&severity=info", `{"title": "a", "dedup_key": "k"}`)
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(answer.Alerts[0].Alert.Origins).To(BeEmpty())
	g.Expect(answer.Alerts[0].Sources).To(ContainElement(And(HaveField("Field", "severity"), HaveField("From", "request"))))
}

// TestOriginsAreSmall bounds what they add to a stored AlertEvent: each alert alone, and many in one that is compressed.
func TestOriginsAreSmall(t *testing.T) {
	g := NewWithT(t)
	const usual = `{"title":"Disk full on node-17","description":"92%% used","severity":"P1","dedup_key":"disk-%d",` +
		`"hostname":"node-17","labels":{"cluster":"eu-1","device":"sda1"},"values":{"used":0.92},"team":"storage"}`
	const notification = `{"status":"firing","fingerprint":"%d","labels":{"alertname":"Down","severity":"critical"},` +
		`"annotations":{"summary":"Down"},"startsAt":"2026-01-01T00:00:00Z"}`
	for name, c := range map[string]struct {
		preset, around, alert string
		each, ofMany          int // bytes
	}{
		"own format": {"", "[%s]", usual, 35, 4},
		"a preset":   {"alertmanager", `{"alerts":[%s]}`, notification, 45, 4},
	} {
		stored := func(n int) (with, without int) {
			var list []string
			for i := range n {
				list = append(list, fmt.Sprintf(c.alert, i))
			}
			alerts, _, code := answerTo(t, c.preset, nil, testPath, fmt.Sprintf(c.around, strings.Join(list, ",")))
			g.Expect(code).To(Equal(http.StatusAccepted))
			for _, size := range []*int{&with, &without} {
				event := v1alpha1.AlertEvent{Alerts: alerts}
				g.Expect(queue.Encode(&event)).To(Succeed())
				*size = len(event.Spec.Alerts)
				for i := range alerts {
					alerts[i].Origins = ""
				}
			}
			return with, without
		}
		with, without := stored(1)
		t.Logf("%s, one alert: %d bytes, without origins %d", name, with, without)
		g.Expect(with-without).To(BeNumerically("<=", c.each), name)
		const many = 300
		with, without = stored(many)
		t.Logf("%s, %d alerts: %d bytes, without origins %d", name, many, with, without)
		g.Expect((with-without)/many).To(BeNumerically("<=", c.ofMany), name)
	}
}

// TestOriginsOfAnAlertThatFillsAllItsBounds has content of the greatest size, so that what is written after it was bounded counts.
func TestOriginsOfAnAlertThatFillsAllItsBounds(t *testing.T) {
	g := NewWithT(t)
	var keys strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&keys, `"key-%d":"%s",`, i, "xxxxxxxxxx")
	}
	alerts, _, code := answerTo(t, "", nil, testPath, `{`+keys.String()+`"Title":"a","severity":"odd"}`)
	g.Expect(code).To(Equal(http.StatusAccepted))
	g.Expect(alerts).To(HaveLen(1))
	encoded, err := json.Marshal(alerts[0].AlertContent)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(encoded)).To(BeNumerically("<=", 176<<10))
	g.Expect(len(alerts[0].Origins)).To(BeNumerically("<=", 40))
}
