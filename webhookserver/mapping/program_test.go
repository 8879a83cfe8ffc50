package mapping_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/alertcontent"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// parsed reads a mapping that is written as in a manifest.
func parsed(tb testing.TB, text string) *v1alpha1.Mapping {
	tb.Helper()
	m := &v1alpha1.Mapping{}
	if err := yaml.UnmarshalStrict([]byte(text), m); err != nil {
		tb.Fatal(err)
	}
	return m
}

// compiled compiles a mapping that is written as in a manifest.
func compiled(tb testing.TB, text string) *mapping.Program {
	tb.Helper()
	program, err := mapping.Compile("", parsed(tb, text))
	if err != nil {
		tb.Fatal(err)
	}
	return program
}

// reading is a mapping, a body and the alerts that the one makes of the other.
type reading struct {
	mapping  string
	body     string
	headers  http.Header
	alerts   string // in YAML, as the presets' expected.yaml has them
	warnings []string
}

func (test reading) run(t *testing.T) {
	g := NewWithT(t)
	result := readBody(t, compiled(t, test.mapping), test.body, test.headers)
	var expected []map[string]any
	g.Expect(yaml.Unmarshal([]byte(test.alerts), &expected)).To(Succeed())
	g.Expect(differences(result.Alerts, expected)).To(BeEmpty())
	g.Expect(result.Warnings).To(HaveLen(len(test.warnings)))
	for i, detail := range test.warnings {
		g.Expect(result.Warnings[i].Detail).To(ContainSubstring(detail))
	}
}

func TestTheAlertsInAPayload(t *testing.T) {
	for sentence, test := range map[string]reading{
		"without a mapping an object is one alert": {
			body: `{"title": "Disk full", "node": "n1"}`, alerts: `[{title: Disk full, custom: {node: n1}}]`},
		"without a mapping a list is a batch": {
			body: `[{"title": "one"}, {"title": "two"}]`, alerts: `[{title: one}, {title: two}]`},
		"a list is a batch with a mapping too": {
			mapping: `{fields: {title: alert.name}}`,
			body:    `[{"name": "one"}, {"name": "two"}]`, alerts: `[{title: one}, {title: two}]`},
		"an empty list holds no alert": {
			body: `[]`, alerts: `[]`, warnings: []string{"holds no alert"}},
		"alerts gives the list": {
			mapping: `{alerts: payload.items}`,
			body:    `{"items": [{"title": "one"}, {"title": "two"}]}`, alerts: `[{title: one}, {title: two}]`},
		"alerts may give one object": {
			mapping: `{alerts: payload.data}`,
			body:    `{"data": {"title": "one"}}`, alerts: `[{title: one}]`},
		"alerts may give an empty list": {
			mapping: `{alerts: payload.items}`,
			body:    `{"items": []}`, alerts: `[]`, warnings: []string{"holds no alert"}},
		"alerts may give texts": {
			mapping: `{alerts: payload.items, fields: {title: alert}}`,
			body:    `{"items": ["one", "two"]}`, alerts: `[{title: one, absent: [custom]}, {title: two}]`},
		"what is no object and not used is kept in custom": {
			mapping: `{alerts: payload.items, fields: {title: "'x'"}}`,
			body:    `{"items": ["one"]}`, alerts: `[{title: x, custom: {alert: one}}]`},
		"without the list that alerts wants, the payload is the alert": {
			mapping: `{alerts: payload.items}`,
			body:    `{"title": "test"}`, alerts: `[{title: test}]`, warnings: []string{"no such key: items"}},
		"with an optional list that is missing, the payload is the alert": {
			mapping: `{alerts: 'payload.?items'}`,
			body:    `{"title": "test"}`, alerts: `[{title: test}]`, warnings: []string{"found no list of alerts"}},
		"when alerts gives no list, the payload is the alert": {
			mapping: `{alerts: payload.items}`,
			body:    `{"title": "test", "items": 5}`, alerts: `[{title: test, custom: {items: 5}}]`, warnings: []string{"found no list"}},
		"JSON in a text": {
			mapping: `{alerts: '[parseJSON(payload.Message)]', fields: {title: alert.AlarmName}}`,
			body:    `{"Type": "Notification", "Message": "{\"AlarmName\": \"cpu\", \"Region\": \"eu\"}"}`,
			alerts:  `[{title: cpu, custom: {Region: eu, Type: Notification}}]`},
		"JSON in a text that is none": {
			mapping: `{alerts: '[parseJSON(payload.Message)]'}`,
			body:    `{"Message": "hello"}`, alerts: `[{description: null, custom: {Message: hello}}]`,
			warnings: []string{"parseJSON"}},
		"lists in a list": {
			mapping: `{alerts: "payload.groups.map(g, g.alerts.map(a, merge([{'group': g.name}, a]))).flatten()"}`,
			body:    `{"groups": [{"name": "g1", "alerts": [{"title": "a"}, {"title": "b"}]}, {"name": "g2", "alerts": [{"title": "c"}]}]}`,
			alerts:  `[{title: a, custom: {group: g1}}, {title: b, custom: {group: g1}}, {title: c, custom: {group: g2}}]`},
		"drop drops": {
			mapping: `{drop: "alert.kind == 'test'"}`,
			body:    `[{"title": "a", "kind": "test"}, {"title": "b", "kind": "real"}]`,
			alerts:  `[{dropped: true}, {title: b, custom: {kind: real}}]`},
		"a drop that fails keeps the alert": {
			mapping: `{drop: "alert.kind == 'test'"}`,
			body:    `{"title": "a"}`, alerts: `[{title: a, warnings: [""]}]`},
		"a drop that is no condition keeps the alert": {
			mapping: `{drop: alert.kind}`,
			body:    `{"title": "a", "kind": "test"}`, alerts: `[{title: a, warnings: [""]}]`},
	} {
		t.Run(sentence, test.run)
	}
}

func TestTheFieldsOfAnAlert(t *testing.T) {
	for sentence, test := range map[string]reading{
		"every field can be mapped": {
			mapping: `
fields: {title: alert.a, description: alert.b, severity: alert.c, status: alert.d, dedupKey: alert.e, link: alert.f, hostname: alert.g,
  region: alert.h, startTime: alert.i, endTime: alert.j, labels: alert.k, annotations: alert.l, values: alert.m, type: alert.nn, custom: alert.o}`,
			body: `{"a": "A", "b": "B", "c": "fatal", "d": "resolved", "e": "E", "f": "F", "g": "G", "h": "H",
"i": "2026-03-01T11:00:00Z", "j": "2026-03-01T11:30:00Z", "k": {"k": 1}, "l": {"l": 2}, "m": {"m": 3}, "nn": "NN", "o": {"o": 4}}`,
			alerts: `
- {title: A, description: B, severity: critical, status: resolved, dedupKey: E, link: F, hostname: G, region: H, type: NN,
   startTime: "2026-03-01T11:00:00Z", endTime: "2026-03-01T11:30:00Z", labels: {k: "1"}, annotations: {l: "2"}, values: {m: 3}, custom: {o: 4}}`},
		"a field that is not mapped is read by the payload rules": {
			mapping: `{fields: {title: alert.name}}`,
			body:    `{"name": "cpu", "severity": "P1", "message": "high", "labels": {"a": "b"}}`,
			alerts:  `[{title: cpu, severity: critical, description: high, labels: {a: b}, absent: [custom]}]`},
		"a field that is mapped takes the place of the payload's": {
			mapping: `{fields: {title: alert.name}}`,
			body:    `{"name": "cpu", "title": "other", "subject": "third"}`,
			alerts:  `[{title: cpu, custom: {title: other, subject: third}}]`},
		"what is missing is read by the payload rules, without a warning if optional": {
			mapping: `{fields: {title: 'alert.?name'}}`,
			body:    `{"subject": "other"}`, alerts: `[{title: other}]`},
		"what is missing is read by the payload rules, with a warning if not": {
			mapping: `{fields: {title: alert.name}}`,
			body:    `{"subject": "other"}`, alerts: `[{title: other, warnings: [title]}]`},
		"null and blank texts count as missing": {
			mapping: `{fields: {title: alert.a, description: alert.b}}`,
			body:    `{"a": null, "b": "  ", "title": "T", "message": "M"}`, alerts: `[{title: T, description: M}]`},
		"an expression that looked at the field's own key and gave nothing leaves the field absent": {
			mapping: `{fields: {severity: "alert.severity == 'clear' ? '' : alert.severity"}}`,
			body:    `{"severity": "clear"}`, alerts: `[{absent: [severity], custom: {severity: clear}}]`},
		"a number keeps its literal": {
			mapping: `{fields: {title: alert.num, values: "{'num': alert.num}", labels: alert.l}}`,
			body:    `{"num": 12345678901234567, "l": {"v": 1.10}}`,
			alerts:  `[{title: "12345678901234567", values: {num: 12345678901234567}, labels: {v: "1.10"}}]`},
		"a timestamp": {
			mapping: `{fields: {startTime: "timestamp(alert.at) - duration('5m')", endTime: timestampFromUnix(alert.unix)}}`,
			body:    `{"at": "2026-03-01T11:00:00Z", "unix": 1772362800}`,
			alerts:  `[{startTime: "2026-03-01T10:55:00Z", endTime: "2026-03-01T11:00:00Z"}]`},
		"the time of receipt": {
			mapping: `{fields: {status: "timestamp(alert.until) <= received ? 'resolved' : 'firing'"}}`,
			body:    `[{"until": "2026-03-01T11:59:59Z", "dedup_key": "a"}, {"until": "2026-03-01T12:00:01Z"}]`,
			alerts:  `[{status: resolved}, {status: firing}]`},
		"mapped values are normalised like any other": {
			mapping: `{fields: {title: alert.t, status: alert.s, severity: alert.v}}`,
			body:    `{"t": "a\u0000b\nc", "s": "odd", "v": "odd"}`,
			alerts:  `[{title: ab c, status: firing, custom: {status: odd, severity: odd}, warnings: [status, severity]}]`},
		"a bag that is no object": {
			mapping: `{fields: {labels: alert.l}}`,
			body:    `{"l": "text"}`, alerts: `[{absent: [labels], custom: {labels: text}, warnings: [labels]}]`},
		"a header": {
			mapping: `{fields: {title: 'headers["x-event"]', type: 'headers.?authorization'}}`,
			headers: http.Header{"X-Event": {"created"}, "Authorization": {"Bearer secret"}},
			body:    `{}`, alerts: `[{title: created, absent: [type]}]`},
	} {
		t.Run(sentence, test.run)
	}
}

func TestNothingElseIsLost(t *testing.T) {
	for sentence, test := range map[string]reading{
		"a key that no expression uses is kept in custom": {
			mapping: `{fields: {title: alert.name}}`,
			body:    `{"name": "cpu", "team": "infra"}`, alerts: `[{title: cpu, custom: {team: infra, name: null}}]`},
		"an object of which a part became a field is kept whole": {
			mapping: `{fields: {title: alert.trigger.metric}}`,
			body:    `{"trigger": {"metric": "cpu", "period": 60}}`, alerts: `[{title: cpu, custom: {trigger: {metric: cpu, period: 60}}}]`},
		"an object in it that became a field is gone": {
			mapping: `{fields: {labels: alert.trigger.tags}}`,
			body:    `{"trigger": {"tags": {"a": 1}, "period": 60}}`, alerts: `[{labels: {a: "1"}, custom: {trigger: {tags: null, period: 60}}}]`},
		"an object whose entries are all in a bag is gone": {
			mapping: `{fields: {labels: "merge([alert.tags, {'job': alert.job, 'x': alert.other}])"}}`,
			body:    `{"tags": {"a": 1, "b": [2]}, "job": "j", "other": {"o": 3}}`,
			alerts:  `[{labels: {a: "1", b: "[2]", job: j, x: '{"o":3}'}, absent: [custom]}]`},
		"an object of which an entry was overridden is kept": {
			mapping: `{fields: {labels: "merge([alert.tags, {'a': 2}])"}}`,
			body:    `{"tags": {"a": 1, "b": 2}}`, alerts: `[{labels: {a: "2", b: "2"}, custom: {tags: {a: 1, b: 2}}}]`},
		"an alert that became a bag as a whole is gone": {
			mapping: `{fields: {labels: alert}}`,
			body:    `{"title": "T", "a": 1}`, alerts: `[{title: T, labels: {title: T, a: "1"}, absent: [custom]}]`},
		"of a list of objects of which parts became a field all is kept": {
			mapping: `{fields: {title: "alert.hosts.map(h, h.name).join(',')"}}`,
			body:    `{"hosts": [{"name": "a", "ip": "1"}]}`, alerts: `[{title: a, custom: {hosts: [{name: a, ip: "1"}]}}]`},
		"what was changed on its way into a field is kept": {
			mapping: `{fields: {title: alert.name.upperAscii(), severity: "alert.level == 3 ? 'error' : 'info'"}}`,
			body:    `{"name": "cpu", "level": 3}`, alerts: `[{title: CPU, severity: error, custom: {name: cpu, level: 3}}]`},
		"what only equals a field is kept": {
			mapping: `{fields: {title: alert.name, labels: "{'n': alert.name}"}}`,
			body:    `{"name": "cpu", "other": "cpu"}`, alerts: `[{title: cpu, custom: {name: null, other: cpu}}]`},
		"what is only counted is kept": {
			mapping: `{fields: {title: "string(size(alert.hosts))"}}`,
			body:    `{"hosts": [{"name": "a"}]}`, alerts: `[{title: "1", custom: {hosts: [{name: a}]}}]`},
		"the one that was not chosen is kept": {
			mapping: `{fields: {title: "firstNonEmpty([alert.?summary, alert.?name])"}}`,
			body:    `{"summary": "S", "name": "cpu"}`, alerts: `[{title: S, custom: {name: cpu, summary: null}}]`},
		"the one that was not chosen is kept though the one that was contains it": {
			mapping: `{fields: {title: "firstNonEmpty([alert.?summary, alert.?code])"}}`,
			body:    `{"summary": "Disk 12 full", "code": 1}`, alerts: `[{title: Disk 12 full, custom: {code: 1, summary: null}}]`},
		"with CEL as without, the one that was not chosen is kept": {
			mapping: `{fields: {title: "firstNonEmpty([alert.?summary, alert.?code].filter(x, true))"}}`,
			body:    `{"summary": "Disk 12 full", "code": 1}`, alerts: `[{title: Disk 12 full, custom: {code: 1, summary: null}}]`},
		"of two branches the other is kept": {
			mapping: `{fields: {title: "alert.up ? alert.good : alert.bad"}}`,
			body:    `{"up": true, "good": "fine", "bad": "broken"}`, alerts: `[{title: fine, custom: {bad: broken, up: true, good: null}}]`},
		"a status that failed counts as firing, whatever else is called status": {
			mapping: `{fields: {status: "alert.state.code == 0 ? 'resolved' : 'firing'"}}`,
			body:    `{"status": "ok", "dedup_key": "k"}`, alerts: `[{status: firing, dedupKey: k, custom: {status: ok}, warnings: [status]}]`},
		"what an expression used that failed is kept": {
			mapping: `{fields: {title: alert.name + alert.missing}}`,
			body:    `{"name": "cpu"}`, alerts: `[{custom: {name: cpu}, warnings: [title]}]`},
		"what only has is asked of is kept": {
			mapping: `{fields: {title: "has(alert.kind) ? 'x' : 'y'"}}`,
			body:    `{"kind": "k"}`, alerts: `[{title: x, custom: {kind: k}}]`},
		"what decides about dropping is kept": {
			mapping: `{drop: "alert.kind == 'test'"}`,
			body:    `{"kind": "k"}`, alerts: `[{custom: {kind: k}}]`},
		"of JSON in a text of which one part is used the text is kept": {
			mapping: `{fields: {title: "parseJSON(alert.message).name"}}`,
			body:    `{"message": "{\"name\": \"cpu\", \"x\": 1}"}`,
			alerts:  `[{title: cpu, description: "{\"name\": \"cpu\", \"x\": 1}"}]`},
		"what is around the alerts is kept with each": {
			mapping: `{alerts: payload.alerts, fields: {link: payload.url}}`,
			body:    `{"alerts": [{"title": "a"}, {"title": "b"}], "receiver": "r", "status": "firing", "url": "u"}`,
			alerts: `
- {title: a, link: u, custom: {receiver: r, payload_status: firing, url: null}}
- {title: b, link: u, custom: {receiver: r, payload_status: firing}}`},
		"what is around an alert that has the same key gets another name": {
			mapping: `{alerts: payload.alerts}`,
			body:    `{"alerts": [{"id": 1}], "id": 2}`, alerts: `[{custom: {id: 1, payload_id: 2}}]`},
		"the entries of the mapped custom come first": {
			mapping: `{fields: {custom: "{'id': alert.key}"}}`,
			body:    `{"key": 1, "id": 2, "custom": {"x": 3}}`, alerts: `[{custom: {id: 1, id_2: 2, x: 3}, warnings: [id]}]`},
		"what is discarded is gone": {
			mapping: `{fields: {custom: "discard([alert.?secret, alert.?auth.?key])"}}`,
			body:    `{"secret": {"a": 1}, "auth": {"key": "k", "user": "u"}}`, alerts: `[{custom: {secret: null, auth: {user: u, key: null}}}]`},
		"what is discarded is gone though the expression fails": {
			mapping: `{fields: {custom: "merge([{'a': alert.missing}, discard([alert.?secret])])"}}`,
			body:    `{"secret": "s", "user": "u"}`, alerts: `[{custom: {secret: null, user: u}, warnings: [custom]}]`},
		"what is discarded of a list is what has the indexes there": {
			mapping: `{fields: {custom: "discard([alert.tokens[0], alert.tokens[1], alert.deep[1][0], alert.deep[0]])"}}`,
			body:    `{"tokens": ["A", "B", "C"], "deep": [1, ["k", 2]]}`, alerts: `[{custom: {tokens: [C], deep: [[2]]}}]`},
		"a part of what is discarded is gone with it": {
			mapping: `{fields: {custom: "discard([alert.auth.key, alert.auth, alert.auth.user])"}}`,
			body:    `{"auth": {"key": "k", "user": "u", "x": 1}, "z": 2}`, alerts: `[{custom: {z: 2, auth: null}}]`},
		"what has its default is gone": {
			mapping: `{fields: {custom: "merge([discardDefault(alert.?n, 0), discardDefault(alert.?s, 'ok')])"}}`,
			body:    `{"n": 0, "s": "bad"}`, alerts: `[{custom: {n: null, s: bad}}]`},
		"what has its default around the alerts is gone": {
			mapping: `{alerts: payload.alerts, fields: {custom: "discardDefault(payload.?n, 0)"}}`,
			body:    `{"alerts": [{"title": "a"}], "n": 0, "x": 1}`, alerts: `[{title: a, custom: {x: 1, n: null}}]`},
		"the payload as the alert and around it": {
			mapping: `{fields: {title: payload.name, type: alert.kind}}`,
			body:    `{"name": "cpu", "kind": "k", "x": 1}`, alerts: `[{title: cpu, type: k, custom: {x: 1, name: null, kind: null}}]`},
	} {
		t.Run(sentence, test.run)
	}
}

func TestWhatIsLargeAroundManyAlertsIsKeptOnce(t *testing.T) {
	g := NewWithT(t)
	program := compiled(t, `alerts: payload.alerts`)
	body := `{"alerts": [{"title": "a"}, {"title": "b"}], "dump": "` + strings.Repeat("x", 10_000) + `"}`
	result := readBody(t, program, body, nil)
	g.Expect(result.Warnings).To(HaveLen(1))
	g.Expect(result.Alerts[0].Custom).To(HaveKey("dump"))
	g.Expect(result.Alerts[1].Custom).NotTo(HaveKey("dump"))
}

func TestTooManyAlerts(t *testing.T) {
	g := NewWithT(t)
	read := func(mappingText, body string) (mapping.Result, error) {
		value, _, err := payload.ParseAny([]byte(body))
		g.Expect(err).NotTo(HaveOccurred())
		return compiled(t, mappingText).Alerts(value, nil, received)
	}
	most := "[" + sequence(mapping.MaxAlerts, func(int) string { return "{}" }) + "]"
	result, err := read("{}", most)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Alerts).To(HaveLen(mapping.MaxAlerts))

	more := "[{}," + most[1:]
	for mappingText, body := range map[string]string{"{}": more, "{alerts: payload.list}": `{"list": ` + more + `}`} {
		_, err = read(mappingText, body)
		var tooMany *mapping.TooManyError
		g.Expect(errors.As(err, &tooMany)).To(BeTrue())
		g.Expect(tooMany.Count).To(Equal(mapping.MaxAlerts + 1))
	}
}

func TestWhatIsNoObject(t *testing.T) {
	for _, body := range []string{`5`, `"text"`, `null`, `[{}, 5]`} {
		for _, text := range []string{"{}", "{fields: {title: alert}}", "{alerts: payload.x}"} {
			g := NewWithT(t)
			value, _, err := payload.ParseAny([]byte(body))
			g.Expect(err).NotTo(HaveOccurred())
			_, err = compiled(t, text).Alerts(value, nil, received)
			g.Expect(errors.Is(err, payload.ErrNotObject)).To(BeTrue(), "%s with %s: %v", body, text, err)
		}
	}
}

func TestAPayloadOfManyLargeAlertsFitsIntoOneEvent(t *testing.T) {
	g := NewWithT(t)
	program := compiled(t, `
alerts: payload.list
fields: {title: payload.text, description: payload.text, link: payload.text, hostname: payload.text, labels: payload.bag}`)
	body := `{"text": "` + strings.Repeat("ä", 8_000) + `", "bag": {"a": "` + strings.Repeat("<", 4_000) + `"}, "list": [` +
		sequence(100, func(int) string { return "{}" }) + `]}`
	result := readBody(t, program, body, nil)
	total := 0
	for i := range result.Alerts {
		total += alertcontent.Size(&result.Alerts[i].AlertContent)
	}
	g.Expect(total).To(BeNumerically("<=", 1<<20))
	g.Expect(result.Alerts[0].Title).NotTo(BeEmpty())
	g.Expect(result.Alerts[0].Warnings).NotTo(BeEmpty())
}

func TestSources(t *testing.T) {
	g := NewWithT(t)
	program, err := mapping.Compile("alertmanager", parsed(t, `{fields: {region: "'eu'"}}`))
	g.Expect(err).NotTo(HaveOccurred())
	result := readBody(t, program, `{"alerts": [{"fingerprint": "abc", "status": "firing", "labels": {"alertname": "A"}, "subject": "x"}]}`, nil)
	sources := map[string]mapping.Source{}
	for _, source := range result.Alerts[0].Sources() {
		sources[source.Field] = source
	}
	g.Expect(sources["region"]).To(Equal(mapping.Source{Field: "region", From: mapping.FromMapping, Expression: "'eu'"}))
	g.Expect(sources["title"].Preset).To(Equal("alertmanager"))
	g.Expect(sources["title"].Expression).NotTo(BeEmpty())
	g.Expect(sources).NotTo(HaveKey("link"))

	result = readBody(t, compiled(t, "{}"), `{"subject": "x", "severity": "P1", "labels": {"a": 1}, "other": 1}`, nil)
	g.Expect(result.Alerts[0].Sources()).To(Equal([]mapping.Source{
		{Field: "title", From: mapping.FromKey, Key: "subject"}, {Field: "severity", From: mapping.FromKey, Key: "severity"},
		{Field: "status", From: mapping.FromBuiltIn}, {Field: "labels", From: mapping.FromKey, Key: "labels"},
		{Field: "custom", From: mapping.FromUnmapped},
	}))
}
