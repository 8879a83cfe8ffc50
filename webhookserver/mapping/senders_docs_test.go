package mapping_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

const sendersFolder = "../../docs/senders"

// fence is a code block, which may be part of a list.
var fence = regexp.MustCompile("(?m)^( *)```(\\S+)(?: (\\S+))?\n((?s:.*?))^ *```$")

// block is a code block of a page, without the indentation.
type block struct{ language, label, text string }

// blocks are the code blocks of a page.
func blocks(page string) []block {
	var found []block
	for _, match := range fence.FindAllStringSubmatch(page, -1) {
		lines := strings.Split(match[4], "\n")
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], match[1])
		}
		found = append(found, block{language: match[2], label: match[3], text: strings.Join(lines, "\n")})
	}
	return found
}

// labelled is the block of a page with a label.
func labelled(t *testing.T, page, label string) string {
	t.Helper()
	for _, b := range blocks(page) {
		if b.label == label {
			return b.text
		}
	}
	t.Fatalf("the page has no block %q", label)
	return ""
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sendersFolder, name+".md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func presetNames(t *testing.T) []string {
	t.Helper()
	presets, err := mapping.Presets()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, preset := range presets {
		names = append(names, preset.Name)
	}
	return names
}

// TestEveryPresetHasAPage also checks its row in the table of all tools: every column is filled, and the format leads to
// where the preset has it from.
func TestEveryPresetHasAPage(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob(filepath.Join(sendersFolder, "*.md"))
	g.Expect(err).NotTo(HaveOccurred())
	var pages []string
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".md"); name != "README" {
			pages = append(pages, name)
		}
	}
	g.Expect(pages).To(Equal(presetNames(t)))
	index := readPage(t, "README")
	presets, err := mapping.Presets()
	g.Expect(err).NotTo(HaveOccurred())
	for _, preset := range presets {
		name := preset.Name
		row := regexp.MustCompile(`(?m)^\| \[[^]|]+\]\(` + name + `\.md\) \| .+ \|$`).FindString(index)
		columns := strings.Split(strings.Trim(row, "| "), " | ")
		g.Expect(columns).To(And(HaveLen(7), Not(ContainElement(""))), "the row of %s in the table of README.md", name)
		g.Expect(columns[1]).To(HaveSuffix("](" + preset.Documentation + ")"))
	}
}

func TestPagesShowWhatTheirPresetReads(t *testing.T) {
	for _, name := range presetNames(t) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			page := readPage(t, name)
			g.Expect(page).To(ContainSubstring("`preset: " + name + "`"))
			g.Expect(page).To(ContainSubstring("https://tocsin.example.com/api/v1/events/webhook/TOKEN"))

			shown := map[string]any{}
			g.Expect(yaml.Unmarshal([]byte(labelled(t, page, "alert")), &shown)).To(Succeed())
			for _, field := range []string{"title", "status", "dedupKey"} {
				g.Expect(shown).To(HaveKey(field))
			}
			program, err := mapping.Compile(name, nil)
			g.Expect(err).NotTo(HaveOccurred())
			result := readSample(t, program, name+".firing")
			g.Expect(alertDifferences(result.Alerts[0], shown)).To(BeEmpty())
		})
	}
}

func TestBlocksInPagesParse(t *testing.T) {
	for _, name := range append(presetNames(t), "README") {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for _, b := range blocks(readPage(t, name)) {
				switch {
				case b.language == "yaml":
					for document := range strings.SplitSeq(b.text, "\n---\n") {
						var value any
						g.Expect(yaml.UnmarshalStrict([]byte(document), &value)).To(Succeed(), b.text)
					}
				case b.language == "json" && !strings.HasPrefix(b.label, "template="):
					g.Expect(json.Valid([]byte(b.text))).To(BeTrue(), b.text)
				}
			}
		})
	}
}

// link is a link of Markdown to something in the repository.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	for _, name := range append(presetNames(t), "README") {
		for _, match := range link.FindAllStringSubmatch(readPage(t, name), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(match[1], "#")
			text, err := os.ReadFile(filepath.Join(sendersFolder, path))
			if err != nil {
				t.Errorf("%s.md: %s leads nowhere", name, match[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(string(text)), anchor) {
				t.Errorf("%s.md: %s has no such heading", name, match[1])
			}
		}
	}
}

// anchors are the anchors of a page's headings.
func anchors(page string) []string {
	var found []string
	for line := range strings.Lines(page) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			name := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			found = append(found, strings.ReplaceAll(name, " ", "-"))
		}
	}
	return found
}

// TestTemplatesGiveTheSamples fills the templates of the pages as the tools do, and compares with the
// samples, of which TestPresets tells what is read.
func TestTemplatesGiveTheSamples(t *testing.T) {
	for name, fill := range fillers {
		t.Run(name, func(t *testing.T) {
			page := readPage(t, name)
			bodies := map[string]string{}
			for _, b := range blocks(page) {
				if sample, isTemplate := strings.CutPrefix(b.label, "template="); isTemplate {
					bodies[sample] = b.text
				}
			}
			if extract, other := extractors[name]; other {
				bodies = extract(t, page)
			}
			NewWithT(t).Expect(bodies).NotTo(BeEmpty())
			for sample, body := range bodies {
				wanted, err := os.ReadFile(filepath.Join("presets", name+"."+sample+".json"))
				if err != nil {
					t.Fatal(err)
				}
				var values any
				if err := json.Unmarshal(wanted, &values); err != nil {
					t.Fatal(err)
				}
				NewWithT(t).Expect(fill(t, body, values.(map[string]any))).To(MatchJSON(wanted))
			}
		})
	}
}

// fillers fill a template of a page with the values that a sample has, as the tool would.
var fillers = map[string]func(t *testing.T, body string, sample map[string]any) string{
	"datadog": fillVariables(map[string]string{
		"$ALERT_TITLE": "alert_title", "$TEXT_ONLY_MSG": "body", "$ALERT_ID": "alert_id", "$ALERT_CYCLE_KEY": "alert_cycle_key",
		"$AGGREG_KEY": "aggreg_key", "$ALERT_TRANSITION": "alert_transition", "$ALERT_TYPE": "alert_type",
		"$ALERT_PRIORITY": "alert_priority", "$ALERT_SCOPE": "alert_scope", "$ALERT_METRIC": "alert_metric",
		"$ALERT_STATUS": "alert_status", "$HOSTNAME": "hostname", "$LINK": "link", "$TAGS": "tags", "$DATE_POSIX": "date_posix",
	}),
	"healthchecks": fillVariables(map[string]string{
		"$NAME_JSON": "name as JSON", "$CODE": "code", "$STATUS": "status", "$TAGS": "tags", "$NOW": "now",
	}),
	"gatus": fillVariables(map[string]string{
		"[ALERT_TRIGGERED_OR_RESOLVED]": "status", "[ENDPOINT_GROUP]": "group", "[ENDPOINT_NAME]": "name",
		"[ENDPOINT_URL]": "url", "[ALERT_DESCRIPTION]": "description",
	}),
	"librenms": fillVariables(map[string]string{
		"{{ $device_id }}": "device_id", "{{ $name }}": "name", "{{ $state }}": "state", "{{ $severity }}": "rule_severity",
		"{{ $hostname }}": "hostname", "{{ $sysName }}": "sysname", "{{ $uid }}": "uid", "{{ $timestamp }}": "timestamp",
	}),
	"newrelic": fillVariables(map[string]string{
		"{{ json issueId }}": "id as JSON", "{{ json issuePageUrl }}": "issueUrl as JSON", "{{ json priority }}": "priority as JSON",
		"{{ json annotations.title.[0] }}": "title as JSON", "{{ json entitiesData.names }}": "impactedEntities as JSON",
		"{{ json totalIncidents }}": "totalIncidents as JSON", "{{ json state }}": "state as JSON",
		"{{ json triggerEvent }}": "trigger as JSON", "{{ json isCorrelated }}": "isCorrelated as JSON",
		"{{ createdAt }}": "createdAt as JSON", "{{ updatedAt }}": "updatedAt as JSON",
		"{{ json accumulations.source }}": "sources as JSON", "{{ json accumulations.policyName }}": "alertPolicyNames as JSON",
		"{{ json accumulations.conditionName }}": "alertConditionNames as JSON", "{{ json workflowName }}": "workflowName as JSON",
	}),
	"uptime-kuma": fillVariables(map[string]string{
		"{{ heartbeatJSON | json }}": "heartbeat as JSON", "{{ monitorJSON | json }}": "monitor as JSON",
		"{{ msg | json }}": "msg as JSON",
	}),
	"elastic-watcher": fillVariables(map[string]string{
		"{{ctx.watch_id}}": "watch_id", "{{ctx.metadata.title}}": "title", "{{ctx.metadata.severity}}": "severity",
		"{{ctx.metadata.link}}": "link", "{{ctx.execution_time}}": "execution_time", "{{ctx.payload.hits.total}}": "hits",
	}),
	"zabbix": fillVariables(map[string]string{
		"{EVENT.ID}": "event_id", "{EVENT.VALUE}": "event_value", "{EVENT.UPDATE.STATUS}": "event_update_status",
		"{EVENT.ACK.STATUS}": "event_ack_status", "{EVENT.NAME}": "event_name", "{EVENT.NSEVERITY}": "event_nseverity",
		"{EVENT.OPDATA}": "event_opdata", "{EVENT.TAGSJSON}": "event_tags", "{EVENT.TIMESTAMP}": "event_timestamp",
		"{EVENT.RECOVERY.TIMESTAMP}": "event_recovery_timestamp", "{HOST.NAME}": "host_name", "{HOST.IP}": "host_ip",
		"{TRIGGER.ID}": "trigger_id", "{TRIGGER.DESCRIPTION}": "trigger_description", "{$ZABBIX.URL}": "zabbix_url",
	}),
	"proxmox": fillVariables(map[string]string{
		"{{ json title }}": "title as JSON", "{{ json message }}": "message as JSON", "{{ json severity }}": "severity as JSON",
		"{{ timestamp }}": "timestamp", "{{ json fields }}": "fields as JSON",
	}),
	"dynatrace": fillVariables(map[string]string{
		"{State}": "State", "{ProblemID}": "ProblemID", "{PID}": "PID", "{ProblemTitle}": "ProblemTitle",
		"{ProblemSeverity}": "ProblemSeverity", "{ProblemImpact}": "ProblemImpact", "{ProblemURL}": "ProblemURL",
		"{ProblemDetailsText}": "ProblemDetailsText", "{ImpactedEntity}": "ImpactedEntity",
		"{ImpactedEntities}": "ImpactedEntities as JSON", "{Tags}": "Tags", "{ProblemDetailsJSONv2}": "ProblemDetails as JSON",
	}),
	"uptimerobot": fillVariables(map[string]string{
		"*monitorID*": "monitorID", "*monitorURL*": "monitorURL", "*monitorFriendlyName*": "monitorFriendlyName",
		"*alertType*": "alertType", "*alertTypeFriendlyName*": "alertTypeFriendlyName", "*alertDetails*": "alertDetails",
		"*alertDuration*": "alertDuration", "*alertDateTime*": "alertDateTime", "*monitorAlertContacts*": "monitorAlertContacts",
		"*sslExpiryDate*": "sslExpiryDate", "*sslExpiryDaysLeft*": "sslExpiryDaysLeft",
	}),
	"icinga": func(t *testing.T, body string, sample map[string]any) string {
		t.Helper()
		return execute(t, "json", body, map[string]any{
			"Incident": sample["incident"], "Object": sample["object"], "Event": sample["event"],
		})
	},
	"argocd": func(t *testing.T, body string, sample map[string]any) string {
		t.Helper()
		return execute(t, "toJson", body, applicationOf(sample))
	},
}

// fillVariables fills a template that has the values themselves in place of variables, or their JSON, each
// from a key of the sample.
func fillVariables(variables map[string]string) func(*testing.T, string, map[string]any) string {
	return func(t *testing.T, body string, sample map[string]any) string {
		t.Helper()
		var pairs []string
		for variable, from := range variables {
			key, asJSON := strings.CutSuffix(from, " as JSON")
			encoded, err := json.Marshal(sample[key])
			if err != nil {
				t.Fatal(err)
			}
			value := string(encoded)
			if !asJSON {
				value = strings.Trim(value, `"`)
			}
			pairs = append(pairs, variable, value)
		}
		return strings.NewReplacer(pairs...).Replace(body)
	}
}

// execute executes a template of Go that has a function for JSON.
func execute(t *testing.T, function, body string, data any) string {
	t.Helper()
	asJSON := func(value any) (string, error) {
		encoded, err := json.Marshal(value)
		return string(encoded), err
	}
	parsed, err := template.New("").Funcs(template.FuncMap{function: asJSON}).Parse(body)
	if err != nil {
		t.Fatal(err)
	}
	var filled bytes.Buffer
	if err := parsed.Execute(&filled, data); err != nil {
		t.Fatal(err)
	}
	return filled.String()
}

// applicationOf is what the templates of Argo CD are filled from, for one of our samples.
func applicationOf(sample map[string]any) map[string]any {
	return map[string]any{
		"context": map[string]any{"argocdUrl": "https://argocd.example.com"},
		"app": map[string]any{
			"metadata": map[string]any{"name": sample["app"], "namespace": "argocd"},
			"spec": map[string]any{
				"project":     sample["project"],
				"destination": map[string]any{"server": sample["cluster"], "namespace": sample["namespace"]},
			},
			"status": map[string]any{
				"health":         map[string]any{"status": sample["health"], "message": sample["text"], "lastTransitionTime": sample["at"]},
				"sync":           map[string]any{"status": sample["sync"], "revision": sample["revision"]},
				"operationState": map[string]any{"phase": sample["phase"], "message": sample["text"], "finishedAt": sample["at"]},
			},
		},
	}
}

// extractors find the templates of the pages that have them inside of something else, by the sample that they give.
var extractors = map[string]func(t *testing.T, page string) map[string]string{
	"gatus": func(t *testing.T, page string) map[string]string {
		t.Helper()
		var config struct {
			Alerting struct{ Custom struct{ Body, Method string } }
		}
		unmarshal(t, labelled(t, page, "provider"), &config)
		NewWithT(t).Expect(config.Alerting.Custom.Method).To(Equal("POST"))
		return map[string]string{"firing": config.Alerting.Custom.Body, "resolved": config.Alerting.Custom.Body}
	},
	"elastic-watcher": func(t *testing.T, page string) map[string]string {
		t.Helper()
		var watch struct {
			Actions map[string]struct{ Webhook struct{ Body string } }
		}
		unmarshal(t, labelled(t, page, "watch"), &watch)
		return map[string]string{"firing": watch.Actions["firing"].Webhook.Body, "resolved": watch.Actions["resolved"].Webhook.Body}
	},
	"argocd": func(t *testing.T, page string) map[string]string {
		t.Helper()
		var config struct{ Data map[string]string }
		unmarshal(t, labelled(t, page, "configmap"), &config)
		body := func(name string) string {
			var wanted struct {
				Webhook struct {
					Tocsin struct{ Method, Body string }
				}
			}
			unmarshal(t, config.Data["template."+name], &wanted)
			NewWithT(t).Expect(config.Data["trigger.tocsin"]).To(ContainSubstring("send: [" + name + "]"))
			NewWithT(t).Expect(wanted.Webhook.Tocsin.Method).To(Equal("POST"))
			return wanted.Webhook.Tocsin.Body
		}
		return map[string]string{"firing": body("tocsin-health"), "resolved": body("tocsin-health"),
			"sync": body("tocsin-sync"), "sync-resolved": body("tocsin-sync")}
	},
	"zabbix": func(t *testing.T, page string) map[string]string {
		t.Helper()
		_, parameters := mediaType(t, page)
		delete(parameters, "tocsin_url") // by the script: see TestZabbixScript
		body, err := json.Marshal(parameters)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]string{"firing": string(body), "acknowledged": string(body), "resolved": string(body)}
	},
}

func unmarshal(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// mediaType is the script and the parameters of the media type for Zabbix.
func mediaType(t *testing.T, page string) (string, map[string]string) {
	t.Helper()
	var export struct {
		Export struct {
			MediaTypes []struct {
				Script     string
				Parameters []struct{ Name, Value string }
			} `json:"media_types"`
		} `json:"zabbix_export"`
	}
	unmarshal(t, labelled(t, page, "media-type"), &export)
	parameters := map[string]string{}
	for _, parameter := range export.Export.MediaTypes[0].Parameters {
		parameters[parameter.Name] = parameter.Value
	}
	return export.Export.MediaTypes[0].Script, parameters
}
