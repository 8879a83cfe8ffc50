package mapping_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// templateVariables are the variables of the pages in docs/senders/templates, with values as the tools give them.
var templateVariables = map[string][]string{
	"kibana": {
		"{{rule.name}}", "Disk", "{{alert.id}}", "db-02", "{{rule.id}}", "2f1a6c1e-6a0d-4d7f-9e6c-3b8f0f3f2a10",
		"{{context.reason}}", "Disk usage is 97% on db-02", "{{context.message}}", "", "{{rule.spaceId}}", "default",
		"{{rule.url}}", "https://kibana.example.com/app/management/insightsAndAlerting/triggersActions/rule/2f1a6c1e",
		"{{date}}", "2026-03-01T11:53:00.000Z",
	},
	"opensearch": {
		"{{ctx.monitor.name}}", "Shop logs", "{{ctx.trigger.name}}", "Too many errors", "{{ctx.trigger.severity}}", "2",
		"{{ctx.trigger.id}}", "x1Fq3YkBh7Zr2mVtQe0s", "{{ctx.periodStart}}", "2026-03-01T11:48:00Z",
		"{{ctx.periodEnd}}", "2026-03-01T11:53:00Z",
	},
	"prtg": {
		"%sensorid", "2154", "%device", "db-02", "%name", "Disk free", "%host", "db-02.example.com",
		"%message", "3 % (Free Space) is below the error limit of 5 % in Free Space",
		"%linksensor", "https://prtg.example.com/sensor.htm?id=2154",
	},
	"solarwinds": {
		"${N=Alerting;M=AlertName}", "Node is down", "${N=SwisEntity;M=Caption}", "db-02",
		"${N=Alerting;M=AlertMessage}", "db-02 does not respond to ping", "${N=Alerting;M=AlertObjectID}", "4711",
		"${N=Alerting;M=AlertDetailsUrl}", "https://orion.example.com/Orion/View.aspx?NetObject=AAT:4711",
		"${N=Alerting;M=Severity}", "Critical",
	},
	"shoutrrr": {"$title", "Watchtower on nas", "$message", "Could not pull shop/web:1.4"},
}

// TestTheTemplatesOfTheToolsWithoutAPreset fills the templates and compares what is read with the page. No preset may take
// the bodies for its own.
func TestTheTemplatesOfTheToolsWithoutAPreset(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sendersFolder, "templates", "*.md"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(files).To(HaveLen(len(templateVariables)+1), "the page of Nagios has a script")
	auto, err := mapping.Compile(mapping.Auto, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	index := readPage(t, "README")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".md")
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			page := readPage(t, "templates/"+name)
			g.Expect(index).To(ContainSubstring("](templates/" + name + ".md)"))
			g.Expect(page).To(ContainSubstring("https://tocsin.example.com/api/v1/events/webhook/TOKEN"))
			for _, b := range blocks(page) {
				sample, isTemplate := strings.CutPrefix(b.label, "template=")
				if !isTemplate {
					continue
				}
				expectTemplate(t, auto, page, sample, bodyOf(t, b, templateVariables[name]))
			}
		})
	}
}

// bodyOf fills the template of a block, and returns the body in JSON: a form has a text for each field.
func bodyOf(t *testing.T, b block, variables []string) string {
	t.Helper()
	if b.language != "form" {
		return strings.NewReplacer(variables...).Replace(b.text)
	}
	fields := map[string]string{}
	for pair := range strings.SplitSeq(strings.TrimSpace(b.text), "&") {
		name, value, _ := strings.Cut(pair, "=")
		fields[name] = strings.NewReplacer(variables...).Replace(value)
		NewWithT(t).Expect(url.QueryUnescape(url.QueryEscape(fields[name]))).To(Equal(fields[name]))
	}
	body, err := json.Marshal(fields)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(body)
}

// expectTemplate compares what a body becomes with the block of the page that shows it.
func expectTemplate(t *testing.T, auto *mapping.Program, page, sample, body string) {
	t.Helper()
	g := NewWithT(t)
	shown := map[string]any{}
	g.Expect(yaml.Unmarshal([]byte(labelled(t, page, "alert="+sample)), &shown)).To(Succeed())
	g.Expect(shown).To(And(HaveKey("status"), HaveKey("dedupKey")))
	result := readBody(t, auto, body, nil)
	g.Expect(result.Preset).To(BeEmpty(), body)
	g.Expect(result.Alerts).To(HaveLen(1), body)
	g.Expect(alertDifferences(result.Alerts[0], shown)).To(BeEmpty(), body)
}

// TestNagiosScript runs the script of the page as Nagios does, with the macros in the environment.
func TestNagiosScript(t *testing.T) {
	g := NewWithT(t)
	page := readPage(t, "templates/nagios")
	folder := t.TempDir()
	script, address := filepath.Join(folder, "notify-tocsin"), filepath.Join(folder, "tocsin-url")
	g.Expect(os.WriteFile(script, []byte(labelled(t, page, "script")), 0o600)).To(Succeed())
	auto, err := mapping.Compile(mapping.Auto, nil)
	g.Expect(err).NotTo(HaveOccurred())
	run := func(answer int, macros ...string) (bodies []string, exit int) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			bodies = append(bodies, string(body))
			w.WriteHeader(answer)
		}))
		defer server.Close()
		g.Expect(os.WriteFile(address, []byte(server.URL+"\n"), 0o600)).To(Succeed())
		command := exec.CommandContext(t.Context(), interpreter(t, "python3"), script)
		command.Env = slices.Concat(os.Environ(), []string{"TOCSIN_URL_FILE=" + address, "NAGIOS_HOSTNAME=db-02"}, macros)
		output, err := command.CombinedOutput()
		if err != nil && command.ProcessState == nil {
			t.Fatal(err)
		}
		g.Expect(string(output)).NotTo(ContainSubstring(server.URL), "the address has the token")
		return bodies, command.ProcessState.ExitCode()
	}
	disk := []string{"NAGIOS_SERVICEDESC=Disk", "NAGIOS_SERVICEOUTPUT=DISK CRITICAL - free space: / 512 MiB (3%)"}
	bodies, exit := run(http.StatusAccepted, append(disk, "NAGIOS_NOTIFICATIONTYPE=PROBLEM", "NAGIOS_SERVICESTATE=CRITICAL")...)
	g.Expect(exit).To(BeZero())
	expectTemplate(t, auto, page, "firing", bodies[0])
	bodies, exit = run(http.StatusAccepted, append(disk, "NAGIOS_NOTIFICATIONTYPE=RECOVERY", "NAGIOS_SERVICESTATE=OK")...)
	g.Expect(exit).To(BeZero())
	expectTemplate(t, auto, page, "resolved", bodies[0])
	bodies, exit = run(http.StatusAccepted, "NAGIOS_NOTIFICATIONTYPE=FLAPPINGSTART")
	g.Expect(bodies).To(BeEmpty())
	g.Expect(exit).To(BeZero())
	bodies, exit = run(http.StatusServiceUnavailable, "NAGIOS_NOTIFICATIONTYPE=PROBLEM", "NAGIOS_HOSTSTATE=DOWN")
	g.Expect(bodies).To(HaveLen(3), "it tries again")
	g.Expect(bodies[0]).To(ContainSubstring(`"title": "db-02: DOWN"`))
	g.Expect(exit).To(Equal(1))
	bodies, exit = run(http.StatusUnauthorized, "NAGIOS_NOTIFICATIONTYPE=PROBLEM", "NAGIOS_HOSTSTATE=DOWN")
	g.Expect(bodies).To(HaveLen(1))
	g.Expect(exit).To(Equal(1))
}
