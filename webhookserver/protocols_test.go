package webhookserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// method changes the method of a request.
func method(name string) func(*http.Request) {
	return func(r *http.Request) { r.Method = name }
}

// storedAlerts are all alerts that the bench has stored, in order.
func (b *bench) storedAlerts() []v1alpha1.Alert {
	var alerts []v1alpha1.Alert
	for _, event := range b.store.Stored() {
		alerts = append(alerts, event.Alerts...)
	}
	return alerts
}

// answered decodes an answer that is any JSON object.
func answered(g *WithT, response *http.Response) map[string]any {
	g.Expect(response.Header.Get("Content-Type")).To(Equal("application/json"))
	return decode[map[string]any](g, response)
}

func TestPagerDutyEvents(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	for _, action := range []string{"trigger", "acknowledge", "resolve"} {
		body := fmt.Sprintf(`{"routing_key": "R0", "event_action": %q, "dedup_key": "srv01/mysql",
			"payload": {"summary": "DISK at 99%%", "source": "srv01", "severity": "critical"}}`, action)
		response := b.post(testPath+"/v2/enqueue", body)
		g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
		g.Expect(answered(g, response)).To(Equal(
			map[string]any{"status": "success", "message": "Event processed", "dedup_key": "srv01/mysql"}))
	}
	alerts := b.storedAlerts()
	g.Expect([]v1alpha1.AlertStatus{alerts[0].Status, alerts[1].Status, alerts[2].Status}).To(
		Equal([]v1alpha1.AlertStatus{v1alpha1.AlertFiring, v1alpha1.AlertAcknowledged, v1alpha1.AlertResolved}))
	g.Expect(alerts[0].Title).To(Equal("DISK at 99%"))
	for _, alert := range alerts {
		g.Expect(alert.IncidentName).To(Equal(v1alpha1.IncidentName("prometheus", "srv01/mysql")))
		g.Expect(alert.Custom).NotTo(HaveKey("routing_key"))
	}

	response := b.post(testPath+"/v2/enqueue", `{"payload": {"summary": "no key"}}`)
	g.Expect(answered(g, response)["dedup_key"]).To(HavePrefix("tocsin:"), "the key with which the sender may resolve")
	response = b.post(testPath+"/v2/enqueue", `{"payload": `)
	g.Expect(response.StatusCode).To(Equal(http.StatusBadRequest))
	g.Expect(answered(g, response)).To(And(HaveKeyWithValue("status", "invalid event"),
		HaveKeyWithValue("message", "The body is not valid JSON"), HaveKeyWithValue("errors", HaveLen(1))))
	b.ready = func() bool { return false }
	response = b.post(testPath+"/v2/enqueue", `{}`)
	g.Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
	g.Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
	g.Expect(answered(g, response)).To(HaveKeyWithValue("status", "error"))
}

// TestPagerDutyRefusesWhatItsAPIRefuses covers events that client libraries expect to be refused, and triggers that lack what
// PagerDuty requires.
func TestPagerDutyRefusesWhatItsAPIRefuses(t *testing.T) {
	for sentence, event := range map[string]string{
		"an unknown action":            `{"event_action": "snooze", "dedup_key": "k", "payload": {"summary": "Disk full"}}`,
		"an action in capital letters": `{"event_action": "TRIGGER", "payload": {"summary": "Disk full"}}`,
		"a trigger without a payload":  `{"event_action": "trigger", "dedup_key": "k"}`,
		"a trigger with a text for it": `{"event_action": "trigger", "payload": "Disk full"}`,
		"a resolve without a key":      `{"event_action": "resolve", "payload": {"summary": "Disk full"}}`,
		"a resolve with an empty key":  `{"event_action": "resolve", "dedup_key": ""}`,
		"an acknowledge without a key": `{"event_action": "acknowledge"}`,
		"a list":                       `[{"event_action": "trigger", "payload": {"summary": "Disk full"}}]`,
		"nothing that PagerDuty knows": `{"title": "Disk full"}`,
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(testPath+"/v2/enqueue", event)
			g.Expect(response.StatusCode).To(Equal(http.StatusBadRequest))
			g.Expect(answered(g, response)).To(And(HaveKeyWithValue("status", "invalid event"), HaveKeyWithValue("errors", HaveLen(1))))
			g.Expect(b.storedAlerts()).To(BeEmpty())
		})
	}
	g := NewWithT(t)
	b := newBench()
	dry := b.post(testPath+"/v2/enqueue?dryRun=true", `{"event_action": "trigger", "dedup_key": "k", "payload": {"source": "db-1"}}`)
	g.Expect(dry.StatusCode).To(Equal(http.StatusOK))
	var fields []any
	for _, warning := range decode[map[string]any](g, dry)["warnings"].([]any) {
		fields = append(fields, warning.(map[string]any)["field"])
	}
	g.Expect(fields).To(ConsistOf("payload.summary", "payload.severity"))
}

func TestALargePagerDutyEvent(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	const largest = 512_000 // of Alertmanager's
	body := `{"dedup_key": "k", "event_action": "trigger", "payload": {"summary": "Many pods crash", "custom_details": {"firing": "`
	body += strings.Repeat("x", largest-len(body)-len(`"}}}`)) + `"}}}`
	response := b.post(testPath+"/v2/enqueue", body)
	g.Expect(response.StatusCode).To(Equal(http.StatusAccepted), "it would not come again")
	g.Expect(b.storedAlerts()[0].Title).To(Equal("Many pods crash"))
	g.Expect(b.post(testPath+"/v2/alerts", body).StatusCode).To(Equal(http.StatusRequestEntityTooLarge))
}

func TestTheMappingOfAnotherPresetIsNotUsed(t *testing.T) {
	const event = `{"dedup_key": "k", "payload": {"summary": "from PagerDuty"}}`
	title := &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Title: `"my own"`}}
	for sentence, test := range map[string]struct{ preset, title string }{
		"a mapping over the preset of the path replaces its fields":  {"pagerduty", "my own"},
		"a mapping over another preset was written for that":         {"alertmanager", "from PagerDuty"},
		"a mapping without a preset was written for another payload": {"", "from PagerDuty"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			w := integration("team-a", "prometheus")
			w.Spec.Preset, w.Spec.Mapping = test.preset, title
			b.tokens.set(w)
			g.Expect(b.post(testPath+"/v2/enqueue", event).StatusCode).To(Equal(http.StatusAccepted))
			g.Expect(b.storedAlerts()[0].Title).To(Equal(test.title))
			g.Expect(b.reports.reasons).To(BeEmpty())
		})
	}
}

func TestOpsgenieAlerts(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	key := with("Authorization", "GenieKey "+testToken)
	send := func(verb, path, body string) map[string]any {
		response := b.post(path, body, key, method(verb))
		g.Expect(response.StatusCode).To(Equal(http.StatusAccepted), "%s %s", verb, path)
		answer := answered(g, response)
		g.Expect(answer).To(And(HaveKeyWithValue("result", "Request will be processed"),
			HaveKeyWithValue("took", BeNumerically(">", 0)), HaveKey("requestId")))
		return answer
	}
	created := send("POST", "/v2/alerts", `{"message": "Disk full", "alias": "disk/db 1", "priority": "P1", "tags": ["env:prod"]}`)
	const path = eventsPath + "/v2/alerts/disk%2Fdb%201"
	send("POST", path+"/acknowledge?identifierType=alias", `{"user": "maria", "note": "on it"}`)
	send("POST", path+"/unacknowledge?identifierType=alias", `{"note": "not me"}`)
	send("POST", path+"/notes?identifierType=alias", `{"note": "a disk\nis ordered", "source": "chat"}`)
	send("PUT", path+"/message?identifierType=alias", `{"message": "Disk very full"}`)
	send("PUT", path+"/description?identifierType=alias", `{"description": "no space"}`)
	send("PUT", path+"/priority?identifierType=alias", `{"priority": "P3"}`)
	send("POST", path+"/tags?identifierType=alias", `{"tags": ["team:a"], "user": "maria"}`)
	send("PUT", path+"/tags?identifierType=alias", `{"tags": ["team:a"]}`)
	send("POST", path+"/details?identifierType=alias", `{"details": {"mount": "/var"}, "user": "maria"}`)
	send("POST", path+"/close?identifierType=alias", ``)

	alerts := b.storedAlerts()
	g.Expect(alerts).To(HaveLen(11))
	for i, want := range []v1alpha1.Alert{
		{Status: "firing", AlertContent: v1alpha1.AlertContent{Title: "Disk full", Severity: "critical"}},
		{Status: "acknowledged", Comment: "maria: on it"},
		{Status: "unacknowledged", Comment: "not me"},
		{Status: "noted", Comment: "a disk is ordered"},
		{Status: "noted", AlertContent: v1alpha1.AlertContent{Title: "Disk very full"}},
		{Status: "noted", AlertContent: v1alpha1.AlertContent{Description: "no space"}},
		{Status: "noted", AlertContent: v1alpha1.AlertContent{Severity: "warning"}},
		{Status: "noted"},
		{Status: "noted"},
		{Status: "noted"},
		{Status: "resolved"},
	} {
		is := alerts[i]
		g.Expect([]any{is.Status, is.Comment, is.Title, is.Description, is.Severity, is.By, is.DedupKey}).To(Equal(
			[]any{want.Status, want.Comment, want.Title, want.Description, want.Severity, "", "disk/db 1"}), "alert %d", i)
	}
	g.Expect(alerts[7].Labels).To(HaveKeyWithValue("team", "a"))
	g.Expect(alerts[9].Labels).To(HaveKeyWithValue("mount", "/var"))
	g.Expect(b.reports.reasons).To(BeEmpty())
	g.Expect(b.logs.String()).NotTo(ContainSubstring(testToken))

	t.Run("the request is processed once its Incident exists, and tells the id of the alert", func(t *testing.T) {
		g := NewWithT(t)
		status := func() *http.Response {
			return b.post(fmt.Sprintf("%s/v2/alerts/requests/%s", testPath, created["requestId"]), "", method("GET"))
		}
		response := status()
		g.Expect(response.StatusCode).To(Equal(http.StatusNotFound))
		g.Expect(response.Header.Get("X-Opsgenie-Errortype")).To(Equal("RequestNotProcessed"), "clients try again")
		name := v1alpha1.IncidentName("prometheus", "disk/db 1")
		incident := &v1alpha1.Incident{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
		g.Expect(b.live.Create(t.Context(), incident.DeepCopy())).To(Succeed())
		g.Expect(status().StatusCode).To(Equal(http.StatusOK), "one that is Resolved, which no cache has")
		g.Expect(b.live.Delete(t.Context(), incident)).To(Succeed())
		b.options.Capacity.SetIncident(incident, false)
		response = status()
		g.Expect(response.StatusCode).To(Equal(http.StatusOK))
		data := answered(g, response)["data"]
		g.Expect(data).To(And(HaveKeyWithValue("alertId", name), HaveKeyWithValue("success", true)))
		g.Expect(b.post(testPath+"/v2/alerts/"+name+"/close?identifierType=id", `{}`).StatusCode).To(Equal(http.StatusAccepted))
		last := b.storedAlerts()[11]
		g.Expect([]any{last.Status, last.IncidentName, last.DedupKey}).To(
			Equal([]any{v1alpha1.AlertResolved, name, ""}))
	})
}

func TestOpsgenieRequestsWithoutEffect(t *testing.T) {
	for path, verb := range map[string]string{
		"/tags?tags=a,b&identifierType=alias": "DELETE", "/details?keys=mount": "DELETE", "/snooze": "POST",
	} {
		t.Run(path, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(testPath+"/v2/alerts/disk-1"+path, `{"endTime": "2026-05-04T12:00:00Z"}`, method(verb))
			g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
			id := strings.TrimPrefix(v1alpha1.IncidentName("prometheus", "disk-1"), "prometheus-")
			g.Expect(answered(g, response)).To(And(
				HaveKeyWithValue("result", HavePrefix("Request has no effect: ")), HaveKeyWithValue("requestId", id)))
			g.Expect(b.storedAlerts()).To(BeEmpty())
			response = b.post(eventsPath+"/nobody/v2/alerts/disk-1"+path, "", method(verb))
			g.Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
		})
	}
}

func TestCloudEventsHandshake(t *testing.T) {
	const origin = "eventgrid.example.com"
	for sentence, test := range map[string]struct {
		path, origin, allowed string
		status                int
	}{
		"a sender with a token may deliver": {testPath, origin, origin, 200},
		"one without a token may not":       {eventsPath + "/nobody", origin, "", 401},
		"no sender asks":                    {testPath, "", "", 200},
		"the path of another API":           {testPath + "/v2/enqueue", origin, "", 405},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(test.path, "", method("OPTIONS"), with("WebHook-Request-Origin", test.origin), with("WebHook-Request-Rate", "120"))
			g.Expect(response.StatusCode).To(Equal(test.status))
			g.Expect(response.Header.Get("WebHook-Allowed-Origin")).To(Equal(test.allowed))
			g.Expect(response.Header.Get("WebHook-Allowed-Rate") == "*").To(Equal(test.allowed != ""))
			g.Expect(b.storedAlerts()).To(BeEmpty())
		})
	}
	g := NewWithT(t)
	b := newBench()
	suspended := integration("team-a", "prometheus")
	suspended.Spec.Suspend = true
	b.tokens.set(suspended)
	g.Expect(b.post(testPath, "", method("OPTIONS"), with("WebHook-Request-Origin", origin)).StatusCode).To(Equal(http.StatusForbidden))
}

func TestOpsgenieIdentifiersStayWithinTheirIntegration(t *testing.T) {
	other := v1alpha1.IncidentName("another", "k")
	longer := v1alpha1.IncidentName("prometheus-eu", "k")
	for sentence, identifier := range map[string]string{
		"the name of another integration's incident":             other,
		"the name of an integration that begins like this one's": longer,
		"another namespace":            "team-b%2F" + other,
		"a path upwards":               "..%2F..%2Fsecrets",
		"dots":                         "%2e%2e",
		"slashes that are not escaped": "a/b/c",
		"two slashes":                  "http://web-1",
		"slashes alone":                "/",
		"a control character":          "%00%0a",
		"not UTF-8":                    "%ff",
		"the name of an action":        "close",
		"requests":                     "requests",
		"very long":                    strings.Repeat("x", 3000),
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			request := httptest.NewRequest(http.MethodPost, testPath+"/v2/alerts/"+identifier+"/close", strings.NewReader(`{}`))
			recorder := httptest.NewRecorder()
			b.handler.ServeHTTP(recorder, request) // the OpenAPI document cannot describe slashes in an identifier
			g.Expect(recorder.Code).To(Equal(http.StatusAccepted))
			event := b.store.Stored()[0]
			g.Expect(event.Namespace).To(Equal("team-a"))
			alert := event.Alerts[0]
			g.Expect(alert.DedupKey).NotTo(BeEmpty())
			g.Expect(alert.IncidentName).To(Equal(v1alpha1.IncidentName("prometheus", alert.DedupKey)), "an alias of its own")
			if plain := strings.ReplaceAll(identifier, "%2F", "/"); len(plain) < 1000 && !strings.Contains(plain, "%") {
				g.Expect(alert.DedupKey).To(Equal(plain))
			}
		})
	}
}

func TestWrongTypesInBodiesOfTools(t *testing.T) {
	for _, path := range []string{"/v2/enqueue", "/v2/alerts", "/v2/alerts/a/close", "/v2/alerts/a/notes", "/v2/alerts/a/tags", ""} {
		for _, value := range []string{`null`, `1`, `true`, `"x"`, `[]`, `[{}]`, `{}`, `{"a": [1]}`} {
			g := NewWithT(t)
			b := newBench()
			var fields []string
			for _, name := range []string{"message", "alias", "priority", "tags", "details", "source", "entity", "user", "note",
				"action", "payload", "dedup_key", "event_action", "links", "specversion", "data"} {
				fields = append(fields, fmt.Sprintf("%q: %s", name, value))
			}
			for _, body := range []string{value, "{" + strings.Join(fields, ", ") + "}"} {
				recorder := httptest.NewRecorder() // the OpenAPI document has the types that are meant
				b.handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, testPath+path, strings.NewReader(body)))
				g.Expect(recorder.Code).To(BeElementOf(http.StatusAccepted, http.StatusBadRequest), "%s %s", path, body)
				if strings.HasPrefix(body, "{") && !strings.HasSuffix(path, "/notes") && path != "/v2/enqueue" {
					g.Expect(recorder.Code).To(Equal(http.StatusAccepted), "%s %s", path, body)
				}
			}
		}
	}
}

const eventType = "application/cloudevents+json"

// ce is a CloudEvent in the JSON format; more may replace its members.
func ce(more string) string {
	return `{"specversion": "1.0", "id": "1", "source": "/falco", "type": "com.example.disk.full", "subject": "db-1",
		"time": "2026-05-04T10:00:00Z", "region": "eu"` + more + `}`
}

func TestCloudEvents(t *testing.T) {
	binary := []func(*http.Request){with("Ce-Specversion", "1.0"), with("Ce-Id", "1"), with("Ce-Source", "/falco"),
		with("Ce-Type", "com.example.disk.full"), with("Ce-Subject", "db-1"), with("Ce-Time", "2026-05-04T10:00:00Z"),
		with("Ce-Region", "eu")}
	structured := []func(*http.Request){with("Content-Type", eventType+"; charset=utf-8")}
	const data = `{"description": "no space left", "severity": "P1"}`
	type expected struct{ title, description, key string }
	attributes := expected{"com.example.disk.full: db-1", "", `["/falco","com.example.disk.full","db-1"]`}
	for mode, test := range map[string]struct {
		body    string
		headers []func(*http.Request)
		want    expected
	}{
		"binary":                   {data, binary, expected{"", "no space left", attributes.key}},
		"structured":               {ce(`, "data": ` + data), structured, expected{"", "no space left", attributes.key}},
		"batched":                  {"[" + ce(`, "data": `+data) + "]", []func(*http.Request){with("Content-Type", "application/cloudevents-batch+json")}, expected{"", "no space left", attributes.key}},
		"structured, in base64":    {ce(`, "data_base64": "` + base64.StdEncoding.EncodeToString([]byte(data)) + `"`), structured, expected{"", "no space left", attributes.key}},
		"binary, without data":     {"", binary, attributes},
		"structured, without data": {ce(""), structured, attributes},
		"binary, with a text":      {"no space left", append(binary, with("Content-Type", "text/plain")), expected{"", "no space left", attributes.key}},
		"structured, with a text":  {ce(`, "data": "no space left"`), structured, expected{"", "no space left", attributes.key}},
		"structured, with bytes":   {ce(`, "data_base64": "//4="`), structured, attributes},
		"binary, with a payload that has a title and a key": {`{"title": "x", "dedup_key": "y"}`, binary, expected{"x", "", "y"}},
		"structured, with a list of numbers":                {ce(`, "data": [1, 2]`), structured, attributes},
	} {
		t.Run(mode, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			for range 2 { // the second is a copy
				response := b.post(testPath, test.body, test.headers...)
				g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
			}
			alerts := b.storedAlerts()
			g.Expect(alerts).To(HaveLen(1))
			is := alerts[0]
			g.Expect(expected{is.Title, is.Description, is.DedupKey}).To(Equal(test.want))
			g.Expect(is.Type).To(Equal("com.example.disk.full"))
			g.Expect(is.StartTime.UTC().Format(time.RFC3339)).To(Equal("2026-05-04T10:00:00Z"))
			g.Expect(is.Labels).To(HaveKeyWithValue("ce_source", "/falco"))
			g.Expect(string(is.Custom["cloudevent"])).To(ContainSubstring(`"region":"eu"`))
		})
	}
}

func TestCloudEventsAreReadByTheIntegrationsMapping(t *testing.T) {
	for mode, send := range map[string]func(b *bench, payload string) *http.Response{
		"structured": func(b *bench, payload string) *http.Response {
			return b.post(testPath, ce(`, "data": `+payload), with("Content-Type", eventType), with("X-Sender", "falco"))
		},
		"binary": func(b *bench, payload string) *http.Response {
			return b.post(testPath, payload, with("Ce-Specversion", "1.0"), with("Ce-Id", "1"), with("Ce-Source", "/falco"),
				with("Ce-Type", "t"), with("Ce-Subject", "db%2D1 %C3%BC %zz"), with("Ce-Subject", "db%2D1"),
				with("X-Sender", "falco"))
		},
	} {
		t.Run(mode, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			w := integration("team-a", "prometheus")
			w.Spec.Preset = "alertmanager"
			w.Spec.Mapping = &v1alpha1.Mapping{Fields: v1alpha1.MappingFields{Hostname: `headers["ce-subject"]`, Type: `headers["x-sender"]`}}
			b.tokens.set(w)
			response := send(b, `{"version": "4", "alerts": [
				{"status": "firing", "labels": {"alertname": "A"}, "fingerprint": "f1"},
				{"status": "resolved", "labels": {"alertname": "B"}, "fingerprint": "f2"}]}`)
			g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
			alerts := b.storedAlerts()
			g.Expect(alerts).To(HaveLen(2))
			g.Expect([]string{alerts[0].DedupKey, alerts[1].DedupKey}).To(Equal([]string{"f1", "f2"}))
			g.Expect(alerts[0].Hostname).To(HavePrefix("db"))
			g.Expect(alerts[0].Type).To(Equal("falco"), "a header of the request")
			g.Expect(alerts[0].Title).To(Equal("A"))
		})
	}
}

func TestBinaryAttributesArePercentDecoded(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	response := b.post(testPath, `{}`, with("Ce-Specversion", "1.0"), with("Ce-Id", "1"), with("Ce-Source", "/a"), with("Ce-Type", "t"),
		with("Ce-Subject", "%C3%BCber%20100%25"), with("Ce-Note", "100%"))
	g.Expect(response.StatusCode).To(Equal(http.StatusAccepted))
	alert := b.storedAlerts()[0]
	g.Expect(alert.Title).To(Equal("t: über 100%"))
	g.Expect(string(alert.Custom["cloudevent"])).To(ContainSubstring(`"note":"100%"`))
}

func TestCloudEventsThatAreNotValid(t *testing.T) {
	without := func(name string) string {
		event := map[string]any{}
		_ = json.Unmarshal([]byte(ce(`, "data": {"title": "x"}`)), &event)
		delete(event, name)
		text, _ := json.Marshal(event)
		return string(text)
	}
	for sentence, test := range map[string]struct {
		body, contentType, detail string
		headers                   []func(*http.Request)
	}{
		"no id":                   {body: without("id"), contentType: eventType, detail: "The attribute id is absent"},
		"no source":               {body: without("source"), contentType: eventType, detail: "The attribute source is absent"},
		"no type":                 {body: without("type"), contentType: eventType, detail: "The attribute type is absent"},
		"no version":              {body: without("specversion"), contentType: eventType, detail: "specversion is not 1.0"},
		"another version":         {body: ce(`, "specversion": "0.3"`), contentType: eventType, detail: "specversion is not 1.0"},
		"an id that is no string": {body: ce(`, "id": 1`), contentType: eventType, detail: "The attribute id is absent, empty or not a string"},
		"a list":                  {body: "[" + ce("") + "]", contentType: eventType, detail: "It is not a JSON object"},
		"a batch that is none":    {body: ce(""), contentType: "application/cloudevents-batch+json", detail: "JSON array"},
		"base64 that is none":     {body: ce(`, "data_base64": "%"`), contentType: eventType, detail: "not base64"},
		"base64 of a number":      {body: ce(`, "data_base64": 1`), contentType: eventType, detail: "not a string"},
		"another format":          {body: "<x/>", contentType: "application/cloudevents+xml", detail: "JSON format only"},
		"binary, no type": {body: `{}`, detail: "The attribute type is absent", headers: []func(*http.Request){
			with("Ce-Specversion", "1.0"), with("Ce-Id", "1"), with("Ce-Source", "/a")}},
		"binary, data that is no JSON": {body: `{"a"`, contentType: "application/json", detail: "not valid JSON", headers: []func(*http.Request){
			with("Ce-Specversion", "1.0"), with("Ce-Id", "1"), with("Ce-Source", "/a"), with("Ce-Type", "t")}},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(testPath, test.body, append(test.headers, with("Content-Type", test.contentType))...)
			g.Expect(response.StatusCode).To(Equal(http.StatusBadRequest))
			p := decode[problemBody](g, response)
			g.Expect(p.kind()).To(Equal("invalid-request"))
			g.Expect(p.Detail).To(ContainSubstring(test.detail))
			g.Expect(b.reports.reasons).To(Equal([]string{"InvalidRequest"}))
			g.Expect(b.storedAlerts()).To(BeEmpty())
		})
	}
}

func TestABatchWithBadEvents(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	batch := with("Content-Type", "application/cloudevents-batch+json")
	body := "[" + ce(`, "data": {"title": "a"}`) + `, 7, {"id": "2"}, ` + ce(`, "id": "3", "data_base64": "%"`) + ", " +
		ce(`, "id": "4", "type": "u", "data": [{"title": "b"}, {"title": "c"}]`) + "]"
	for range 2 { // senders repeat what was refused
		response := b.post(testPath, body, batch)
		g.Expect(response.StatusCode).To(Equal(http.StatusBadRequest))
		p := decode[problemBody](g, response)
		g.Expect(p.kind()).To(Equal("invalid-request"))
		g.Expect(p.Detail).To(And(ContainSubstring("Event 2: "), ContainSubstring("Event 3: "), ContainSubstring("Event 4: "),
			HaveSuffix("The others were stored.")))
	}
	var titles []string
	for _, alert := range b.storedAlerts() {
		titles = append(titles, alert.Title)
	}
	g.Expect(titles).To(Equal([]string{"a", "b", "c"}), "each once")

	g.Expect(b.post(testPath, "[]", batch).StatusCode).To(Equal(http.StatusAccepted), "a batch may be empty")
	g.Expect(b.post(testPath, ce(`, "data": {"title": "another"}`), with("Content-Type", eventType)).StatusCode).To(
		Equal(http.StatusAccepted))
	response := b.post(testPath, ce(`, "data": {"title": "a third one"}`), with("Content-Type", eventType))
	g.Expect(response.StatusCode).To(Equal(http.StatusUnprocessableEntity), "the same id for another event hides nothing")
	g.Expect(decode[problemBody](g, response).kind()).To(Equal("idempotency-conflict"))
}

func TestLargeBatches(t *testing.T) {
	batch := with("Content-Type", "application/cloudevents-batch+json")
	many := func(n int, event string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(event+",", n), ",") + "]"
	}
	short := `{"specversion":"1.0","id":"1","source":"s","type":"t"}`
	bomb := `{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"` +
		base64.StdEncoding.EncodeToString([]byte("["+strings.Repeat("{},", 60_000)+"{}]")) + `"}`
	for sentence, test := range map[string]struct {
		body   string
		status int
		kind   string
	}{
		"as many events as alerts may be": {many(mapping.MaxAlerts, short), http.StatusAccepted, ""},
		"one more":                        {many(mapping.MaxAlerts+1, short), http.StatusRequestEntityTooLarge, "too-many-alerts"},
		"one more, and none is valid":     {many(mapping.MaxAlerts+1, "{}"), http.StatusRequestEntityTooLarge, "too-many-alerts"},
		"a megabyte":                      {many(20_000, short), http.StatusRequestEntityTooLarge, "body-too-large"},
		"objects within base64":           {many(1, bomb), http.StatusRequestEntityTooLarge, "too-many-alerts"},
		"nested deeply within base64": {many(1, `{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"`+
			base64.StdEncoding.EncodeToString([]byte(strings.Repeat(`{"a":`, 100)+"1"+strings.Repeat("}", 100)))+`"}`),
			http.StatusBadRequest, "nested-too-deep"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			response := b.post(testPath, test.body, batch)
			g.Expect(response.StatusCode).To(Equal(test.status))
			if test.kind != "" {
				g.Expect(decode[problemBody](g, response).kind()).To(Equal(test.kind))
				g.Expect(b.storedAlerts()).To(BeEmpty())
			}
		})
	}
}

func TestWhatAlertmanagersClientsRead(t *testing.T) {
	g := NewWithT(t)
	b := newBench()
	bearer := with("Authorization", "Bearer "+testToken)
	for _, base := range []string{testPath, eventsPath, ""} {
		for _, verb := range []string{http.MethodGet, http.MethodHead} {
			response := b.post(base+"/-/ready", "", method(verb), bearer)
			g.Expect(response.StatusCode).To(Equal(http.StatusOK))
			g.Expect(response.Header.Get("Content-Type")).To(HavePrefix("text/plain"))
		}
		status := answered(g, b.post(base+"/api/v2/status", "", method(http.MethodGet), bearer))
		g.Expect(status).To(And(HaveKey("cluster"), HaveKey("versionInfo"), HaveKey("config"), HaveKey("uptime")))
		g.Expect(b.post(base+"/api/v2/alerts", "["+firing+"]", bearer).StatusCode).To(Equal(http.StatusAccepted))
		none := b.post(base+"/api/v2/alerts?silenced=true", "", method(http.MethodGet), bearer)
		g.Expect(none.StatusCode).To(Equal(http.StatusOK))
		g.Expect(decode[[]any](g, none)).To(BeEmpty())
	}
	g.Expect(b.reports.reasons).To(BeEmpty(), "a Tocsin that forwards asks every ten seconds")
	for _, path := range []string{"/-/ready", "/api/v2/status", "/api/v2/alerts"} {
		g.Expect(b.post(path, "", method(http.MethodGet)).StatusCode).To(Equal(http.StatusUnauthorized))
		g.Expect(b.post(eventsPath+"/nobody"+path, "", method(http.MethodGet)).StatusCode).To(Equal(http.StatusUnauthorized))
	}
	b.ready = func() bool { return false }
	g.Expect(b.post(testPath+"/-/ready", "", method(http.MethodGet)).StatusCode).To(Equal(http.StatusServiceUnavailable))
}

func TestPathsOfTools(t *testing.T) {
	bearer := with("Authorization", "Bearer "+testToken)
	for name, test := range map[string]struct {
		verb, path string
		status     int
		allow      string
	}{
		"the root is no endpoint":                   {"POST", "/", 404, ""},
		"GET of a path to post to":                  {"GET", testPath + "/v2/enqueue", 405, "POST"},
		"POST of a path to put to":                  {"POST", testPath + "/v2/alerts/a/message", 405, "PUT"},
		"PATCH of a path with several methods":      {"PATCH", testPath + "/v2/alerts/a/tags", 405, "POST, PUT, DELETE"},
		"POST of a path to read":                    {"POST", testPath + "/-/ready", 405, "GET, HEAD"},
		"an action that does not exist":             {"POST", testPath + "/v2/alerts/a/assign", 404, ""},
		"PagerDuty's other API":                     {"POST", testPath + "/v2/change/enqueue", 404, ""},
		"the path of a tool without a token before": {"POST", eventsPath + "/v2/enqueue", 202, ""},
		"the path of a tool at the root":            {"POST", "/v2/enqueue", 202, ""},
		"a token in the path and one in the header": {"POST", eventsPath + "/nobody/v2/enqueue", 401, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench()
			request := httptest.NewRequest(test.verb, test.path, strings.NewReader(`{"dedup_key": "k", "payload": {}}`))
			bearer(request)
			recorder := httptest.NewRecorder()
			b.ServeHTTP(recorder, request)
			g.Expect(recorder.Code).To(Equal(test.status))
			g.Expect(recorder.Header().Get("Allow")).To(Equal(test.allow))
			g.Expect(b.logs.String()).NotTo(ContainSubstring(testToken))
		})
	}
}

func TestDryRunOfTheRequestsOfTools(t *testing.T) {
	for _, path := range []string{"/v2/enqueue", "/v2/alerts", "/v2/alerts/a/close", "/api/v2/alerts"} {
		g := NewWithT(t)
		b := newBench()
		response := b.post(testPath+path+"?dryRun=true", `{"message": "Disk full", "alias": "a", "dedup_key": "a", "payload": {}}`)
		g.Expect(response.StatusCode).To(Equal(http.StatusOK))
		answer := decode[acceptance](g, response)
		g.Expect(answer.Status).To(Equal("dryRun"))
		g.Expect(answer.Alerts[0].Alert.DedupKey).To(Equal("a"))
		g.Expect(b.storedAlerts()).To(BeEmpty())
	}
}
