package forward

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/plaintext"
)

// The labels by which Tocsin identifies an alert. Neither external labels nor labels of the sender replace them.
const (
	labelAlertname   = "alertname"
	labelNamespace   = "namespace"
	labelIntegration = "integration"
	labelIncident    = v1alpha1.ForwardedLabel
	labelSeverity    = "severity"
)

var identityLabels = []string{labelAlertname, labelNamespace, labelIntegration, labelIncident, labelSeverity}

// noType is the type of alerts that have none, see package fold. It names no alert.
const noType = "webhook"

// alert is a postable alert of Alertmanager's API v2
// (https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml).
type alert struct {
	Labels       labelSet          `json:"labels"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

// labelSet is the identity of an alert: the JSON object of its labels, in alphabetical order. Equal sets are equal strings.
type labelSet string

// MarshalJSON implements json.Marshaler.
func (s labelSet) MarshalJSON() ([]byte, error) { return []byte(s), nil }

// endedSet is a label set that fired, and fires no longer.
type endedSet struct {
	labels   labelSet
	from, to time.Time
}

// wanted is what an Alertmanager has to know about one Incident.
type wanted struct {
	firing labelSet // empty: none
	since  time.Time
	ended  []endedSet
	// held says that the integration does not exist. A set that fires is neither renewed nor ended, so nothing changes if
	// the integration is created again within the lease; otherwise the set ends with it.
	held bool
}

// want returns what the target's Alertmanager has to know about an Incident. Both objects may be nil.
func want(incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, t *target, now time.Time) wanted {
	switch {
	case incident == nil || incident.Status.State == "":
		return wanted{}
	case integration == nil:
		return wanted{held: incident.Status.State == v1alpha1.IncidentOpen}
	case !t.forwards(incident, integration):
		return wanted{}
	}
	w := wanted{since: startOf(incident, now)}
	severity := incident.Status.Alert.Severity
	if incident.Status.State == v1alpha1.IncidentOpen && t.hasSeverity(severity) {
		w.firing = labelsOf(incident, integration, severity, t.config)
	}
	for _, period := range slices.Backward(endedPeriods(incident)) {
		if now.Sub(period.To) >= t.config.endedWindow() || !t.hasSeverity(period.Severity) {
			continue
		}
		set := endedSet{labels: labelsOf(incident, integration, period.Severity, t.config), from: w.since, to: period.To}
		if opened := incident.Status.OpenedTime; opened != nil && period.To.Before(opened.Time) {
			set.from = period.From // of an earlier episode
		}
		if set.labels != w.firing && !slices.ContainsFunc(w.ended, set.isSame) {
			w.ended = append(w.ended, set)
		}
	}
	return w
}

// endedPeriods returns the periods that have ended. The severity of a Resolved Incident counts only if the timeline tells
// nothing.
func endedPeriods(incident *v1alpha1.Incident) []fold.SeverityPeriod {
	status := &incident.Status
	periods := fold.SeverityPeriods(status.Timeline)
	if len(periods) == 0 && status.State == v1alpha1.IncidentResolved && status.ResolvedTime != nil {
		return []fold.SeverityPeriod{{Severity: status.Alert.Severity, To: status.ResolvedTime.Time}}
	}
	return slices.DeleteFunc(periods, func(period fold.SeverityPeriod) bool { return period.To.IsZero() })
}

func (s endedSet) isSame(other endedSet) bool { return s.labels == other.labels }

// endedWindow is how long ended alerts are posted again.
func (c *Config) endedWindow() time.Duration { return max(minEndedWindow, c.Lease) }

// startOf returns when the current episode began, or when its first alert was received if that is earlier: a sender's clock
// may be ahead, and Alertmanager rejects an alert that ends before it starts.
func startOf(incident *v1alpha1.Incident, now time.Time) time.Time {
	start := now
	if opened := incident.Status.OpenedTime; opened != nil && !opened.IsZero() && opened.Before(start) {
		start = opened.Time
	}
	if episode := incident.Status.Episode; episode != nil && !episode.StartTime.IsZero() && episode.StartTime.Before(start) {
		start = episode.StartTime.Time
	}
	return start
}

// labelsOf returns the labels of an Incident's alert while the Incident has a severity. A default label of the integration wins
// over the sender's: alerts are routed by these labels, and no sender may choose the route of another team.
func labelsOf(
	incident *v1alpha1.Incident, integration *v1alpha1.WebhookIntegration, severity v1alpha1.Severity, config *Config,
) labelSet {
	content := &incident.Status.Alert
	labels := map[string]string{}
	for _, name := range config.AlertLabels {
		value := shortLabel(content.Labels[name])
		if defaults := integration.Spec.Defaults; defaults != nil {
			value = cmp.Or(shortLabel(string(defaults.Labels[name])), value)
		}
		if value != "" {
			labels[name] = value
		}
	}
	maps.Copy(labels, config.ExternalLabels)
	labels[labelAlertname] = incident.Spec.IntegrationName
	if kind := shortLabel(content.Type); kind != "" && kind != noType {
		labels[labelAlertname] = kind
	}
	labels[labelNamespace] = incident.Namespace
	labels[labelIntegration] = incident.Spec.IntegrationName
	labels[labelIncident] = incident.Name
	if severity != "" {
		labels[labelSeverity] = string(severity)
	}
	encoded, err := json.Marshal(labels)
	if err != nil {
		return "" // strings always encode
	}
	return labelSet(encoded)
}

// shortLabel returns a text as one line, short enough for a label.
func shortLabel(text string) string {
	const bytesPerChar = 6
	return plaintext.OneLine(text, maxLabelChars, bytesPerChar*maxLabelChars)
}

// alertsOf returns the alerts to post for an Incident. incident is nil after it was deleted. The firing one comes first, so
// that a group of alerts never looks resolved while a set replaces another. A set fires for a lease from the later time of
// now, and has ended by the earlier one.
func alertsOf(key incidentKey, incident *v1alpha1.Incident, w wanted, lease time.Duration, now moment) []alert {
	if w.firing == "" && len(w.ended) == 0 {
		return nil
	}
	alerts := make([]alert, 0, 1+len(w.ended))
	annotations, link := annotationsOf(key, incident), ""
	if incident != nil {
		link = webLink(incident.Status.Alert.Link)
	}
	if w.firing != "" {
		alerts = append(alerts, alert{
			Labels: w.firing, Annotations: annotations, GeneratorURL: link, StartsAt: w.since.UTC(), EndsAt: now.latest.Add(lease).UTC(),
		})
	}
	for _, set := range w.ended {
		ends := earlier(set.to, now.earliest.Add(-clockMargin))
		alerts = append(alerts, alert{
			Labels: set.labels, Annotations: annotations, GeneratorURL: link,
			StartsAt: earlier(set.from, ends.Add(-time.Millisecond)).UTC(), EndsAt: ends.UTC(),
		})
	}
	return alerts
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// annotationsOf returns the annotations of an Incident's alerts.
func annotationsOf(key incidentKey, incident *v1alpha1.Incident) map[string]string {
	if incident == nil {
		return map[string]string{"summary": "The Incident " + key.name + " was deleted."}
	}
	status := &incident.Status
	annotations := map[string]string{"command": "kubectl tocsin show " + key.name + " --namespace " + key.namespace}
	for name, text := range map[string]string{
		"summary":         plaintext.SanitizeLine(status.Alert.Title),
		"description":     shortDescription(plaintext.SanitizeText(status.Alert.Description)),
		"host":            shortLabel(status.Alert.Hostname),
		"acknowledged_by": fold.AcknowledgedBy(status),
	} {
		if text != "" {
			annotations[name] = text
		}
	}
	if status.Episode != nil {
		annotations["count"] = strconv.FormatInt(status.Episode.AlertCount, 10)
	}
	return annotations
}

// shortDescription returns at most maxDescriptionChars of a text, with an ellipsis where it was cut.
func shortDescription(text string) string {
	if len(text) <= maxDescriptionChars || utf8.RuneCountInString(text) <= maxDescriptionChars {
		return text
	}
	n := 0
	for at := range text {
		if n++; n == maxDescriptionChars {
			return strings.TrimSpace(text[:at]) + "…"
		}
	}
	return text
}

// webLink returns the link if it is an http or https URL, else nothing: Alertmanager rejects others, and receivers show
// the link to people.
func webLink(link string) string {
	parsed, err := url.ParseRequestURI(link)
	if err != nil || len(link) > maxURLBytes || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return ""
	}
	return link
}
