package webhookserver

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

const (
	// groupOfOne is a payload of Alertmanager's, and pingdomDown one of Pingdom's.
	groupOfOne = `{"receiver":"tocsin","status":"firing","groupKey":"{}:{}","groupLabels":{},"alerts":[{"status":"firing",` +
		`"labels":{"alertname":"DiskFull"},"startsAt":"2026-03-01T11:52:08Z","fingerprint":"f1"}]}`
	pingdomDown = `{"check_id": 17, "check_params": {}, "current_state": "DOWN", "check_name": "Shop"}`
)

func snsAround(message string) string {
	return fmt.Sprintf(`{"Type":"Notification","MessageId":"m-1","TopicArn":"arn:aws:sns:eu-west-1:1:alarms","Subject":"x",`+
		`"Message":%s,"Signature":"secret","UnsubscribeURL":"https://sns.eu-west-1.amazonaws.com/?Action=Unsubscribe"}`, strconv.Quote(message))
}

func gridAround(data string) string {
	return `{"id":"1","eventType":"Example.Alert","eventTime":"2026-03-01T11:53:00Z","subject":"s","dataVersion":"1","data":` + data + `}`
}

// TestEnvelopes has the payload of one tool in those of others.
func TestEnvelopes(t *testing.T) {
	pubsub := fmt.Sprintf(`{"subscription":"projects/a/subscriptions/b","message":{"messageId":"7","data":%q}}`,
		base64.StdEncoding.EncodeToString([]byte(pingdomDown)))
	bridged := `{"detail-type":"Alert","source":"example","id":"e-1","detail":` + pingdomDown + `}`
	for sentence, c := range map[string]struct {
		preset, body string
		keys         string
	}{
		"SNS":                                {"", snsAround(groupOfOne), "alertmanager/f1"},
		"SNS, and the preset of the tool":    {"alertmanager", snsAround(groupOfOne), "f1"},
		"SNS, and its own preset":            {"sns-cloudwatch", snsAround(groupOfOne), "alertmanager/f1"},
		"SNS around a tool that is not read": {"grafana", snsAround(pingdomDown), ""},
		"EventBridge":                        {"", bridged, "pingdom/17"},
		"EventBridge in SNS":                 {"", snsAround(bridged), "pingdom/17"},
		"three envelopes":                    {"", `{"body":` + strconv.Quote(snsAround(bridged)) + `}`, "aws-eventbridge/e-1"},
		"Event Grid":                         {"", `[` + gridAround(pingdomDown) + `,` + gridAround(groupOfOne) + `]`, "pingdom/17 alertmanager/f1"},
		"Pub/Sub":                            {"", pubsub, "pingdom/17"},
		"a CloudEvent without its type":      {"", `{"specversion":"1.0","type":"a","source":"b","id":"1","data":` + pingdomDown + `}`, "pingdom/17"},
		"a payload that is an object":        {"", `{"payload":` + pingdomDown + `}`, "pingdom/17"},
		"a body that is a text":              {"", `{"statusCode":200,"body":` + strconv.Quote(pingdomDown) + `}`, "pingdom/17"},
		"a message that is a text":           {"", `{"message":` + strconv.Quote(pingdomDown) + `}`, "pingdom/17"},
		"the message of our own format":      {"", `{"title":"a","dedup_key":"own","message":` + strconv.Quote(pingdomDown) + `}`, "own"},
		"JSON that no tool sends":            {"", `{"dedup_key":"own","message":"{\"a\":1}"}`, "own"},
		"no preset is wanted":                {mapping.None, snsAround(pingdomDown), ""},
		"an alarm in SNS is the preset's":    {"", snsAround(`{"AlarmName":"a","NewStateValue":"ALARM","AlarmArn":"arn:a"}`), "sns-cloudwatch/arn:a"},
		"a text that is no JSON":             {"", snsAround("{not JSON}"), "sns-cloudwatch/m-1"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			alerts, _, code := answerTo(t, c.preset, nil, testPath, c.body)
			g.Expect(code).To(Equal(http.StatusAccepted))
			var keys []string
			for i := range alerts {
				keys = append(keys, alerts[i].DedupKey)
				g.Expect(fmt.Sprint(alerts[i].Custom)).NotTo(ContainSubstring("secret"))
			}
			if c.keys != "" {
				g.Expect(strings.Join(keys, " ")).To(Equal(c.keys))
			} else {
				g.Expect(keys).To(HaveLen(1))
				g.Expect(keys[0]).NotTo(ContainSubstring("pingdom"))
			}
		})
	}
}

// TestTheKeyOfTheQueryIsForOneEvent has several events in a request whose query has a key.
func TestTheKeyOfTheQueryIsForOneEvent(t *testing.T) {
	for body, same := range map[string]bool{
		"[" + gridAround(`{"a":1}`) + "," + gridAround(`{"a":2}`) + "]": false,
		"[" + gridAround(`{"a":1}`) + "]":                               true,
	} {
		g := NewWithT(t)
		b := newBench()
		g.Expect(b.post(testPath+"?dedup_key=k", body).StatusCode).To(Equal(http.StatusAccepted))
		for i := range b.store.Stored()[0].Alerts {
			g.Expect(b.store.Stored()[0].Alerts[i].DedupKey == "k").To(Equal(same))
		}
	}
}

func TestWhatAnEnvelopeSaysIsKept(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	g.Expect(b.post(testPath, snsAround(groupOfOne)).StatusCode).To(Equal(http.StatusAccepted))
	alert := b.store.Stored()[0].Alerts[0]
	g.Expect(string(alert.Custom["envelope"])).To(MatchJSON(
		`{"Type":"Notification","MessageId":"m-1","TopicArn":"arn:aws:sns:eu-west-1:1:alarms","Subject":"x"}`))
}

// TestAzureEventGridAsks has the question answered that Event Grid asks before it sends events.
func TestAzureEventGridAsks(t *testing.T) {
	question := strings.Replace(gridAround(`{"validationCode":"512d38b6","validationUrl":"https://example.com"}`),
		"Example.Alert", "Microsoft.EventGrid.SubscriptionValidationEvent", 1)
	for sentence, c := range map[string]struct {
		body   string
		answer string // empty: it is an alert
	}{
		"the question":       {"[" + question + "]", `{"validationResponse":"512d38b6"}`},
		"two questions":      {"[" + question + "," + question + "]", ""},
		"one without a code": {"[" + strings.Replace(question, "validationCode", "code", 1) + "]", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(testPath, c.body)
			body, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			if c.answer == "" {
				g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
				return
			}
			g.Expect(response.StatusCode).To(Equal(http.StatusOK))
			g.Expect(string(body)).To(MatchJSON(c.answer))
			g.Expect(b.store.Stored()).To(BeEmpty())
		})
	}
	for _, path := range []string{"/v2/enqueue", "/api/v2/alerts"} {
		t.Run("the question to "+path, func(t *testing.T) {
			g, b := NewWithT(t), newBench()
			response := b.post(testPath+path, "["+question+"]")
			g.Expect(response.StatusCode).To(Equal(http.StatusOK))
			g.Expect(io.ReadAll(response.Body)).To(MatchJSON(`{"validationResponse":"512d38b6"}`))
		})
	}
	g := NewWithT(t)
	g.Expect(newBench().post(eventsPath+"/no-token", "["+question+"]").StatusCode).To(Equal(http.StatusUnauthorized))
	code, answer, failures := Explain(t.Context(), Reader{WebhookIntegration: integration("team-a", "prometheus")}, nil, []byte("["+question+"]"))
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(string(answer)).To(MatchJSON(`{"validationResponse":"512d38b6"}`))
	g.Expect(failures).To(BeEmpty())
}

// TestHandshakes has tools that wait for a person: the answer and the integration say what is to be done.
func TestHandshakes(t *testing.T) {
	confirm := func(url string) string {
		return `{"Type":"SubscriptionConfirmation","MessageId":"m-1","TopicArn":"arn:aws:sns:eu-west-1:1:alarms","Token":"t",` +
			`"Message":"You have chosen to subscribe","SubscribeURL":` + strconv.Quote(url) + `}`
	}
	const open = "Amazon SNS sends nothing before somebody confirms the subscription: open "
	for sentence, c := range map[string]struct{ preset, body, query, want string }{
		"SNS":                {"", confirm("https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription"), "", open + "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription"},
		"SNS, a dry run":     {"", confirm("https://sns.eu-west-1.amazonaws.com/?a"), "?dryRun=true", open + "https://sns.eu-west-1.amazonaws.com/?a"},
		"another address":    {"", confirm("https://sns.eu-west-1.amazonaws.com.evil.example/?a"), "", open + "the SubscribeURL of the message, if it is one of Amazon"},
		"Netdata":            {"netdata", `{"title":"Test","message":"This is a test.","token":"c2fd1e0b"}`, "", "Netdata sends nothing before its test is confirmed: enter the token c2fd1e0b there"},
		"a message of SNS's": {"", snsAround("hello"), "", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			w := integration("team-a", "prometheus")
			w.Spec.Preset = c.preset
			b.tokens.set(w)
			response := b.post(testPath+c.query, c.body)
			body, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.StatusCode).To(BeElementOf(http.StatusAccepted, http.StatusOK))
			if c.want == "" {
				g.Expect(b.reports.texts).To(BeEmpty())
				return
			}
			g.Expect(string(body)).To(ContainSubstring(c.want))
			if c.query == "" {
				g.Expect(b.reports.texts).To(ContainElement("prometheus: " + c.want))
			} else {
				g.Expect(b.reports.texts).To(BeEmpty())
			}
		})
	}
}

// TestAResolveThatCanMatchNothingSaysSo ends things under keys that nothing else has.
func TestAResolveThatCanMatchNothingSaysSo(t *testing.T) {
	for sentence, c := range map[string]struct {
		body string
		says bool
	}{
		"without a key":                {`{"title":"a","status":"resolved"}`, true},
		"of a message, by its own key": {snsAround(`{"title":"a","status":"resolved"}`), true},
		"with a key":                   {`{"title":"a","status":"resolved","dedup_key":"k"}`, false},
		"of an alarm":                  {snsAround(`{"AlarmName":"a","NewStateValue":"OK","AlarmArn":"arn:a"}`), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(testPath, c.body)
			body, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
			g.Expect(strings.Contains(string(body), "matches no incident without it")).To(Equal(c.says), string(body))
		})
	}
}
