package forward

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	promconfig "github.com/prometheus/common/config"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/integrations"
)

// Config is the content of the file of --alertmanager-config. It never changes.
type Config struct {
	Alertmanagers       []target          `json:"alertmanagers"`
	ExternalLabels      map[string]string `json:"external_labels"`
	AlertLabels         []string          `json:"alert_labels"`      // names of the labels of alerts that are forwarded
	AlertAnnotations    []string          `json:"alert_annotations"` // names of the annotations of alerts that are forwarded
	Expiry              *metav1.Duration  `json:"expiry"`            // a firing alert ends so long after it was last posted
	SilenceAcknowledged bool              `json:"silence_acknowledged"`

	pageURL *url.URL // of --page-url; nil if there is no page
}

// target is one entry of the file: one Alertmanager, or all those behind one DNS name.
type target struct {
	URL                 string              `json:"url"`
	HTTPConfig          json.RawMessage     `json:"http_config"`
	IntegrationSelector string              `json:"integration_selector"`
	Severities          []v1alpha1.Severity `json:"severities"` // empty: all

	config       *Config
	url          *url.URL
	http         promconfig.HTTPClientConfig
	integrations labels.Selector
}

// labelName is Prometheus' classic rule for label names; names with two leading underscores are reserved.
var labelName = regexp.MustCompile(`^([a-zA-Z]|_([a-zA-Z0-9]|$))[a-zA-Z0-9_]*$`)

// tocsinToken matches the beginning of a token of a Tocsin.
var tocsinToken = regexp.MustCompile(`tocsin_[0-9a-f]{32}_`)

// parseConfig parses the file. Relative paths in http_config are relative to folder. It reads the files that http_config
// names, so that a missing one is an error now instead of later.
func parseConfig(data []byte, folder string) (*Config, error) {
	config := &Config{}
	if err := yaml.UnmarshalStrict(data, config); err != nil {
		return nil, explain(err)
	}
	if config.Expiry == nil {
		config.Expiry = &metav1.Duration{Duration: defaultExpiry}
	}
	if config.AlertAnnotations == nil {
		config.AlertAnnotations = []string{"runbook_url", "dashboard_url"}
	}
	var errs []error
	if expiry := config.Expiry.Duration; expiry < minExpiry || expiry > maxExpiry {
		errs = append(errs, fmt.Errorf("expiry: %s is not between %s and %s", expiry, minExpiry, maxExpiry))
	}
	if n := len(config.Alertmanagers); n == 0 || n > maxAlertmanagers {
		errs = append(errs, fmt.Errorf("alertmanagers: need 1 to %d entries, got %d", maxAlertmanagers, n))
	}
	names := map[string]bool{}
	for i := range config.Alertmanagers {
		t := &config.Alertmanagers[i]
		t.config = config
		if err := t.parse(folder); err != nil {
			errs = append(errs, fmt.Errorf("alertmanagers[%d]: %w", i, err))
			continue
		}
		if names[t.name()] {
			errs = append(errs, fmt.Errorf("alertmanagers[%d]: duplicate url", i))
		}
		names[t.name()] = true
	}
	return config, errors.Join(append(errs, config.checkLabels())...)
}

// parse fills in what the fields of the file say. Its errors never contain the URL, which may have a password by mistake.
func (t *target) parse(folder string) (err error) {
	if err := t.parseURL(); err != nil {
		return err
	}
	t.http = promconfig.DefaultHTTPClientConfig
	if len(t.HTTPConfig) > 0 {
		parsed, err := promconfig.LoadHTTPConfig(string(t.HTTPConfig)) // JSON is YAML
		if err != nil {
			return explainHTTPConfig(err)
		}
		parsed.SetDirectory(folder)
		t.http = *parsed
	}
	if _, err := promconfig.NewClientFromConfig(t.http, clientName); err != nil {
		return explainHTTPConfig(err)
	}
	if err := readFiles(reflect.ValueOf(t.http)); err != nil {
		return fmt.Errorf("http_config: %w", err)
	}
	if t.integrations, err = labels.Parse(t.IntegrationSelector); err != nil {
		return fmt.Errorf("integration_selector: %w", err)
	}
	for _, severity := range t.Severities {
		if !slices.Contains(v1alpha1.Severities(), severity) {
			return fmt.Errorf("severities: %q is not one of critical, error, warning and info", severity)
		}
	}
	return nil
}

// parseURL is parse for the URL.
func (t *target) parseURL() (err error) {
	t.url, err = url.Parse(strings.TrimSuffix(t.URL, "/"))
	switch {
	case err != nil || t.url.Hostname() == "" || t.url.Scheme != "http" && t.url.Scheme != "https":
		return errors.New("url: need a URL such as http://alertmanager.monitoring.svc:9093")
	case t.url.User != nil || t.url.RawQuery != "" || t.url.Fragment != "":
		return errors.New("url: user, query and fragment are not supported; set credentials in http_config")
	case strings.HasSuffix(t.url.Path, "/api/v2/alerts"):
		return errors.New("url: leave out /api/v2/alerts, which Tocsin adds")
	case tocsinToken.MatchString(t.url.Path): // which metrics and conditions show
		return errors.New("url: the path has a token of Tocsin; set it in the authorization of http_config")
	}
	return nil
}

// readFiles returns the error of a file that the settings name and that cannot be read. The library reads some of them, such as
// those of passwords, only for a request.
func readFiles(settings reflect.Value) error {
	switch settings.Kind() {
	case reflect.Pointer:
		if !settings.IsNil() {
			return readFiles(settings.Elem())
		}
	case reflect.Map:
		for _, entry := range settings.Seq2() {
			if err := readFiles(entry); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range settings.NumField() {
			if err := readField(settings.Type().Field(i), settings.Field(i)); err != nil {
				return err
			}
		}
	default:
	}
	return nil
}

// readField is readFiles for a field. One that names a file ends in File, and one that names several in Files.
func readField(field reflect.StructField, value reflect.Value) error {
	var paths []string
	switch {
	case !field.IsExported():
		return nil
	case strings.HasSuffix(field.Name, "File") && value.Kind() == reflect.String:
		paths = append(paths, value.String())
	case field.Name == "Files":
		paths, _ = reflect.TypeAssert[[]string](value)
	default:
		return readFiles(value)
	}
	for _, path := range paths {
		if path == "" {
			continue
		}
		if _, err := os.ReadFile(path); err != nil {
			return err
		}
	}
	return nil
}

// checkLabels returns the errors of external_labels, alert_labels and alert_annotations.
func (c *Config) checkLabels() error {
	var errs []error
	if max(len(c.ExternalLabels), len(c.AlertLabels), len(c.AlertAnnotations)) > maxLabels {
		errs = append(errs, fmt.Errorf("external_labels, alert_labels, alert_annotations: at most %d names each", maxLabels))
	}
	for _, name := range c.AlertAnnotations {
		switch {
		case !labelName.MatchString(name):
			errs = append(errs, fmt.Errorf("alert_annotations: %q is not the name of an annotation", name))
		case slices.Contains(ownAnnotations, name):
			errs = append(errs, fmt.Errorf("alert_annotations: Tocsin writes the annotation %s itself", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.ExternalLabels)) { // the errors are in a condition
		value := c.ExternalLabels[name]
		errs = append(errs, checkLabelName("external_labels", name))
		if value == "" || !utf8.ValidString(value) || utf8.RuneCountInString(value) > maxLabelChars {
			errs = append(errs, fmt.Errorf("external_labels: the value of %s needs 1 to %d characters", name, maxLabelChars))
		}
	}
	for _, name := range c.AlertLabels {
		errs = append(errs, checkLabelName("alert_labels", name))
		if _, external := c.ExternalLabels[name]; external {
			errs = append(errs, fmt.Errorf("alert_labels: %s is an external label", name))
		}
	}
	return errors.Join(errs...)
}

func checkLabelName(field, name string) error {
	switch {
	case !labelName.MatchString(name):
		return fmt.Errorf("%s: %q is not a label name", field, name)
	case slices.Contains(identityLabels, name):
		return fmt.Errorf("%s: %s is a label by which Tocsin identifies an alert", field, name)
	}
	return nil
}

// isValid reports whether the configuration was read from a valid file.
func (c *Config) isValid() bool { return len(c.Alertmanagers) > 0 }

// roundInterval is how often everything is posted: two posts of an expiry may fail.
func (c *Config) roundInterval() time.Duration {
	const postsPerExpiry = 3
	return min(maxRoundInterval, c.Expiry.Duration/postsPerExpiry)
}

// endedWindow is how long ended alerts are posted again.
func (c *Config) endedWindow() time.Duration { return max(minEndedWindow, c.Expiry.Duration) }

// name returns the name of the Alertmanager in metrics, logs and conditions: host, port and path of the URL.
func (t *target) name() string { return hostPort(t.url) + t.url.Path }

// selects returns the reason why the integration's Incidents are not forwarded, as one of the condition Forwarded; empty
// if they are.
func (t *target) selects(integration *v1alpha1.WebhookIntegration) string {
	return t.skips(integration, integration.Spec.Preset)
}

// skipsIncident returns the reason why an Incident of the integration is not forwarded, whatever its severity; empty if it is.
// The Incident tells which preset read its alerts. What Tocsin itself opens comes from no Alertmanager.
func (t *target) skipsIncident(incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration) string {
	if v1alpha1.IsHeartbeatKey(incident.Spec.DedupKey) {
		return t.skips(integration)
	}
	return t.skips(integration, integration.Spec.Preset, incident.Status.Alert.Preset)
}

// skips is selects for alerts that were read by one of the presets.
func (t *target) skips(integration *v1alpha1.WebhookIntegration, presets ...string) string {
	switch {
	case integration.Spec.Forward == v1alpha1.ForwardNever:
		return v1alpha1.ReasonForwardNever
	case integrations.StaysInAlertmanager(&integration.Spec, presets...):
		return v1alpha1.ReasonFromAlertmanager
	case !t.integrations.Matches(labels.Set(integration.Labels)):
		return v1alpha1.ReasonNotSelected
	default:
		return ""
	}
}

func (t *target) hasSeverity(severity v1alpha1.Severity) bool {
	return len(t.Severities) == 0 || slices.Contains(t.Severities, severity)
}
