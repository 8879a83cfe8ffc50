package mapping_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
	"github.com/tocsin-dev/tocsin/webhookserver/payload"
)

// TestEverySampleIsRecognized reads every sample of every preset with the preset auto: it becomes the same alerts as
// with its own, but for the preset's name before the keys.
func TestEverySampleIsRecognized(t *testing.T) {
	g := NewWithT(t)
	presets, err := mapping.Presets()
	g.Expect(err).NotTo(HaveOccurred())
	auto, err := mapping.Compile(mapping.Auto, nil)
	g.Expect(err).NotTo(HaveOccurred())
	for _, preset := range presets {
		t.Run(preset.Name, func(t *testing.T) {
			g := NewWithT(t)
			program, err := mapping.Compile(preset.Name, nil)
			g.Expect(err).NotTo(HaveOccurred())
			for _, name := range sampleCases(t, preset.Name) {
				sample := preset.Name + "." + name
				if sample == "netdata.test" {
					continue // a title, a message and a token: anybody could have written it
				}
				own, recognized := readSample(t, program, sample), readSample(t, auto, sample)
				g.Expect(recognized.Preset).To(Equal(preset.Name), "%s: %v", sample, recognized.Warnings)
				g.Expect(recognized.Warnings).To(Equal(own.Warnings), sample)
				g.Expect(recognized.Alerts).To(HaveLen(len(own.Alerts)), sample)
				for i := range own.Alerts {
					expected := own.Alerts[i].Alert
					expected.Preset = preset.Name // the forwarding goes by it
					if key := own.Alerts[i].DedupKey; recognized.Alerts[i].DedupKey != key {
						expected.DedupKey = preset.Name + "/" + key
					}
					g.Expect(recognized.Alerts[i].Alert).To(Equal(expected), sample)
					warnings := own.Alerts[i].Warnings
					if own.Alerts[i].Dropped {
						warnings = append(warnings, payload.Warning{
							Detail: "the preset " + preset.Name + ", which recognizes the payload, drops the alert"})
					}
					g.Expect(recognized.Alerts[i].Warnings).To(Equal(warnings), sample)
				}
				if name == "firing" {
					g.Expect(recognized.Alerts[0].DedupKey).To(HavePrefix(preset.Name+"/"), sample)
				}
			}
		})
	}
}

// TestAutoOnPayloadsWithoutAPreset covers payloads that no preset recognizes, or more than one.
func TestAutoOnPayloadsWithoutAPreset(t *testing.T) {
	auto, err := mapping.Compile(mapping.Auto, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, body := range map[string]string{
		"": `{"title": "Disk full", "status": "resolved", "dedup_key": "a"}`,
		"more than one preset recognizes the pay": `{"subject": "Disk full", "status": "resolved", "dedup_key": "a", "watch_id": "", "execution_time": "", "event_action": "resolve", "routing_key": ""}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			result := readBody(t, auto, body, nil)
			g.Expect(result.Preset).To(BeEmpty())
			g.Expect(result.Warnings).To(HaveLen(min(len(name), 1)), "our own format is not warned of")
			for _, warning := range result.Warnings {
				g.Expect(warning.Detail).To(ContainSubstring(name))
			}
			g.Expect(result.Alerts[0].Title).To(Equal("Disk full"))
			g.Expect(result.Alerts[0].DedupKey).To(Equal("a"), "as without a preset")
			g.Expect(result.Alerts[0].Alert.Preset).To(BeEmpty())
			g.Expect(result.Alerts[0].Status).To(BeEquivalentTo("resolved"))
		})
	}
}

// TestAutoKeepsToolsApart resolves the alert of one tool with the same key as that of another.
func TestAutoKeepsToolsApart(t *testing.T) {
	g := NewWithT(t)
	auto, err := mapping.Compile(mapping.Auto, nil)
	g.Expect(err).NotTo(HaveOccurred())
	key := func(body string) string { return readBody(t, auto, body, nil).Alerts[0].DedupKey }
	g.Expect(key(`{"event_action": "resolve", "routing_key": "", "dedup_key": "17"}`)).To(Equal("pagerduty/17"))
	g.Expect(key(`{"check_id": 17, "check_params": {}, "current_state": "UP", "check_name": ""}`)).To(Equal("pingdom/17"))
	g.Expect(key(`{"event_action": "resolve", "routing_key": "", "dedup_key": "pagerduty/17"}`)).To(Equal("pagerduty/17"),
		"a sender that repeats the key of the answer")
	g.Expect(key(`{"status": "resolved", "dedup_key": "pingdom/17"}`)).To(Equal("pingdom/17"), "resolved by hand")
}

// TestAMappingOverridesWhatAutoChooses overrides one field of whichever preset recognizes the payload.
func TestAMappingOverridesWhatAutoChooses(t *testing.T) {
	g := NewWithT(t)
	program, err := mapping.Compile(mapping.Auto, parsed(t, `{fields: {region: "'eu'", dedupKey: "'own'"}}`))
	g.Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{"zabbix.firing", "grafana.firing"} {
		alert := readSample(t, program, name).Alerts[0]
		g.Expect(alert.Region).To(Equal("eu"))
		g.Expect(alert.DedupKey).To(Equal("own"), "the integration's own key has no prefix")
		g.Expect(alert.Title).NotTo(BeEmpty())
		for _, source := range alert.Sources() {
			g.Expect(source.Preset == "").To(Equal(source.Field == "region" || source.Field == "dedup_key" || source.Expression == ""))
		}
	}
}

// BenchmarkRecognitionHostile recognizes a payload that has every path that any preset asks for, with 256 KiB of text
// at each.
func BenchmarkRecognitionHostile(b *testing.B) {
	body := hostileToRecognize(b)
	auto, err := mapping.Compile(mapping.Auto, nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		mapping.Recognize(auto, body, received)
	}
}

// TestRecognitionIsBounded checks the work for the same payload.
func TestRecognitionIsBounded(t *testing.T) {
	g := NewWithT(t)
	auto, err := mapping.Compile(mapping.Auto, nil)
	g.Expect(err).NotTo(HaveOccurred())
	body := hostileToRecognize(t)
	work := mapping.Recognize(auto, body, received)
	t.Logf("work %d", work)
	g.Expect(work).To(BeNumerically(">", 0), "conditions are evaluated")
	g.Expect(work).To(BeNumerically("<=", mapping.MaxRecognitionWork))
}

// hostileToRecognize returns an object that has all paths that rules ask for, but for those that mark our own format.
func hostileToRecognize(tb testing.TB) any {
	tb.Helper()
	presets, err := mapping.Presets()
	if err != nil {
		tb.Fatal(err)
	}
	body := map[string]any{}
	for _, preset := range presets {
		for _, rule := range preset.Recognition {
			if slices.Contains(rule.Has, "title") || slices.Contains(rule.Has, "dedup_key") {
				continue
			}
			for _, path := range rule.Has {
				put(body, strings.Split(path, "."))
			}
		}
	}
	text := strings.Repeat("/TRIGGERED: a", bodyLimit/13)
	for key, value := range body {
		if value == nil {
			body[key] = text
		}
	}
	return body
}

// put puts a path of objects, and lists of one element, into an object.
func put(object map[string]any, steps []string) {
	if len(steps) == 1 {
		if _, taken := object[steps[0]]; !taken {
			object[steps[0]] = nil
		}
		return
	}
	inner, _ := object[steps[0]].(map[string]any)
	if inner == nil {
		inner = map[string]any{}
		object[steps[0]] = inner
	}
	put(inner, steps[1:])
}

// ownFields are values of the documented fields of Tocsin's own format.
var ownFields = map[string][]any{
	"title": {"Disk full", "Backup success"}, "subject": {"Disk full"}, "description": {"97 %"}, "message": {"97 %"},
	"severity": {"critical", "info"}, "priority": {"P1"}, "type": {"disk"}, "link": {"https://example.com"},
	"hostname": {"db-1"}, "region": {"eu"}, "status": {"firing", "resolved", "RESOLVED", "ok"}, "dedup_key": {"disk/db-1"},
	"starts_at": {"2026-03-01T11:53:00Z"}, "ends_at": {"2026-03-01T11:59:00Z"}, "expires_at": {"2026-03-01T12:59:00Z"},
	"labels": {map[string]any{"alertname": "DiskFull"}}, "annotations": {map[string]any{"summary": "Disk full"}},
	"values": {map[string]any{"used": json.Number("97")}}, "custom": {map[string]any{"ticket": "SHOP-1"}},
}

// TestOurOwnFormatIsNeverRecognized adds to fields of Tocsin's own format one key by which a preset recognizes its payloads, with
// the whole value that it has in a sample.
func TestOurOwnFormatIsNeverRecognized(t *testing.T) {
	auto, err := mapping.Compile(mapping.Auto, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	fields := slices.Sorted(maps.Keys(ownFields))
	eachPreset(t, func(t *testing.T, preset mapping.Preset, samples map[string]sample) {
		t.Helper()
		keys, values := recognitionKeys(preset, samples), maps.Clone(ownFields)
		for _, s := range samples {
			for name, value := range firstObject(s.body) { // a person may have written the tool's own words
				if values[name] != nil {
					values[name] = append(slices.Clip(values[name]), value)
				}
			}
		}
		rapid.Check(t, func(t *rapid.T) {
			body := map[string]any{}
			for _, field := range rapid.SliceOfNDistinct(rapid.SampledFrom(fields), 1, len(fields), rapid.ID).Draw(t, "fields") {
				body[field] = values[field][rapid.IntRange(0, len(values[field])-1).Draw(t, field)]
			}
			key := keys[rapid.IntRange(0, len(keys)-1).Draw(t, "key")]
			body[key.name] = key.value
			expectOurs(t, auto, body)
			expectOurs(t, auto, []any{body, body})
		})
	})
}

// member is a key of a payload with its value.
type member struct {
	name  string
	value any
}

// recognitionKeys lists the first keys of the paths by which a preset recognizes payloads, with each of their values in the
// samples, but for the fields of Tocsin's own format.
func recognitionKeys(preset mapping.Preset, samples map[string]sample) []member {
	var found []member
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		object := firstObject(samples[name].body)
		for _, rule := range preset.Recognition {
			for _, path := range rule.Has {
				name, _, _ := strings.Cut(strings.TrimPrefix(path, "0."), ".")
				if value, has := object[name]; has && ownFields[name] == nil {
					found = append(found, member{name, value})
				}
			}
		}
	}
	return found
}

// firstObject returns a body, or its first element.
func firstObject(body any) map[string]any {
	if list, isList := body.([]any); isList {
		body = list[0]
	}
	return body.(map[string]any)
}

// TestEachRecognitionHasASample finds the paths of every rule in a sample of its preset.
func TestEachRecognitionHasASample(t *testing.T) {
	eachPreset(t, func(t *testing.T, preset mapping.Preset, samples map[string]sample) {
		t.Helper()
		for _, rule := range preset.Recognition {
			found := false
			for _, s := range samples {
				found = found || !slices.ContainsFunc(rule.Has, func(path string) bool { return !mapping.HasPath(s.body, path) })
			}
			if !found {
				t.Errorf("no sample has %v", rule.Has)
			}
		}
	})
}

func expectOurs(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, auto *mapping.Program, body any) {
	t.Helper()
	result, err := auto.Alerts(body, nil, received)
	if err != nil {
		t.Fatalf("%v: %v", body, err)
	}
	if result.Preset != "" {
		t.Fatalf("%s recognizes %v", result.Preset, body)
	}
}

// TestBodiesOfOurOwnFormat covers bodies whose other keys are those of tools, all of them.
func TestBodiesOfOurOwnFormat(t *testing.T) {
	auto, err := mapping.Compile(mapping.Auto, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, keys := range map[string]string{
		"a heartbeat":               `"event": "heartbeat", "time": "2026-03-01T11:53:00Z"`,
		"kinds of objects":          `"object_kind": "push", "event_name": "push", "project_id": 1, "project": {"path_with_namespace": "a/b"}`,
		"who sent it":               `"sender": {"login": "eve", "node_id": "MDQ6"}, "repository": {"full_name": "a/b", "node_id": "MDQ6"}`,
		"an actor and a repository": `"actor": {"links": {}, "uuid": "1"}, "repository": {"full_name": "a/b", "links": {}}`,
		"a pending rule":            `"ruleId": 7, "ruleName": "CPU", "state": "pending", "evalMatches": []`,
		"attributes":                `"event": "started", "data": {"id": "1", "type": "incident", "attributes": {"cause": ""}}`,
		"a compliance report":       `"metadata": {"name": "a"}, "kind": "ClusterComplianceReport", "spec": {"compliance": {}}`,
		"a report":                  `"metadata": {"name": "a"}, "kind": "VulnerabilityReport", "report": {"updateTimestamp": ""}`,
		"a text that is resolved":   `"text": "RESOLVED: core - shop - slow"`,
		"what can be reached":       `"host": "a", "url": "https://example.com", "status": {"reachable": true, "text": ""}`,
		"a success":                 `"severity": "info", "timestamp": 1772365980, "fields": {"type": "backup"}`,
		"a policy's result":         `"policy": "a", "rule": "b", "resource": {}, "creationTimestamp": "2026-03-01T11:53:00Z", "status": "pass"`,
		"an endpoint":               `"group": "core", "name": "shop", "url": "https://example.com", "status": "RESOLVED"`,
		"an application":            `"app": "shop", "check": "disk", "project": "shop"`,
		"a chart":                   `"alert": "ram", "chart": "ram", "context": "ram", "severity": "clear"`,
		"an alert's alias":          `"alias": "a", "action": "close", "source": "cron"`,
		"a fingerprint":             `"fingerprint": "a", "start_time": "2026-03-01T11:53:00Z"`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			body := `{"title": "Backup success", "message": "", "dedup_key": "a", ` + keys + "}"
			for _, form := range []string{body, "[" + body + "]"} {
				result := readBody(t, auto, form, nil)
				g.Expect(result.Preset).To(BeEmpty())
				g.Expect(result.Alerts[0].Dropped).To(BeFalse())
				g.Expect(result.Alerts[0].Title).To(Equal("Backup success"))
				g.Expect(result.Alerts[0].DedupKey).To(Equal("a"))
			}
		})
	}
	g := NewWithT(t)
	two := readBody(t, auto, `[{"title": "A", "dedup_key": "a", "labels": {"host": "x"}}, {"title": "B", "dedup_key": "b", "labels": {"host": "x"}}]`, nil)
	g.Expect(keysOf(two)).To(Equal([]string{"a", "b"}))
}

// TestAHeaderRecognizesATool posts bodies that say little with headers that only one tool sets.
func TestAHeaderRecognizesATool(t *testing.T) {
	auto, err := mapping.Compile(mapping.Auto, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, c := range map[string]struct {
		body    string
		headers []string
		preset  string
	}{
		"GitHub":                     {`{"action": "completed"}`, []string{"X-GitHub-Event"}, "github"},
		"Gitea, which sets them all": {`{"action": "completed"}`, []string{"X-GitHub-Event", "X-Gogs-Event", "X-Gitea-Event"}, "gitea"},
		"GitLab":                     {`{}`, []string{"X-Gitlab-Event"}, "gitlab"},
		"Bitbucket":                  {`{"repository": {}}`, []string{"X-Event-Key"}, "bitbucket"},
		"Sentry":                     {`{"action": "created"}`, []string{"Sentry-Hook-Resource"}, "sentry"},
		"our own format":             {`{"title": "Disk full"}`, []string{"X-GitHub-Event"}, ""},
		"a list of our own format":   {`[{"dedup_key": "a"}]`, []string{"X-GitHub-Event"}, ""},
		"the headers of two tools":   {`{"action": "a"}`, []string{"X-GitHub-Event", "Sentry-Hook-Resource"}, ""},
		"none":                       {`{"action": "completed"}`, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{}
			for _, name := range c.headers {
				header.Set(name, "x")
			}
			NewWithT(t).Expect(readBody(t, auto, c.body, header).Preset).To(Equal(c.preset))
		})
	}
}
