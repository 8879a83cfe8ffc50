// Package config reads the file of --alertmanager-config.
package config

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
	"github.com/tocsin-dev/tocsin/controllers/forward/alertmanager"
	"github.com/tocsin-dev/tocsin/controllers/forward/alerts"
)

const (
	// defaultExpiry is longer than an upgrade, a failover or a short outage of Tocsin takes.
	defaultExpiry = 15 * time.Minute
	minExpiry     = time.Minute
	maxExpiry     = 24 * time.Hour

	// maxAlertmanagers and maxLabels bound the file.
	maxAlertmanagers = 16
	maxLabels        = 32

	// maxExternalURLBytes leaves space for the ID of a silence in status.silencedBy.link.
	maxExternalURLBytes = 1024
)

// Config is the content of the file. It never changes.
type Config struct {
	alerts.Settings
	Alertmanagers []*Target
}

// Target is one entry of the file: one Alertmanager, or all those behind one DNS name.
type Target struct {
	alerts.Target
	alertmanager.Server
}

// file is the file as it is written.
type file struct {
	Alertmanagers       []entry           `json:"alertmanagers"`
	ExternalLabels      map[string]string `json:"external_labels"`
	AlertLabels         []string          `json:"alert_labels"`
	AlertAnnotations    []string          `json:"alert_annotations"`
	Expiry              *metav1.Duration  `json:"expiry"`
	SilenceAcknowledged bool              `json:"silence_acknowledged"`
	AssigneeLabel       bool              `json:"assignee_label"`
}

type entry struct {
	URL                 string              `json:"url"`
	ExternalURL         string              `json:"external_url"`
	HTTPConfig          json.RawMessage     `json:"http_config"`
	IntegrationSelector string              `json:"integration_selector"`
	Severities          []v1alpha1.Severity `json:"severities"`
}

// labelName is Prometheus' classic rule for label names; names with two leading underscores are reserved.
var labelName = regexp.MustCompile(`^([a-zA-Z]|_([a-zA-Z0-9]|$))[a-zA-Z0-9_]*$`)

// tocsinToken matches the beginning of a token of a Tocsin.
var tocsinToken = regexp.MustCompile(`tocsin_[0-9a-f]{32}_`)

// Empty returns a configuration without Alertmanagers, for the time in which no file has been valid.
func Empty() *Config { return &Config{Settings: alerts.Settings{Expiry: defaultExpiry}} }

// IsEmpty reports whether the configuration has no Alertmanagers: no valid file has none.
func (c *Config) IsEmpty() bool { return len(c.Alertmanagers) == 0 }

// Parse parses the file. Relative paths in http_config are relative to folder. It reads the files that http_config names, so that
// a missing one is an error now instead of later. pageURL is the address of the page; nil if there is none.
func Parse(data []byte, folder string, pageURL *url.URL) (*Config, error) {
	var written file
	if err := yaml.UnmarshalStrict(data, &written); err != nil {
		return nil, explain(err)
	}
	config := &Config{Settings: alerts.Settings{
		ExternalLabels: written.ExternalLabels, AlertLabels: written.AlertLabels, AlertAnnotations: written.AlertAnnotations,
		Expiry: defaultExpiry, SilenceAcknowledged: written.SilenceAcknowledged, AssigneeLabel: written.AssigneeLabel,
		PageURL: pageURL,
	}}
	if written.Expiry != nil {
		config.Expiry = written.Expiry.Duration
	}
	if config.AlertAnnotations == nil {
		config.AlertAnnotations = []string{"runbook_url", "dashboard_url"}
	}
	var errs []error
	if config.Expiry < minExpiry || config.Expiry > maxExpiry {
		errs = append(errs, fmt.Errorf("expiry: %s is not between %s and %s", config.Expiry, minExpiry, maxExpiry))
	}
	if n := len(written.Alertmanagers); n == 0 || n > maxAlertmanagers {
		errs = append(errs, fmt.Errorf("alertmanagers: need 1 to %d entries, got %d", maxAlertmanagers, n))
	}
	names := map[string]bool{}
	for i := range written.Alertmanagers {
		target, err := written.Alertmanagers[i].parse(folder)
		if err != nil {
			errs = append(errs, fmt.Errorf("alertmanagers[%d]: %w", i, err))
			continue
		}
		if names[target.Name()] {
			errs = append(errs, fmt.Errorf("alertmanagers[%d]: duplicate url", i))
		}
		names[target.Name()] = true
		target.Settings = &config.Settings
		config.Alertmanagers = append(config.Alertmanagers, target)
	}
	if err := errors.Join(append(errs, checkLabels(&config.Settings))...); err != nil {
		return nil, err
	}
	return config, nil
}

// parse returns what an entry says. Its errors never contain the URL, which may have a password by mistake.
func (e *entry) parse(folder string) (*Target, error) {
	address, err := parseURL(e.URL)
	if err != nil {
		return nil, err
	}
	target := &Target{
		Target: alerts.Target{Severities: e.Severities},
		Server: alertmanager.Server{URL: address, HTTP: promconfig.DefaultHTTPClientConfig},
	}
	if len(e.HTTPConfig) > 0 {
		parsed, err := promconfig.LoadHTTPConfig(string(e.HTTPConfig)) // JSON is YAML
		if err != nil {
			return nil, explainHTTPConfig(err)
		}
		parsed.SetDirectory(folder)
		target.HTTP = *parsed
	}
	if _, err := promconfig.NewClientFromConfig(target.HTTP, "check"); err != nil {
		return nil, explainHTTPConfig(err)
	}
	if err := readFiles(reflect.ValueOf(target.HTTP)); err != nil {
		return nil, fmt.Errorf("http_config: %w", err)
	}
	if target.ExternalURL, err = parseExternalURL(e.ExternalURL); err != nil {
		return nil, err
	}
	if target.Integrations, err = labels.Parse(e.IntegrationSelector); err != nil {
		return nil, fmt.Errorf("integration_selector: %w", err)
	}
	for _, severity := range e.Severities {
		if !slices.Contains(v1alpha1.Severities(), severity) {
			return nil, fmt.Errorf("severities: %q is not one of critical, error, warning and info", severity)
		}
	}
	return target, nil
}

func parseURL(text string) (*url.URL, error) {
	address, err := url.Parse(strings.TrimSuffix(text, "/"))
	switch {
	case err != nil || address.Hostname() == "" || address.Scheme != "http" && address.Scheme != "https":
		return nil, errors.New("url: need a URL such as http://alertmanager.monitoring.svc:9093")
	case address.User != nil || address.RawQuery != "" || address.Fragment != "":
		return nil, errors.New("url: user, query and fragment are not supported; set credentials in http_config")
	case strings.HasSuffix(address.Path, "/api/v2/alerts"):
		return nil, errors.New("url: leave out /api/v2/alerts, which Tocsin adds")
	case tocsinToken.MatchString(address.Path): // which metrics and conditions show
		return nil, errors.New("url: the path has a token of Tocsin; set it in the authorization of http_config")
	}
	return address, nil
}

// parseExternalURL returns the address of the web interface; nil if there is none. It is in the status of Incidents, which many
// may read, so it has no credentials.
func parseExternalURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	address, err := parseURL(text)
	if err != nil || len(text) > maxExternalURLBytes {
		return nil, fmt.Errorf("external_url: need a URL of at most %d bytes, such as https://alertmanager.example.com, "+
			"without user, query and fragment", maxExternalURLBytes)
	}
	return address, nil
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
func checkLabels(s *alerts.Settings) error {
	var errs []error
	if max(len(s.ExternalLabels), len(s.AlertLabels), len(s.AlertAnnotations)) > maxLabels {
		errs = append(errs, fmt.Errorf("external_labels, alert_labels, alert_annotations: at most %d names each", maxLabels))
	}
	for _, name := range s.AlertAnnotations {
		switch {
		case !labelName.MatchString(name):
			errs = append(errs, fmt.Errorf("alert_annotations: %q is not the name of an annotation", name))
		case slices.Contains(alerts.OwnAnnotations, name):
			errs = append(errs, fmt.Errorf("alert_annotations: Tocsin writes the annotation %s itself", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.ExternalLabels)) { // the errors are in a condition
		value := s.ExternalLabels[name]
		errs = append(errs, checkLabelName("external_labels", name))
		if value == "" || !utf8.ValidString(value) || utf8.RuneCountInString(value) > alerts.MaxLabelChars {
			errs = append(errs, fmt.Errorf("external_labels: the value of %s needs 1 to %d characters", name, alerts.MaxLabelChars))
		}
	}
	for _, name := range s.AlertLabels {
		errs = append(errs, checkLabelName("alert_labels", name))
		if _, external := s.ExternalLabels[name]; external {
			errs = append(errs, fmt.Errorf("alert_labels: %s is an external label", name))
		}
	}
	return errors.Join(errs...)
}

func checkLabelName(field, name string) error {
	switch {
	case !labelName.MatchString(name):
		return fmt.Errorf("%s: %q is not a label name", field, name)
	case slices.Contains(alerts.IdentityLabels, name):
		return fmt.Errorf("%s: %s is a label by which Tocsin identifies an alert", field, name)
	}
	return nil
}
