package mapping_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/origins"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// kindsOf are the letters of an alert's origins, without the digests.
func kindsOf(alert *mapping.Alert) string {
	alert.TellOrigins()
	_, rest, _ := strings.Cut(alert.Origins, "/")
	_, rest, _ = strings.Cut(rest, "/")
	return rest
}

func TestOrigins(t *testing.T) {
	for sentence, c := range map[string]struct {
		preset, mapping string // "{}": the payload rules alone
		body            string
		want            string
	}{
		"keys of their own names": {mapping: "{}",
			body: `{"title": "a", "severity": "info", "status": "firing", "dedup_key": "k", "region": "eu", "labels": {"a": "b"}}`,
			want: "k-kkk---k---k"},
		"other names, and what is left": {mapping: "{}",
			body: `{"subject": "a", "message": "b", "priority": "P1", "node": "n1"}`, want: "aaab-----------u"},
		"names that are close": {mapping: "{}",
			body: `{"Summary": "a", "dedupKey": "k", "level": "critical"}`, want: "n-nbn----------u//ASummary/Clevel/EdedupKey"},
		"a name of which the value is of no use, and its alias": {mapping: "{}",
			body: `{"severity": "odd", "priority": "P1", "title": {"a": 1}, "subject": "b"}`, want: "a-ab-----------u/AtCs"},
		"a severity that is not known": {mapping: "{}", body: `{"title": "a", "severity": "odd"}`, want: "k--b-----------u/Cs"},
		"times that cannot be read":    {mapping: "{}", body: `{"title": "a", "starts_at": "soon"}`, want: "k--b-----g-----u/Jz"},
		"a text that is too long":      {mapping: "{}", body: `{"title": "` + strings.Repeat("x", 2000) + `"}`, want: "k--b/Al"},
		"a custom object":              {mapping: "{}", body: `{"title": "a", "custom": {"b": 1}}`, want: "k--b-----------k"},
		"a custom object with a number that is no float": {mapping: "{}",
			body: `{"title": "a", "custom": {"secret": 12345678901234567890}}`, want: "k--b-----------k/Pn"},
		"expressions, and keys beside them": {mapping: `{fields: {title: alert.host, custom: '{"a": 1}'}}`,
			body: `{"host": "db-1", "message": "b", "rest": 1}`, want: "ma-b-----------m"},
		"an expression whose result is of no use, and the key beside it": {mapping: `{fields: {severity: '"odd"'}}`,
			body: `{"title": "a", "priority": "P1"}`, want: "k--b-----------u/Cs"},
		"an expression that failed":           {mapping: `{fields: {title: alert.host}}`, body: `{"title": "a"}`, want: "k--b/Af"},
		"an expression of status that failed": {mapping: `{fields: {status: alert.state}}`, body: `{"title": "a"}`, want: "k--f/DF"},
		"alerts that were not found":          {mapping: `{alerts: payload.list}`, body: `{"title": "a"}`, want: "k--b/QA"},
		"a preset, and a field of the integration's own": {preset: "alertmanager", mapping: `{fields: {region: "'eu'"}}`,
			body: `{"alerts": [{"fingerprint": "abc", "status": "firing", "labels": {"alertname": "A"}, "subject": "x"}]}`, want: "p--pp---m---p--p"},
	} {
		t.Run(sentence, func(t *testing.T) {
			g := NewWithT(t)
			program, err := mapping.Compile(c.preset, parsed(t, c.mapping))
			g.Expect(err).NotTo(HaveOccurred())
			result := readBody(t, program, c.body, nil)
			alert := &result.Alerts[0]
			alert.About(result.Warnings)
			g.Expect(kindsOf(alert)).To(Equal(c.want))
			_, known := origins.Parse(alert.Origins)
			g.Expect(known).To(BeTrue())
		})
	}
}

// TestOriginsHaveNothingOfASender reads payloads in which whatever a sender writes has a mark in it.
func TestOriginsHaveNothingOfASender(t *testing.T) {
	g := NewWithT(t)
	const secret = "hunter2"
	var keys strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&keys, `"%s-%d": "%s",`, secret, i, secret)
	}
	text := strings.Repeat(secret, 300)
	for _, body := range []string{
		`{` + keys.String() + `"title": "` + text + `", "severity": "` + secret + `"}`,
		`{"title": {"` + secret + `": 1}, "severity": "` + secret + `", "status": "` + secret + `", "starts_at": "` + secret + `", "labels": "` +
			secret + `", "` + secret + `": 1e999, "custom": {"` + secret + `": 1e999}}`,
		`{"Title": "` + secret + `", "Sev": "` + secret + `", "` + secret + `": "` + secret + `"}`,
	} {
		for _, m := range []string{"{}", `{fields: {title: 'alert.hunter2.hunter2', severity: "'hunter2'", status: alert.hunter2}}`} {
			alert := &readBody(t, compiled(t, m), body, nil).Alerts[0]
			alert.TellOrigins()
			g.Expect(alert.Origins).NotTo(ContainSubstring(secret))
			g.Expect(len(alert.Origins)).To(BeNumerically("<=", 64))
		}
	}
}

// TestOriginsOfEveryPreset reads the sample of each preset, whose expressions give the fields, and explains it.
func TestOriginsOfEveryPreset(t *testing.T) {
	presets, err := mapping.Presets()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	auto, err := mapping.Compile(mapping.Auto, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, preset := range presets {
		t.Run(preset.Name, func(t *testing.T) {
			g := NewWithT(t)
			body, err := os.ReadFile(filepath.Join("presets", preset.Name+".firing.json"))
			g.Expect(err).NotTo(HaveOccurred())
			chosen, err := mapping.Compile(preset.Name, nil)
			g.Expect(err).NotTo(HaveOccurred())
			for _, program := range []*mapping.Program{chosen, auto} {
				alert := &readBody(t, program, string(body), sampleHeaders(t, preset.Name+".firing")).Alerts[0]
				alert.TellOrigins()
				g.Expect(len(alert.Origins)).To(BeNumerically("<=", 32), alert.Origins)
				explained, known := mapping.Explain(incidentOf(alert), nil)
				g.Expect(known).To(BeTrue())
				g.Expect(explained.Preset).To(Equal(alert.Preset))
				told := map[string]mapping.Source{}
				for _, source := range alert.Sources() {
					told[source.Field] = source
				}
				for _, source := range explained.Sources {
					g.Expect(source.Changed).To(BeFalse(), source.Field)
					if source.Field != "status" && source.Field != "expires_at" {
						g.Expect(source).To(Equal(told[source.Field]), "as a dry run says")
					}
				}
			}
		})
	}
}

// incidentOf is an Incident of one alert.
func incidentOf(alert *mapping.Alert) *v1alpha1.Incident {
	incident := &v1alpha1.Incident{Spec: v1alpha1.IncidentSpec{DedupKey: alert.DedupKey}}
	incident.Status.Alert = alert.AlertContent
	return incident
}

func TestExplain(t *testing.T) {
	const mapped = `{alerts: payload.list, fields: {title: alert.host, region: "'eu'"}}`
	body := `{"list": [{"host": "db-1", "priority": "odd", "dedup_key": "k", "message": "b"}]}`
	alert := func(t *testing.T) *mapping.Alert {
		t.Helper()
		alert := &readBody(t, compiled(t, mapped), body, nil).Alerts[0]
		alert.TellOrigins()
		return alert
	}
	source := func(e mapping.Explanation, field string) mapping.Source {
		for _, source := range e.Sources {
			if source.Field == field {
				return source
			}
		}
		return mapping.Source{}
	}
	t.Run("with the mapping as it was, its expressions are told", func(t *testing.T) {
		g := NewWithT(t)
		e, known := mapping.Explain(incidentOf(alert(t)), parsed(t, mapped))
		g.Expect(known).To(BeTrue())
		g.Expect(source(e, "title")).To(Equal(mapping.Source{Field: "title", From: mapping.FromMapping, Expression: "alert.host"}))
		g.Expect(source(e, "description")).To(Equal(mapping.Source{Field: "description", From: mapping.FromKey, Key: "message"}))
		g.Expect(source(e, "dedup_key")).To(Equal(mapping.Source{Field: "dedup_key", From: mapping.FromKey, Key: "dedup_key"}))
		g.Expect(e.Warnings).To(ConsistOf(And(HaveField("Field", "severity"),
			HaveField("Detail", "… is not a known severity; it is kept in custom"))))
	})
	for sentence, now := range map[string]*v1alpha1.Mapping{
		"if another expression has changed":    parsed(t, `{alerts: payload.list, fields: {title: alert.host, region: "'us'"}}`),
		"if the alerts are found in other way": parsed(t, `{alerts: "payload.?list", fields: {title: alert.host, region: "'eu'"}}`),
		"if there is no mapping any more":      nil,
	} {
		t.Run(sentence+", it says that the mapping has changed", func(t *testing.T) {
			g := NewWithT(t)
			e, known := mapping.Explain(incidentOf(alert(t)), now)
			g.Expect(known).To(BeTrue())
			g.Expect(source(e, "title")).To(Equal(mapping.Source{Field: "title", From: mapping.FromMapping, Changed: true}))
			g.Expect(source(e, "description").Key).To(Equal("message"), "which does not depend on it")
		})
	}
	t.Run("a change of what to drop changes nothing", func(t *testing.T) {
		g := NewWithT(t)
		now := parsed(t, mapped)
		now.Drop = "alert.test"
		e, _ := mapping.Explain(incidentOf(alert(t)), now)
		g.Expect(source(e, "title").Changed).To(BeFalse())
	})
	t.Run("the preset of another version is told", func(t *testing.T) {
		g := NewWithT(t)
		incident := incidentOf(alert(t))
		incident.Status.Alert.Origins, incident.Status.Alert.Preset = "/xxxxxx/p", "grafana"
		e, _ := mapping.Explain(incident, nil)
		g.Expect(source(e, "title")).To(Equal(mapping.Source{Field: "title", From: mapping.FromPreset, Preset: "grafana", Changed: true}))
		incident.Status.Alert.Preset = "of-tomorrow"
		e, _ = mapping.Explain(incident, nil)
		g.Expect(source(e, "title").Changed).To(BeTrue())
	})
	t.Run("fields of earlier alerts, and what this version does not know", func(t *testing.T) {
		g := NewWithT(t)
		incident := incidentOf(alert(t))
		incident.Status.Alert.Origins = "//K-x/A?Ay"
		incident.Status.Alert.Severity = v1alpha1.SeverityError
		e, _ := mapping.Explain(incident, nil)
		g.Expect(source(e, "title")).To(Equal(mapping.Source{Field: "title", From: mapping.FromKey, Key: "title", Earlier: true}))
		g.Expect(source(e, "description").From).To(Equal(mapping.FromEarlier))
		g.Expect(source(e, "severity").From).To(Equal(mapping.FromUnknown))
	})
	for sentence, text := range map[string]string{
		"an older version stored nothing":     "",
		"somebody has written something else": "<b>?",
	} {
		t.Run(sentence, func(t *testing.T) {
			incident := incidentOf(alert(t))
			incident.Status.Alert.Origins = text
			_, known := mapping.Explain(incident, parsed(t, mapped))
			NewWithT(t).Expect(known).To(BeFalse())
		})
	}
}

// BenchmarkTellOrigins is what the origins of an alert cost, beside reading it.
func BenchmarkTellOrigins(b *testing.B) {
	body, err := os.ReadFile("../payload/testdata/senders/alertmanager.json")
	if err != nil {
		b.Fatal(err)
	}
	alerts := readBody(b, compiled(b, typicalMapping), string(body), nil).Alerts
	b.ReportAllocs()
	for b.Loop() {
		alerts[0].TellOrigins()
	}
}
