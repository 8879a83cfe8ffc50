package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

const fullConfig = `
alertmanagers:
  - url: https://alertmanager-operated.monitoring.svc:9093/am/
    http_config:
      authorization: {credentials_file: token}
      tls_config: {server_name: alertmanager}
    integration_selector: team in (payments, core), env=prod
    severities: [critical, error]
    external_url: https://alertmanager.example.com/am/
  - url: http://10.0.0.1:9093
assignee_label: true
external_labels: {cluster: prod-1}
alert_labels: [team, mount]
expiry: 10m
`

func TestConfig(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(folder, "token"), []byte("secret"), 0o600)).To(Succeed())
	config, err := Parse([]byte(fullConfig), folder, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Expiry).To(Equal(10 * time.Minute))
	g.Expect(config.ExternalLabels).To(Equal(map[string]string{"cluster": "prod-1"}))
	g.Expect(config.AlertLabels).To(Equal([]string{"team", "mount"}))
	first, second := config.Alertmanagers[0], config.Alertmanagers[1]
	g.Expect(first.Name()).To(Equal("alertmanager-operated.monitoring.svc:9093/am"))
	g.Expect(first.HTTP.Authorization.CredentialsFile).To(Equal(filepath.Join(folder, "token")), "relative to the file")
	g.Expect(first.Integrations.String()).To(Equal("env=prod,team in (core,payments)"))
	g.Expect(first.Severities).To(Equal([]v1alpha1.Severity{"critical", "error"}))
	g.Expect(first.ExternalURL.String()).To(Equal("https://alertmanager.example.com/am"))
	g.Expect(first.AssigneeLabel).To(BeTrue())
	g.Expect(second.ExternalURL).To(BeNil())
	g.Expect(second.HTTP.FollowRedirects).To(BeTrue(), "the defaults of http_config")
	g.Expect(second.Integrations.Empty()).To(BeTrue())

	config, err = Parse([]byte("alertmanagers: [{url: 'http://am'}]"), "", nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Expiry).To(Equal(15 * time.Minute))
	g.Expect(config.AssigneeLabel).To(BeFalse(), "a change of it pages")
	g.Expect(config.Alertmanagers[0].Name()).To(Equal("am:80"))
	g.Expect(config.RoundInterval()).To(Equal(time.Minute))
	config.Expiry = time.Minute
	g.Expect(config.RoundInterval()).To(Equal(20 * time.Second))
}

func TestAnnotationsByDefault(t *testing.T) {
	g := NewWithT(t)
	defaults, err := Parse([]byte("alertmanagers: [{url: 'http://am:9093'}]"), "", nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(defaults.AlertAnnotations).To(Equal([]string{"runbook_url", "dashboard_url"}))
	none, err := Parse([]byte("alertmanagers: [{url: 'http://am:9093'}]\nalert_annotations: []"), "", nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(none.AlertAnnotations).To(BeEmpty())
}

func TestInvalidConfig(t *testing.T) {
	const am = "alertmanagers: [{url: 'http://am:9093'}]\n"
	for name, c := range map[string]struct{ file, want string }{
		"an empty file":                       {"", "alertmanagers: need 1 to 16 entries, got 0"},
		"no YAML":                             {"alertmanagers: [", "the file: yaml: line 1: "},
		"an unknown field":                    {am + "leese: 1m", `the file: unknown field "leese"`},
		"an unknown field of http_config":     {"alertmanagers: [{url: 'http://am', http_config: {bearer: secret}}]", `http_config: unknown field "bearer"`},
		"a list in http_config":               {"alertmanagers: [{url: 'http://am', http_config: {basic_auth: {password: [secret]}}}]", "http_config: a field cannot have a value of the YAML type seq"},
		"a string in http_config":             {"alertmanagers: [{url: 'http://am', http_config: {basic_auth: secret}}]", "http_config: a field cannot have a value of the YAML type str"},
		"a proxy with a password":             {"alertmanagers: [{url: 'http://am', http_config: {proxy_url: 'http://u:secret@['}}]", "http_config: invalid URL: "},
		"a string for the list":               {"alertmanagers: am", "alertmanagers: need a list, got a string"},
		"a list for a mapping":                {am + "external_labels: [a]", "external_labels: need a mapping, got a list"},
		"a list for a string":                 {"alertmanagers: [{url: [secret]}]", "alertmanagers.url: need a string, got a list"},
		"a string for a list of strings":      {am + "alert_labels: team", "alert_labels: need a list, got a string"},
		"a string for a truth value":          {am + "silence_acknowledged: 'on'", "silence_acknowledged: need true or false, got a string"},
		"an annotation of Tocsin's":           {am + "alert_annotations: [summary]", "alert_annotations: Tocsin writes the annotation summary itself"},
		"no name of an annotation":            {am + "alert_annotations: [a-b]", `alert_annotations: "a-b" is not the name of an annotation`},
		"a list for the file":                 {"[]", "the file: need a mapping, got a list"},
		"an expiry of another unit":           {am + "expiry: 1 week", "expiry: unknown unit"},
		"a missing CA":                        {"alertmanagers: [{url: 'http://am', http_config: {tls_config: {ca_file: none}}}]", "none: no such file"},
		"a missing password":                  {"alertmanagers: [{url: 'http://am', http_config: {basic_auth: {username: a, password_file: none}}}]", "none: no such file"},
		"a missing token":                     {"alertmanagers: [{url: 'http://am', http_config: {authorization: {credentials_file: none}}}]", "none: no such file"},
		"a missing old token":                 {"alertmanagers: [{url: 'http://am', http_config: {bearer_token_file: none}}]", "none: no such file"},
		"a missing file of OAuth 2.0":         {"alertmanagers: [{url: 'http://am', http_config: {oauth2: {client_id: a, token_url: 'http://b', client_secret_file: none}}}]", "none: no such file"},
		"a missing header":                    {"alertmanagers: [{url: 'http://am', http_config: {http_headers: {X-Key: {files: [none]}}}}]", "none: no such file"},
		"a URL with the path of the API":      {"alertmanagers: [{url: 'http://am/api/v2/alerts'}]", "leave out /api/v2/alerts"},
		"a URL without a host":                {"alertmanagers: [{url: 'am:9093'}]", "alertmanagers[0]: url: need a URL"},
		"another scheme":                      {"alertmanagers: [{url: 'ftp://am'}]", "url: need a URL"},
		"a password in the URL":               {"alertmanagers: [{url: 'http://u:secret@am'}]", "credentials in http_config"},
		"a token of a Tocsin in the URL":      {"alertmanagers: [{url: 'http://am/tocsin_0123456789abcdef0123456789abcdef_secret'}]", "the path has a token"},
		"the same Alertmanager twice":         {"alertmanagers: [{url: 'http://am:80'}, {url: 'http://am/'}]", "alertmanagers[1]: duplicate url"},
		"an external URL of another scheme":   {"alertmanagers: [{url: 'http://am', external_url: 'javascript:alert(1)'}]", "alertmanagers[0]: external_url: need a URL"},
		"a password in the external URL":      {"alertmanagers: [{url: 'http://am', external_url: 'https://u:secret@am'}]", "external_url: need a URL of at most 1024 bytes, such as"},
		"an external URL that is too long":    {"alertmanagers: [{url: 'http://am', external_url: 'https://am/" + strings.Repeat("x", 1024) + "'}]", "of at most 1024 bytes"},
		"the assignee as an external label":   {am + "external_labels: {tocsin_assignee: x}", "external_labels: tocsin_assignee is a label by which"},
		"the assignee as an alert label":      {am + "alert_labels: [tocsin_assignee]", "alert_labels: tocsin_assignee is a label by which"},
		"a selector that cannot be parsed":    {"alertmanagers: [{url: 'http://am', integration_selector: '='}]", "integration_selector: "},
		"an unknown severity":                 {"alertmanagers: [{url: 'http://am', severities: [page]}]", `severities: "page" is not one of`},
		"an expiry that is too short":         {am + "expiry: 59s", "expiry: 59s is not between 1m0s and 24h0m0s"},
		"an expiry without a unit":            {am + "expiry: 15", "expiry: need a duration such as 15m, got a number"},
		"an external label of Tocsin's":       {am + "external_labels: {tocsin_incident: x}", "external_labels: tocsin_incident is a label by which"},
		"hops as an external label":           {am + "external_labels: {tocsin_hops: '1'}", "external_labels: tocsin_hops is a label by which"},
		"hops as an alert label":              {am + "alert_labels: [tocsin_hops]", "alert_labels: tocsin_hops is a label by which"},
		"an external label without a value":   {am + "external_labels: {a: ''}", "the value of a needs 1 to 256 characters"},
		"a reserved label":                    {am + "alert_labels: [__name__]", `alert_labels: "__name__" is not a label name`},
		"an alert label that names no label":  {am + "alert_labels: [service.name]", "is not a label name"},
		"an alert label of Tocsin's":          {am + "alert_labels: [severity]", "alert_labels: severity is a label by which"},
		"an alert label that is external too": {am + "external_labels: {a: b}\nalert_labels: [a]", "alert_labels: a is an external label"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := Parse([]byte(c.file), t.TempDir(), nil)
			g.Expect(err).To(MatchError(ContainSubstring(c.want)))
			g.Expect(err.Error()).NotTo(Or(ContainSubstring("secret"), ContainSubstring("v1."), ContainSubstring("struct"), ContainSubstring("Go "),
				ContainSubstring("config.")), "no values, which may be secrets, and no types of Go")
		})
	}
}

// The example in the documentation is a valid file.
func TestDocumentedConfig(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile("../../../docs/forwarding.md")
	g.Expect(err).NotTo(HaveOccurred())
	_, example, found := strings.Cut(string(page), "```yaml\n")
	g.Expect(found).To(BeTrue())
	example, _, _ = strings.Cut(example, "```")
	config, err := Parse([]byte(example), "", nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Alertmanagers).To(HaveLen(1))
	g.Expect(config.AlertLabels).To(Equal([]string{"team"}))
}
