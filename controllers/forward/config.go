package forward

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
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
)

// Config is the content of the file of --alertmanager-config.
type Config struct {
	Alertmanagers  []Alertmanager
	ExternalLabels map[string]string
	AlertLabels    []string // names of the labels of alerts that are forwarded
	// SilenceAcknowledged has acknowledged Incidents silenced.
	SilenceAcknowledged bool
	Lease               time.Duration // a firing alert ends so long after it was posted, unless it is posted again
}

// Alertmanager is one entry of the file: one Alertmanager, or all those behind one DNS name.
type Alertmanager struct {
	URL          *url.URL
	HTTP         promconfig.HTTPClientConfig
	Integrations labels.Selector
	Severities   []v1alpha1.Severity // empty: all
}

// configFile is the schema of the file.
type configFile struct {
	Alertmanagers       []alertmanagerEntry `json:"alertmanagers"`
	ExternalLabels      map[string]string   `json:"external_labels"`
	AlertLabels         []string            `json:"alert_labels"`
	Lease               *metav1.Duration    `json:"lease"`
	SilenceAcknowledged bool                `json:"silence_acknowledged"`
}

type alertmanagerEntry struct {
	URL                 string              `json:"url"`
	HTTPConfig          json.RawMessage     `json:"http_config"`
	IntegrationSelector string              `json:"integration_selector"`
	Severities          []v1alpha1.Severity `json:"severities"`
}

// labelName is Prometheus' classic rule for label names; names with two leading underscores are reserved.
var labelName = regexp.MustCompile(`^([a-zA-Z]|_([a-zA-Z0-9]|$))[a-zA-Z0-9_]*$`)

// parseConfig parses the file. Relative paths in http_config are relative to folder. It reads the files that http_config
// names, so that a missing one is an error now instead of later.
func parseConfig(data []byte, folder string) (*Config, error) {
	var file configFile
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, fmt.Errorf("parsing the file: %w", err)
	}
	config := &Config{ExternalLabels: file.ExternalLabels, AlertLabels: file.AlertLabels, Lease: defaultLease,
		SilenceAcknowledged: file.SilenceAcknowledged}
	var errs []error
	if file.Lease != nil {
		config.Lease = file.Lease.Duration
	}
	if config.Lease < minLease || config.Lease > maxLease {
		errs = append(errs, fmt.Errorf("lease: %s is not between %s and %s", config.Lease, minLease, maxLease))
	}
	if n := len(file.Alertmanagers); n == 0 || n > maxAlertmanagers {
		errs = append(errs, fmt.Errorf("alertmanagers: need 1 to %d entries, got %d", maxAlertmanagers, n))
	}
	for i := range file.Alertmanagers {
		entry, err := parseEntry(&file.Alertmanagers[i], folder)
		if err != nil {
			errs = append(errs, fmt.Errorf("alertmanagers[%d]: %w", i, err))
			continue
		}
		if slices.ContainsFunc(config.Alertmanagers, func(a Alertmanager) bool { return a.name() == entry.name() }) {
			errs = append(errs, fmt.Errorf("alertmanagers[%d]: duplicate url", i))
		}
		config.Alertmanagers = append(config.Alertmanagers, entry)
	}
	errs = append(errs, checkLabels(config))
	return config, errors.Join(errs...)
}

// parseEntry parses an entry of alertmanagers. Its errors never contain the URL, which may have a password by mistake.
func parseEntry(entry *alertmanagerEntry, folder string) (Alertmanager, error) {
	am := Alertmanager{HTTP: promconfig.DefaultHTTPClientConfig, Severities: entry.Severities}
	target, err := url.Parse(strings.TrimSuffix(entry.URL, "/"))
	switch {
	case err != nil || target.Hostname() == "" || target.Scheme != "http" && target.Scheme != "https":
		return am, errors.New("url: need a URL such as http://alertmanager.monitoring.svc:9093")
	case target.User != nil || target.RawQuery != "" || target.Fragment != "":
		return am, errors.New("url: user, query and fragment are not supported; set credentials in http_config")
	}
	am.URL = target
	if len(entry.HTTPConfig) > 0 {
		parsed, err := promconfig.LoadHTTPConfig(string(entry.HTTPConfig)) // JSON is YAML
		if err != nil {
			return am, fmt.Errorf("http_config: %w", err)
		}
		parsed.SetDirectory(folder)
		am.HTTP = *parsed
	}
	if _, err := promconfig.NewClientFromConfig(am.HTTP, clientName); err != nil {
		return am, fmt.Errorf("http_config: %w", err)
	}
	if am.Integrations, err = labels.Parse(entry.IntegrationSelector); err != nil {
		return am, fmt.Errorf("integration_selector: %w", err)
	}
	for _, severity := range entry.Severities {
		if !slices.Contains(v1alpha1.Severities(), severity) {
			return am, fmt.Errorf("severities: %q is not one of critical, error, warning and info", severity)
		}
	}
	return am, nil
}

// name returns the name of an entry in metrics, logs and conditions: host, port and path of the URL.
func (a *Alertmanager) name() string { return hostPort(a.URL) + a.URL.Path }

// checkLabels returns the errors of external_labels and alert_labels.
func checkLabels(config *Config) error {
	var errs []error
	if len(config.ExternalLabels) > maxLabels || len(config.AlertLabels) > maxLabels {
		errs = append(errs, fmt.Errorf("external_labels, alert_labels: at most %d labels each", maxLabels))
	}
	for name, value := range config.ExternalLabels {
		errs = append(errs, checkLabelName("external_labels", name))
		if value == "" || !utf8.ValidString(value) || utf8.RuneCountInString(value) > maxLabelChars {
			errs = append(errs, fmt.Errorf("external_labels: the value of %s needs 1 to %d characters", name, maxLabelChars))
		}
	}
	for _, name := range config.AlertLabels {
		errs = append(errs, checkLabelName("alert_labels", name))
		if _, external := config.ExternalLabels[name]; external {
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
